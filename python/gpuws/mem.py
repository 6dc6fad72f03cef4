"""Memory: the need of a job, the cause of an out-of-memory error, and limits."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpuws._command import options, run
from gpuws._errors import CudaInitialized, InvalidRequest
from gpuws._machine import among, machine, mib, several

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuws._records import Explained, Fitted
    from gpuws._terms import Gpus, Path, Size

__all__ = ["explain", "fit", "limit"]


def explain(
    error: BaseException | str,
    *,
    live: bool = True,
    sim: Path | None = None,
    deadline: float = 3.0,
) -> Explained:
    """Explains an out-of-memory error: the request, the holders of the memory, and the remedies.

    `error` is a caught exception, such as torch.OutOfMemoryError, or the text of a log. With `live`,
    the result includes the current state of this machine, or of the simulated one named by `sim`.
    Returns the object of `gpuws mem explain --json`; `str()` of it is for people. An error without a
    known message has no events.
    """
    from gpuws import _gpuws
    from gpuws._records import Explained

    text = error if isinstance(error, str) else _text(error)
    found = _gpuws.explain(machine(sim, deadline), text.encode("utf-8", "replace"), bool(live))
    return Explained.of_json(found)


def chain(error: BaseException | None) -> list[BaseException]:
    """Returns an exception and the exceptions that caused it."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def _text(error: BaseException) -> str:
    import traceback

    parts = (traceback.format_exception_only(type(each), each) for each in reversed(chain(error)))
    return "".join("".join(part) for part in parts)


def fit(
    recording: Path | Iterable[Path],
    *,
    device_memory: Size | None = None,
    policy: str | Iterable[str] | None = None,
) -> Fitted:
    """Returns the minimum memory that recorded jobs need under each allocator.

    `recording` is a file, or several, of `torch.cuda.memory._dump_snapshot(path)`, or any other that
    `gpuws mem fit` reads. Returns its JSON object; with `device_memory`, such as "80GiB", `fits` of
    each job says whether it fits.
    """
    from gpuws._records import Fitted

    words = options(device_memory=mib(device_memory), policy=several(policy))
    paths = map(os.fspath, several(recording))
    return Fitted(run("mem", "fit", *words, "--", *paths, unreadable=InvalidRequest))


def limit(
    size: Size, *, context: Size | None = None, gpu: Gpus | None = None
) -> dict[str, str]:
    """Limits the GPU memory of this process: sets the variables of torch, TensorFlow and JAX.

    `size` is the limit on each GPU, such as "6GiB", including `context` for the CUDA context and
    libraries. Call it before the first CUDA call. Returns the variables that were set. A framework
    without such a variable, or one that read it at an earlier import, is not limited; the output of
    `gpuws mem env` has code for those. If no variable was set, a RuntimeWarning says so.

    Raises CudaInitialized, or InvalidRequest if the limit leaves no memory.
    """
    from gpuws._claim import initialized_by
    by = initialized_by()
    if by is not None:
        raise CudaInitialized(
            f"failed to limit the memory of this process: CUDA is already initialised here by {by}",
            hint="limit it before the first CUDA call",
        )
    words = options(
        limit=mib(size),
        context=mib(context),
        gpu=among(gpu),
        python=sys.executable or None,
    )
    bounded = run("mem", "env", *words, unreadable=InvalidRequest)
    variables = {each["name"]: each["value"] for each in bounded["variables"]}
    if not variables:
        import warnings

        warnings.warn(
            "nothing limits the GPU memory of this process: no framework of this Python has a "
            "variable for that",
            RuntimeWarning,
            stacklevel=2,
        )
    os.environ.update(variables)
    return variables
