"""The end of processes that keep GPU memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gpuws._command import options, run
from gpuws._errors import InvalidRequest
from gpuws._machine import among, each_of, seconds
from gpuws._records import Reap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuws._terms import Gpus, Path, Users


def reap(
    *,
    gpu: Gpus | None = None,
    user: Users | None = None,
    pid: int | Iterable[int] | None = None,
    yes: bool = False,
    grace: float = 10.0,
    scope: Literal["process", "group", "container"] = "process",
    protect: Users | None = None,
    sim: Path | None = None,
    deadline: float = 30.0,
) -> Reap:
    """Plans which processes to end so that their GPU memory is free; ends them only if `yes=True`.

    The targets are processes that are certainly left over, on the GPUs `gpu` and of the users
    `user` where these are given; or exactly the processes `pid`. `scope` adds their process groups
    or containers. `protect` names processes to spare: PIDs, names, or "user:NAME". From SIGTERM to
    SIGKILL a process has `grace` seconds. The program `gpuws reap` plans and acts, so all its
    checks and refusals apply, and it writes the audit log.

    Returns the object of `gpuws reap --json`. Its `report` is None for a plan; after an execution
    `report.complete` says whether everything ended and its memory was seen free. Ctrl-C stops
    before the next signal.
    """
    if not isinstance(yes, bool):
        raise InvalidRequest(f"failed to read yes={yes!r}: it is True or False")
    words = options(
        gpu=among(gpu),
        user=each_of(user, "user"),
        pid=each_of(pid, "pid"),
        yes=yes,
        grace=seconds(grace, "grace"),
        scope=scope,
        protect=each_of(protect, "protect"),
        sim=sim,
        deadline=seconds(deadline, "deadline"),
    )
    return Reap(run("reap", *words))
