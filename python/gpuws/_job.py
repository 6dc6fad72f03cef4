"""The process of an isolated function."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any


def main() -> None:
    import pickle

    # The result goes to a pipe of the caller. It is opened only for the write, so that no process
    # started here keeps it open.
    result = os.environ.pop("GPUWS_RESULT")
    sent = pickle.loads(sys.stdin.buffer.read())
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    sys.path[:], sys.argv[:] = sent["path"], sent["argv"]
    job = os.getpid()
    answer = pickle.dumps(_call(sent["call"], sent["main"], job))
    if os.getpid() != job:
        # The function has forked this process, which must not send a result.
        return
    flush()
    with open(result, "wb", buffering=0) as pipe:
        view = memoryview(answer)
        while view:
            view = view[pipe.write(view) :]
    # Threads and workers that the function has left behind are not waited for.
    os._exit(0)


def _call(packed: bytes, main_script: tuple[str, str] | None, job: int) -> tuple[str, bytes, str]:
    import pickle

    try:
        limit = os.environ.pop("GPUWS_JOB_LIMIT", None)
        if limit is not None:
            from gpuws import mem

            mem.limit(int(limit))
        if main_script is not None:
            _import_main(*main_script)
        function, args, kwargs = pickle.loads(packed)
        if isinstance(function, tuple):
            function = _found(*function)
        return "value", _dumped(function(*args, **kwargs)), ""
    except BaseException as raised:
        if os.getpid() != job:
            raise
        if isinstance(raised, SystemExit):
            return "exit", b"", repr(raised.code)
        import traceback

        text = "".join(traceback.format_exception(type(raised), raised, raised.__traceback__))
        # Its frames have the tensors of the function; they end with this process.
        raised.__traceback__ = None
        try:
            return "raised", _dumped(raised), text
        except Exception:
            return "raised", b"", text


def flush() -> None:
    """Flushes the output, as far as possible."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # It is None or closed, or has no reader.
            pass


def _found(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # Below the decorator: this process runs the function itself.
    while hasattr(found, "outcome") and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found


def _import_main(kind: str, name: str) -> None:
    """Imports the main script under the name that `multiprocessing` gives it, so that its code below
    `if __name__ == "__main__":` does not run."""
    import runpy
    import types

    from gpuws import _isolated

    run = runpy.run_module if kind == "module" else runpy.run_path
    _isolated.importing_main = True
    try:
        values = run(name, run_name="__mp_main__")
    finally:
        _isolated.importing_main = False
    script = types.ModuleType("__mp_main__")
    script.__dict__.update(values)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = script


def pickler() -> ModuleType:
    """Returns cloudpickle where it is installed, or pickle."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return importlib.import_module("pickle")


def _dumped(value: object) -> bytes:
    packed: bytes = pickler().dumps(value)
    return packed
