"""Notebooks: memory that an exception keeps, and `%load_ext gpuws`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuws._records import Gpu

__all__ = ["free"]

_LAST = ("last_exc", "last_type", "last_value", "last_traceback")


def free() -> int:
    """Drops the last exception, and returns the freed GPU memory to the driver.

    An exception keeps the local variables of each function that it went through, and thus their
    tensors: IPython until the next exception, for `%debug`. Returns the bytes that torch has
    returned to the driver; 0 if torch is not in use.
    """
    for name in _LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    shell = _shell()
    if shell is not None and getattr(shell, "InteractiveTB", None) is not None:
        shell.InteractiveTB.tb = None
    gc.collect()
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return 0
    devices = range(cuda.device_count())
    before: int = sum(cuda.memory_reserved(device) for device in devices)
    cuda.empty_cache()
    after: int = sum(cuda.memory_reserved(device) for device in devices)
    return before - after


def _shell() -> Any:
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get() if get is not None else None


def _out_of_memory_errors() -> tuple[type[BaseException], ...]:
    """Returns the out-of-memory exceptions of the loaded frameworks."""
    found: list[type[BaseException]] = []
    torch = sys.modules.get("torch")
    for holder in (torch, getattr(torch, "cuda", None)):
        error = getattr(holder, "OutOfMemoryError", None)
        if isinstance(error, type) and error not in found:
            found.append(error)
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    error = getattr(errors, "ResourceExhaustedError", None)
    if isinstance(error, type):
        found.append(error)
    return tuple(found)


def _status_line(gpu: Gpu) -> str:
    mib = 1 << 20
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    memory = "memory unknown"
    if used is not None and total is not None:
        memory = f"{used // mib} / {total // mib} MiB"
    users = [
        f"{process.user or '?'} {process.name or '?'} ({process.pid})" for process in gpu.processes
    ]
    return f"GPU {gpu.index}  {memory}  {', '.join(users) or 'no listed process'}"


def _explained(error: BaseException) -> list[str]:
    """Returns the explanation of an out-of-memory error."""
    import gpuws

    lines = [str(line) for line in str(gpuws.mem.explain(error)).splitlines()]
    look = gpuws.status(deadline=3.0)
    others = [_status_line(gpu) for gpu in look.gpus]
    return [line for line in [*lines, *others] if line]


class _Explainer:
    """Explains an out-of-memory error after its traceback, then drops it."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    def after_cell(self, result: Any) -> None:
        from gpuws import mem

        error = result.error_in_exec or result.error_before_exec
        errors = _out_of_memory_errors()
        chain = mem.chain(error)
        if not any(isinstance(each, errors) for each in chain):
            return
        try:
            for line in _explained(error):
                print(f"gpuws: {line}")
        except Exception as failure:
            # The cell's own error must not be hidden by one of ours.
            print(f"gpuws: could not explain the error: {failure}")
        # Objects that this result or the names of this function refer to would stay alive.
        result.error_in_exec = result.error_before_exec = None
        while chain:
            chain.pop().__traceback__ = None
        del error
        free()
        print("gpuws: let go of the exception; %debug cannot inspect it")


_explainer: _Explainer | None = None


def _magic(line: str) -> None:
    """Shows the GPUs and their users; `%gpuws free` drops the last exception."""
    import gpuws

    words = line.split()
    if words == ["free"]:
        print(f"{free() / (1 << 20):.0f} MiB returned to the driver")
        return
    import subprocess

    shown = subprocess.run(
        [gpuws.find_gpuws_bin(), *(words or ["status"])], capture_output=True, text=True
    )
    print((shown.stdout + shown.stderr).rstrip())


def load_ipython_extension(shell: Any) -> None:
    """Adds `%gpuws`, and an explanation to each out-of-memory error."""
    global _explainer
    if _explainer is None:
        _explainer = _Explainer(shell)
        shell.events.register("post_run_cell", _explainer.after_cell)
        shell.register_magic_function(_magic, "line", "gpuws")


def unload_ipython_extension(shell: Any) -> None:
    """Undoes `load_ipython_extension`."""
    global _explainer
    if _explainer is not None:
        shell.events.unregister("post_run_cell", _explainer.after_cell)
        shell.magics_manager.magics["line"].pop("gpuws", None)
        _explainer = None
