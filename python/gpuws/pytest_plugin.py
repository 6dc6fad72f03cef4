"""The pytest plugin: GPUs for tests, a lease for each worker of pytest-xdist.

A test that has the fixture `gpu` or the mark `gpu(n=…, mem=…)` runs on claimed GPUs, within the
CUDA_VISIBLE_DEVICES that pytest was started with. A worker keeps its lease until it ends, because
CUDA reads the list of GPUs only once in a process.
"""

from __future__ import annotations

import os

import pytest

_MARK = "gpu(n=1, mem=None, **terms): runs on claimed GPUs; the arguments are those of gpuws.claim"


def pytest_addoption(parser):
    group = parser.getgroup("gpuws", "GPUs (gpuws)")
    group.addoption(
        "--gpuws-sim", metavar="NAME", help="simulate a machine, such as labbox, for all tests"
    )
    group.addoption(
        "--gpuws-timeout",
        metavar="SECONDS",
        type=float,
        default=600.0,
        help="the time to wait for GPUs (default: 600)",
    )
    group.addoption(
        "--gpuws-no-leak",
        action="store_true",
        help="fail a test that leaves GPU memory or processes on the GPUs behind",
    )
    group.addoption(
        "--gpuws-require",
        action="store_true",
        help="fail tests, instead of skipping them, where there are too few GPUs",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", _MARK)
    config.stash[_WORKER] = _Worker(config)
    name = config.getoption("--gpuws-sim")
    # The workers inherit the environment of the controller, and with it its simulation.
    if name is not None and not hasattr(config, "workerinput"):
        from gpuws._sim import sim

        config.stash[_SIM] = sim(name).start()


def pytest_unconfigure(config):
    worker = config.stash.get(_WORKER, None)
    if worker is not None:
        worker.release()
    simulated = config.stash.get(_SIM, None)
    if simulated is not None:
        simulated.stop()


def pytest_report_header(config):
    name = config.getoption("--gpuws-sim")
    return None if name is None else f"gpuws: simulated machine {name}"


@pytest.fixture
def gpu(request):
    """The claimed GPUs of this test: a `gpuws.Claim`."""
    return request.config.stash[_WORKER].claim_for(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if item.get_closest_marker("gpu") is None and "gpu" not in getattr(item, "fixturenames", ()):
        return (yield)
    worker = item.config.stash[_WORKER]
    worker.claim_for(item)
    if not item.config.getoption("--gpuws-no-leak"):
        return (yield)
    before = worker.users()
    result = yield
    left = worker.left_since(before)
    if left:
        from gpuws._errors import Leaked

        raise Leaked("the test has left behind on its GPUs: " + "; ".join(left))
    return result


class _Worker:
    """The lease of a process that runs tests."""

    def __init__(self, config):
        self.config = config
        self.claim = None
        self.terms = None

    def claim_for(self, item):
        """Returns the claim with the GPUs that a test asks for, or skips the test."""
        mark = item.get_closest_marker("gpu")
        terms = dict(mark.kwargs) if mark is not None else {}
        if mark is not None and mark.args:
            terms["n"] = mark.args[0]
        terms.setdefault("n", 1)
        if self._serves(terms):
            return self.claim
        from gpuws import _claim
        from gpuws._errors import DriverError, NeverAvailable, NotAvailable

        # CUDA must not be initialised; the claim says so by name.
        wait = {"timeout": self.config.getoption("--gpuws-timeout"), "quiet": True}
        claim = _claim.claim(**{**wait, **terms})
        self.release()
        try:
            claim._take()
        except (DriverError, NeverAvailable, NotAvailable) as error:
            if self.config.getoption("--gpuws-require"):
                raise
            pytest.skip(str(error).splitlines()[0])
        self.claim, self.terms = claim, terms
        return claim

    def _serves(self, terms):
        """Whether the lease of this worker is enough for these terms."""
        if self.claim is None or not self.claim.is_held:
            return False
        rest, own = dict(terms), dict(self.terms)
        return rest.pop("n") <= own.pop("n") and rest == own

    def release(self):
        if self.claim is not None and self.claim._lease is not None:
            self.claim.release()
        self.claim = None

    def users(self):
        """Returns the processes of the lease on its GPUs, and their memory."""
        from gpuws._look import leases, status

        own = self.claim.lease
        found = {}
        for lease in leases().leases:
            for user in lease.users if lease.id == own else ():
                found[user.gpu_uuid, user.pid] = (user.name, user.memory_bytes or 0)
        if not self.terms.get("mem"):
            # Whole GPUs: a process that has left the tree is as much of a leak.
            uuids = {gpu.uuid for gpu in self.claim.gpus}
            for gpu in status().gpus:
                for user in gpu.processes if gpu.uuid in uuids else ():
                    found[gpu.uuid, user.pid] = (user.name, user.memory_bytes or 0)
        return found

    def left_since(self, before):
        """Returns what is on the GPUs that was not before, once processes had time to end."""
        import time

        end = time.monotonic() + 2.0
        while True:
            left = self._left(before)
            if not left or time.monotonic() >= end:
                return left
            _give_back()
            time.sleep(0.1)

    def _left(self, before):
        left = []
        for (uuid, pid), (name, memory) in sorted(self.users().items()):
            # A context stays until the process ends: the first test to make one is no leak.
            had = before.get((uuid, pid))
            index = next((gpu.index for gpu in self.claim.gpus if gpu.uuid == uuid), "?")
            if pid != os.getpid() and had is None:
                left.append(f"process {pid} {name} with {memory >> 20} MiB of GPU {index}")
            elif had is not None and memory > had[1]:
                more = (memory - had[1]) >> 20
                left.append(f"{more} MiB more of process {pid} {name} on GPU {index}")
        return left


def _give_back():
    """Returns cached memory of this process, so that only memory in use counts."""
    import gc
    import sys

    gc.collect()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        cuda.empty_cache()


_WORKER = pytest.StashKey[_Worker]()
_SIM = pytest.StashKey()
