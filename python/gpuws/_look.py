"""Views: the --json objects of `gpuws status`, `doctor` and `leases`, as frozen objects."""

from __future__ import annotations

import warnings

from gpuws import _gpuws
from gpuws._machine import count, machine, seconds
from gpuws._records import Doctor, Leases, Status


def status(*, details=False, sim=None, deadline=30.0):
    """Returns the GPUs and their users: the object of `gpuws status --json`.

    `sim` names a simulated machine to use instead. Without a driver, `driver_error` has the reason.
    """
    return Status.of_json(_gpuws.status(machine(sim, deadline), details))


def doctor(*, samples=1, every=5.0, sim=None, deadline=30.0, looks=None):
    """Returns the findings on this machine: the object of `gpuws doctor --json`.

    Several samples, `every` seconds apart, distinguish an idle process from a pausing one. `looks`
    is the former name of `samples`.
    """
    if looks is not None:
        warnings.warn("doctor(looks=) is now doctor(samples=)", DeprecationWarning, stacklevel=2)
        samples = looks
    samples, every = count(samples, "samples", 65535), seconds(every, "every")
    return Doctor.of_json(_gpuws.doctor(machine(sim, deadline), samples, every))


def leases(*, sim=None, deadline=30.0):
    """Returns all leases and waiting claims: the object of `gpuws leases --json`."""
    return Leases.of_json(_gpuws.leases(machine(sim, deadline)))
