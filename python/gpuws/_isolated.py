"""Functions in their own process tree. Their GPU memory is free again when they return."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from gpuws import _gpuws
from gpuws._claim import wanted
from gpuws._errors import (
    GpuwsError,
    InvalidRequest,
    IsolatedDied,
    IsolatedError,
    IsolatedTimeout,
)
from gpuws._job import flush, pickler
from gpuws._machine import amount, machine, seconds
from gpuws._records import IsolatedReport

_P = ParamSpec("_P")
_R = TypeVar("_R")

if TYPE_CHECKING:
    from typing import Concatenate

    from typing_extensions import Unpack

    from gpuws._terms import Choice, Size

    _Q = ParamSpec("_Q")
    _S = TypeVar("_S")

    class Isolated(Generic[_P, _R]):
        """A decorated function: a function with an attribute `outcome`."""

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
        def outcome(self, *args: _P.args, **kwargs: _P.kwargs) -> Outcome[_R]: ...
        @overload
        def __get__(self, instance: None, owner: type, /) -> Isolated[_P, _R]: ...
        @overload
        def __get__(
            self: Isolated[Concatenate[_S, _Q], _R], instance: _S, owner: type | None = None, /
        ) -> Callable[_Q, _R]: ...
        def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...

# The job: a Python that finds this package, and no module of its current directory, which `-c`
# puts first in sys.path as ''.
_START = (
    "import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)]; "
    "from gpuws._job import main; main()"
)


# Whether this process is importing the main script of the caller.
importing_main = False


class Outcome(Generic[_R]):
    """The return value of an isolated function, and the report on its process tree."""

    __slots__ = ("report", "value")

    def __init__(self, value: _R, report: IsolatedReport) -> None:
        self.value = value
        self.report = report

    def __repr__(self) -> str:
        return f"Outcome(value={self.value!r}, report={self.report!r})"


class RemoteTraceback(Exception):
    """The traceback of an exception in an isolated function, as text: the cause of the exception."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@overload
def isolated(n: Callable[_P, _R]) -> Isolated[_P, _R]: ...
@overload
def isolated(
    n: int = 1,
    *,
    mem: Size | None = None,
    timeout: float | None = None,
    wait: bool = True,
    wait_timeout: float | None = None,
    grace: float = 10.0,
    **terms: Unpack[Choice],
) -> Callable[[Callable[_P, _R]], Isolated[_P, _R]]: ...
def isolated(
    n: Any = 1,
    *,
    mem: Size | None = None,
    timeout: float | None = None,
    wait: bool = True,
    wait_timeout: float | None = None,
    grace: float = 10.0,
    **terms: Unpack[Choice],
) -> Any:
    """Runs a function in its own process tree on `n` claimed GPUs, or `mem` of each.

    A call returns the function's result, or raises its exception, when every process that it
    started has ended and the memory of its GPUs is verified as free. After `timeout` seconds the
    call ends the tree, with `grace` seconds from SIGTERM to SIGKILL, and raises IsolatedTimeout. If
    the process ends without a result, the call raises IsolatedDied. `wait`, `wait_timeout` and the
    further arguments configure the claim as in `claim`, without `quiet`: there is no output.

    Arguments and result are pickled; changes of arguments stay in the other process. A function of
    the script that runs as `__main__` is called below `if __name__ == "__main__":`, because the
    other process imports the script as `multiprocessing` does. A function of a notebook, a closure
    or a lambda needs cloudpickle, which also sends functions of a script without that import.
    """
    if callable(n):
        return isolated()(n)
    settings: dict[str, Any] = {
        "claim": {"n": n, "mem": mem, "wait": wait, "timeout": wait_timeout, **terms},
        "time_limit_s": None if timeout is None else seconds(timeout, "timeout"),
        "grace_s": seconds(grace, "grace"),
    }
    # Invalid terms are reported here, not at the first call.
    wanted(**settings["claim"])

    def decorate(function: Callable[_P, _R]) -> Isolated[_P, _R]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise InvalidRequest(
                f"failed to isolate {function!r}: it returns before it has run",
                hint="isolate a function that runs it to its end",
            )

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return outcome(*args, **kwargs).value

        def outcome(*args: _P.args, **kwargs: _P.kwargs) -> Outcome[_R]:
            return _run(function, args, kwargs, settings)

        setattr(call, "outcome", outcome)
        return cast("Isolated[_P, _R]", call)

    return decorate


def _run(
    function: Callable[..., _R],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: dict[str, Any],
) -> Outcome[_R]:
    named = getattr(function, "__qualname__", repr(function))
    if importing_main:
        raise InvalidRequest(
            f"failed to run {named}: the main script calls it when it is imported",
            hint='call it below: if __name__ == "__main__":',
        )
    claim = wanted(**settings["claim"], command=f"isolated {named}")
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise GpuwsError(
            f"failed to run {named}: this process ignores SIGCHLD and would not see it end",
            hint="signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
        )
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

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
    outcome, text, value, json = _gpuws.run_isolated(machine(), claim, terms, payload)
    report = None if json is None else IsolatedReport.of_json(json)
    if outcome == "done" and report is not None:
        return _unpacked(named, value, report)
    if outcome == "timed-out":
        raise IsolatedTimeout(
            f"failed to run {named} within {settings['time_limit_s']:g} s; it was ended", report=report
        )
    if outcome == "job-failed" and report is not None:
        raise IsolatedDied(
            f"failed to run {named}: its process ended {_ending(report.exit_code)} without a result",
            report=report,
        )
    raise IsolatedError(f"failed to run {named}: {text}", report=report)


def _ending(code: int) -> str:
    if code > 128:
        try:
            return f"by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"with code {code}"


def _main() -> tuple[str, str] | None:
    """Returns how another process imports the main script: by module name, or by path; None if it
    cannot, as in a notebook."""
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None)
    if name is not None:
        return ("module", name)
    return ("path", os.path.abspath(path)) if path and os.path.isfile(path) else None


def _reference(function: object) -> tuple[str, str] | None:
    """Returns where a function is found by import; None if it is not."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module is None or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    while found is not None and found is not function:
        found = getattr(found, "__wrapped__", None)
    return None if found is None else (module, name)


def _packed(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bytes:
    import pickle

    reference, main = _reference(function), None
    is_plain = pickler() is pickle
    if reference and reference[0] in ("__main__", "__mp_main__"):
        main = _main() if is_plain else None
        reference = reference if main else None
        # Results may be of classes of the script, under the name that it has in the other process.
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    if reference is None and is_plain:
        raise InvalidRequest(
            f"failed to send {function!r} to another process: it cannot be imported there",
            hint="pip install cloudpickle, or define it in a module",
        )
    try:
        # The arguments are unpickled when the function's modules can be found.
        call = pickler().dumps((reference or function, args, kwargs))
    except Exception as error:
        raise InvalidRequest(f"failed to send {function!r} or its arguments: {error}") from error
    return pickle.dumps({"path": sys.path, "argv": sys.argv, "main": main, "call": call})


def _unpacked(named: str, value: bytes, report: IsolatedReport) -> Outcome[Any]:
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
