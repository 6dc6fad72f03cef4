"""Memory: the need of a job, the cause of an out-of-memory error, and limits."""

from __future__ import annotations

import os
import sys

from gpuws._errors import CudaInitialized, InvalidRequest
from gpuws._machine import amount, machine

__all__ = ["explain", "fit", "limit"]


def explain(error, *, live=True, sim=None, deadline=3.0):
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


def chain(error):
    """Returns an exception and the exceptions that caused it."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def _text(error):
    import traceback

    parts = (traceback.format_exception_only(type(each), each) for each in reversed(chain(error)))
    return "".join("".join(part) for part in parts)


def fit(recording, *, device_memory=None, policy=None):
    """Returns the minimum memory that recorded jobs need under each allocator.

    `recording` is a file, or several, of `torch.cuda.memory._dump_snapshot(path)`, or any other that
    `gpuws mem fit` reads. Returns its JSON object; with `device_memory`, such as "80GiB", `fits` of
    each job says whether it fits.
    """
    from gpuws._records import Fitted

    paths = [recording] if isinstance(recording, (str, os.PathLike)) else list(recording)
    command = ["mem", "fit", "--json"]
    if device_memory is not None:
        command += ["--device-memory", _mib(device_memory)]
    for each in [policy] if isinstance(policy, str) else policy or []:
        command += ["--policy", each]
    return Fitted(_json([*command, "--", *map(os.fspath, paths)], accepted=(0, 1)))


def limit(size, *, context=None, gpu=None):
    """Limits the GPU memory of this process: sets the variables of torch, TensorFlow and JAX.

    `size` is the limit on each GPU, such as "6GiB", including `context` for the CUDA context and
    libraries. Call it before the first CUDA call. Returns the variables that were set. A framework
    without such a variable, or one that read it at an earlier import, is not limited; the output of
    `gpuws mem env` has code for those. If no variable was set, a RuntimeWarning says so.

    Raises CudaInitialized, or InvalidRequest if the limit leaves no memory.
    """
    from gpuws._claim import initialized_by
    from gpuws._machine import among

    by = initialized_by()
    if by is not None:
        raise CudaInitialized(
            f"failed to limit the memory of this process: CUDA is already initialised here by {by}",
            hint="limit it before the first CUDA call",
        )
    command = ["mem", "env", "--json", "--limit", _mib(size)]
    if context is not None:
        command += ["--context", _mib(context)]
    if gpu is not None:
        command += ["--gpu", ",".join(among(gpu))]
    if sys.executable:
        command += ["--python", sys.executable]
    bounded = _json(command)
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


def _json(command, accepted=(0,)):
    import json
    import subprocess

    program = machine()["program"]
    done = subprocess.run([program, *command], stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode not in accepted:
        text, _, hint = done.stderr.decode("utf-8", "replace").strip().partition("\nhint: ")
        raise InvalidRequest(text.removeprefix("gpuws: "), hint=hint or None)
    return json.loads(done.stdout)


def _mib(size):
    """Returns an amount in the form that the program takes, rounded down."""
    return f"{max(amount(size) >> 20, 1)}MiB"
