"""Functions in their own process tree. Their GPU memory is free again when they return."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys

from gpuws import _gpuws
from gpuws._claim import wanted
from gpuws._errors import (
    GpuwsError,
    InvalidRequest,
    IsolatedDied,
    IsolatedError,
    IsolatedTimeout,
)
from gpuws._job import flush
from gpuws._machine import amount, machine, seconds
from gpuws._records import IsolatedReport

# The job: a Python that finds this package, and no module of its current directory, which `-c`
# puts first in sys.path as ''.
_START = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)]; "
    "from gpuws._job import main; main()"
)


class Outcome:
    """The return value of an isolated function, and the report on its process tree."""

    __slots__ = ("report", "value")

    def __init__(self, value, report):
        self.value = value
        self.report = report

    def __repr__(self):
        return f"Outcome(value={self.value!r}, report={self.report!r})"


class RemoteTraceback(Exception):
    """The traceback of an exception in an isolated function, as text: the cause of the exception."""

    def __str__(self):
        return "\n" + str(self.args[0])


def isolated(n=1, *, mem=None, timeout=None, wait=True, wait_timeout=None, grace=10.0, **terms):
    """Runs a function in its own process tree on `n` claimed GPUs, or `mem` of each.

    A call returns the function's result, or raises its exception, when every process that it
    started has ended and the memory of its GPUs is verified as free. After `timeout` seconds the
    call ends the tree, with `grace` seconds from SIGTERM to SIGKILL, and raises IsolatedTimeout. If
    the process ends without a result, the call raises IsolatedDied. `wait`, `wait_timeout` and the
    further arguments configure the claim as in `claim`, without `quiet`: there is no output.

    Arguments and result are pickled. A function of a notebook or a lambda needs cloudpickle.
    """
    if callable(n):
        return isolated()(n)
    settings = {
        "claim": {"n": n, "mem": mem, "wait": wait, "timeout": wait_timeout, **terms},
        "time_limit_s": None if timeout is None else seconds(timeout, "timeout"),
        "grace_s": seconds(grace, "grace"),
    }
    # Invalid terms are reported here, not at the first call.
    wanted(**settings["claim"])

    def decorate(function):
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise InvalidRequest(
                f"failed to isolate {function!r}: it returns before it has run",
                hint="isolate a function that runs it to its end",
            )

        @functools.wraps(function)
        def call(*args, **kwargs):
            return _run(function, args, kwargs, settings).value

        call.outcome = lambda *args, **kwargs: _run(function, args, kwargs, settings)
        return call

    return decorate


def _run(function, args, kwargs, settings):
    named = getattr(function, "__qualname__", repr(function))
    claim = wanted(**settings["claim"], command=f"isolated {named}")
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise GpuwsError(
            f"failed to run {named}: this process ignores SIGCHLD and would not see it end",
            hint="signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
        )
    from subprocess import _args_from_interpreter_flags

    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    set_variables = {}
    if settings["claim"]["mem"] is not None:
        set_variables["GPUWS_JOB_LIMIT"] = str(amount(settings["claim"]["mem"]))
    terms = {
        "command": [sys.executable, *_args_from_interpreter_flags(), "-c", _START, site],
        "set": list(set_variables.items()),
        "time_limit_s": settings["time_limit_s"],
        "grace_s": settings["grace_s"],
    }
    flush()
    payload = _packed(function, args, kwargs)
    outcome, text, value, report = _gpuws.run_isolated(machine(), claim, terms, payload)
    report = None if report is None else IsolatedReport.of_json(report)
    if outcome == "done":
        return _unpacked(named, value, report)
    if outcome == "timed-out":
        raise IsolatedTimeout(
            f"failed to run {named} within {settings['time_limit_s']:g} s; it was ended", report=report
        )
    if outcome == "job-failed":
        raise IsolatedDied(
            f"failed to run {named}: its process ended {_ending(report.exit_code)} without a result",
            report=report,
        )
    raise IsolatedError(f"failed to run {named}: {text}", report=report)


def _ending(code):
    if code > 128:
        try:
            return f"by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"with code {code}"


def _reference(function):
    """Returns where a function is found by import; None if it is not."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "<" in name:
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    while found is not None and found is not function:
        found = getattr(found, "__wrapped__", None)
    return None if found is None else (module, name)


def _packed(function, args, kwargs):
    import pickle

    reference = _reference(function)
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    if reference is None and pickler is pickle:
        raise InvalidRequest(
            f"failed to send {function!r} to another process: it cannot be imported there",
            hint="pip install cloudpickle, or define it in a module",
        )
    try:
        # The arguments are unpickled when the function's modules can be found.
        call = pickler.dumps((reference or function, args, kwargs))
    except Exception as error:
        raise InvalidRequest(f"failed to send {function!r} or its arguments: {error}") from error
    return pickle.dumps({"path": sys.path, "argv": sys.argv, "call": call})


def _unpacked(named, value, report):
    import pickle

    if not value:
        raise IsolatedDied(f"failed to run {named}: it sent no result", report=report)
    kind, sent, text = pickle.loads(value)
    if report.memory_back is False or report.left_pids:
        import warnings

        warnings.warn(
            f"{named} left something behind that could not be ended; for details: gpuws doctor",
            ResourceWarning,
            stacklevel=4,
        )
    if kind == "value":
        return Outcome(pickle.loads(sent), report)
    if kind == "exit":
        raise IsolatedDied(f"failed to run {named}: it called sys.exit({text})", report=report)
    try:
        raised = pickle.loads(sent) if sent else None
    except Exception:
        raised = None
    if not isinstance(raised, BaseException):
        raise IsolatedError(f"failed to run {named}: {text}", kind="isolated-raised", report=report)
    raised.__cause__ = RemoteTraceback(text)
    if not isinstance(raised, Exception):
        raise IsolatedError(f"failed to run {named}: {text}", kind="isolated-raised", report=report)
    raise raised
