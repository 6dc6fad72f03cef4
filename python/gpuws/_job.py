"""The process of an isolated function."""

from __future__ import annotations

import os
import sys


def main():
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
    answer = pickle.dumps(_call(sent["call"], job))
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


def _call(packed, job):
    import pickle

    try:
        limit = os.environ.pop("GPUWS_JOB_LIMIT", None)
        if limit is not None:
            from gpuws import mem

            mem.limit(int(limit))
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


def flush():
    """Flushes the output, as far as possible."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # It is None or closed, or has no reader.
            pass


def _found(module, name):
    import importlib

    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # Below the decorator: this process runs the function itself.
    while hasattr(found, "outcome") and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found


def _dumped(value):
    try:
        import cloudpickle as pickler
    except ImportError:
        import pickle as pickler
    return pickler.dumps(value)
