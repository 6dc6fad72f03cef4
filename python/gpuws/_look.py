"""Views: the --json of `gpuws status`, `doctor`, `leases` and `report`, as frozen objects."""

from __future__ import annotations

import warnings

from gpuws import _gpuws
from gpuws._errors import DriverError, InvalidRequest
from gpuws._machine import count, machine, seconds
from gpuws._records import Doctor, Leases, Report, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from gpuws._records import Gpu
    from gpuws._terms import Path


def status(*, details: bool = False, sim: Path | None = None, deadline: float = 30.0) -> Status:
    """Returns the GPUs and their users: the object of `gpuws status --json`.

    `sim` names a simulated machine to use instead. Without a driver, `driver_error` has the reason.
    """
    return Status.of_json(_gpuws.status(machine(sim, deadline), details))


def visible_gpus(*, sim: Path | None = None, deadline: float = 30.0) -> tuple[Gpu, ...]:
    """Returns the GPUs that this process and programs that it starts see, as `status().gpus` has them.

    They are in the order of CUDA_VISIBLE_DEVICES, so the first is `cuda:0`; without the variable
    they are all GPUs. Raises InvalidRequest if the variable is ambiguous, and DriverError without a
    driver.
    """
    now = status(sim=sim, deadline=deadline)
    if now.driver_error is not None:
        raise DriverError(now.driver_error.what, hint=now.driver_error.remedy)
    if not now.gpus:
        return ()
    if now.visible_gpus is None:
        raise InvalidRequest(
            "CUDA_VISIBLE_DEVICES has indexes of GPUs of several kinds, whose order is unknown",
            hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    gpus = {gpu.index: gpu for gpu in now.gpus}
    return tuple(gpus[index] for index in now.visible_gpus)


def doctor(
    *,
    samples: int = 1,
    every: float = 5.0,
    sim: Path | None = None,
    deadline: float = 30.0,
    looks: int | None = None,
) -> Doctor:
    """Returns the findings on this machine: the object of `gpuws doctor --json`.

    Several samples, `every` seconds apart, distinguish an idle process from a pausing one. `looks`
    is the former name of `samples`.
    """
    if looks is not None:
        warnings.warn("doctor(looks=) is now doctor(samples=)", DeprecationWarning, stacklevel=2)
        samples = looks
    samples, every = count(samples, "samples", 65535), seconds(every, "every")
    return Doctor.of_json(_gpuws.doctor(machine(sim, deadline), samples, every))


def leases(*, sim: Path | None = None, deadline: float = 30.0) -> Leases:
    """Returns all leases and waiting claims: the object of `gpuws leases --json`."""
    return Leases.of_json(_gpuws.leases(machine(sim, deadline)))


def report(
    path: Path,
    *,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    step: float = 10.0,
    gap: float | None = None,
) -> Report:
    """Returns who used and held the GPUs over the time of a history: the object of `gpuws report
    --json`.

    `path` is the directory of a history, or a file that `gpuws record` wrote. `since` and `until`
    are times such as "2026-11-24T10:00", "10:00" of the last day or "-5m" from the end. A sample is
    used at most every `step` seconds; an interval of more than `gap` seconds does not count.
    """
    import os

    from gpuws._command import options, run

    def moment(time: str | datetime | None) -> str | None:
        return time if time is None or isinstance(time, str) else time.isoformat()

    words = options(
        since=moment(since),
        until=moment(until),
        step=seconds(step, "step"),
        gap=None if gap is None else seconds(gap, "gap"),
    )
    return Report(run("report", *words, "--", os.fspath(path), unreadable=InvalidRequest))
