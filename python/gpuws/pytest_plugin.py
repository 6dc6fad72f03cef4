"""The pytest plugin: GPUs for tests, a lease for each worker of pytest-xdist.

With `gpuws = true` in the configuration of pytest, or an option of this plugin, a test that has the
fixture `gpu` or the mark `gpu(n=…, mem=…)` runs on claimed GPUs, within the CUDA_VISIBLE_DEVICES
that pytest was started with; other suites may have a fixture and a mark of this name. A worker
keeps its lease until it ends, because CUDA reads the list of GPUs only once in a process.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpuws._claim import Claim
    from gpuws._errors import GpuwsError
    from gpuws._sim import Sim

_MARK = "gpu(n=1, mem=None, **terms): runs on claimed GPUs; the arguments are those of gpuws.claim"
# The memory of each process on each GPU, by UUID and PID, with its name.
_Users = dict[tuple[str | None, int], tuple[str | None, int]]
_OPTIONS = ("gpuws_sim", "gpuws_timeout", "gpuws_no_leak", "gpuws_require")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("gpuws", "claim GPUs for tests with the fixture or the mark gpu", type="bool")
    group = parser.getgroup("gpuws", "GPUs (gpuws); each option claims as the setting gpuws does")
    group.addoption(
        "--gpuws-sim", metavar="NAME", help="simulate a machine, such as labbox, for all tests"
    )
    group.addoption(
        "--gpuws-timeout",
        metavar="SECONDS",
        type=float,
        help="the time to wait for GPUs (default: 600)",
    )
    group.addoption(
        "--gpuws-no-leak",
        action="store_const",
        const=True,
        help="fail a test that leaves GPU memory or processes on the GPUs behind",
    )
    group.addoption(
        "--gpuws-require",
        action="store_const",
        const=True,
        help="fail tests, instead of skipping them, where there are too few GPUs",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_given = any(config.getoption(name) is not None for name in _OPTIONS)
    if is_given or config.getini("gpuws"):
        config.addinivalue_line("markers", _MARK)
        config.pluginmanager.register(_Worker(config), "gpuws-worker")


class _Worker:
    """A process that runs tests, with its lease."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.claim: Claim | None = None
        self.terms: dict[str, Any] = {}
        # The claims that failed, and why: the next test does not wait for them again.
        self.failures: dict[str, GpuwsError] = {}
        self.sim: Sim | None = None
        name = config.getoption("gpuws_sim")
        # The workers inherit the environment of the controller, and with it its simulation.
        if name is not None and not self._is_of_xdist():
            from gpuws._sim import sim

            self.sim = sim(name).start()

    def _is_of_xdist(self) -> bool:
        return hasattr(self.config, "workerinput")

    def pytest_unconfigure(self) -> None:
        self.release()
        if self.sim is not None:
            self.sim.stop()

    def pytest_report_header(self) -> str | None:
        name = self.config.getoption("gpuws_sim")
        return None if name is None else f"gpuws: simulated machine {name}"

    @pytest.fixture
    def gpu(self, request: pytest.FixtureRequest) -> Claim:
        """The claimed GPUs of this test: a `gpuws.Claim`."""
        return self.claim_for(request.node)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # pytest has evaluated the marks that skip a test, and not yet set up its fixtures.
        if _has_gpus(item):
            self.claim_for(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        claim = self.claim if self.config.getoption("gpuws_no_leak") else None
        if claim is None or not _has_gpus(item):
            return (yield)
        before = self.users(claim)
        result = yield
        left = self.left_since(claim, before)
        if left:
            from gpuws._errors import Leaked

            raise Leaked("the test has left behind on its GPUs: " + "; ".join(left))
        return result

    def claim_for(self, item: pytest.Item) -> Claim:
        """Returns the claim with the GPUs that a test requests, or skips the test."""
        mark = item.get_closest_marker("gpu")
        terms = dict(mark.kwargs) if mark is not None else {}
        if mark is not None and mark.args:
            terms["n"] = mark.args[0]
        terms.setdefault("n", 1)
        if self.claim is not None and self._serves(terms):
            return self.claim
        from gpuws import _claim
        from gpuws._errors import DriverError, NeverAvailable, NotAvailable

        timeout = self.config.getoption("gpuws_timeout")
        wait = {"timeout": 600.0 if timeout is None else timeout, "quiet": True}
        claim = _claim.claim(**{**wait, **terms})
        if repr(terms) not in self.failures:
            # The lease stays with the context of CUDA that uses it.
            _claim.refuse_if_initialized()
            self.release()
            try:
                claim.__enter__()
                self.claim, self.terms = claim, terms
                return claim
            except (DriverError, NeverAvailable, NotAvailable) as error:
                self.failures[repr(terms)] = error
        failure = self.failures[repr(terms)]
        text = str(failure).splitlines()[0]
        siblings = self._siblings() if isinstance(failure, NotAvailable) else 0
        if siblings:
            text += f"; {siblings} other workers of pytest-xdist keep GPUs: use at most -n {siblings}"
            pytest.fail(text, pytrace=False)
        if self.config.getoption("gpuws_require"):
            raise failure
        pytest.skip(text)

    def _siblings(self) -> int:
        """Returns how many other workers of the same pytest have a lease."""
        from gpuws._look import leases

        if not self._is_of_xdist():
            return 0
        return sum(_parent(lease.pid) == os.getppid() for lease in leases().leases)

    def _serves(self, terms: dict[str, Any]) -> bool:
        """Whether the lease of this worker is enough for these terms."""
        if self.claim is None or not self.claim.is_held:
            return False
        rest, own = dict(terms), dict(self.terms)
        enough: bool = rest.pop("n") <= own.pop("n")
        return enough and rest == own

    def release(self) -> None:
        if self.claim is not None:
            self.claim.release()
        self.claim = None

    def users(self, claim: Claim) -> _Users:
        """Returns the processes of the lease on its GPUs, and their memory."""
        from gpuws._look import leases, status

        found: _Users = {}
        for lease in leases().leases:
            for user in lease.users if lease.id == claim.lease else ():
                found[user.gpu_uuid, user.pid] = (user.name, user.memory_bytes or 0)
        if not self.terms.get("mem"):
            # Whole GPUs: a process that has left the tree is as much of a leak.
            uuids = {gpu.uuid for gpu in claim.gpus}
            for gpu in status().gpus:
                for process in gpu.processes if gpu.uuid in uuids else ():
                    found[gpu.uuid, process.pid] = (process.name, process.memory_bytes or 0)
        return found

    def left_since(self, claim: Claim, before: _Users) -> list[str]:
        """Returns new processes and memory on the GPUs, after processes had time to end."""
        import time

        end = time.monotonic() + 2.0
        while True:
            left = self._left(claim, before)
            if not left or time.monotonic() >= end:
                return left
            _give_back()
            time.sleep(0.1)

    def _left(self, claim: Claim, before: _Users) -> list[str]:
        left = []
        for (uuid, pid), (name, memory) in sorted(self.users(claim).items()):
            # A context stays until the process ends, so the first test to create one does not leak.
            had = before.get((uuid, pid))
            index = next((gpu.index for gpu in claim.gpus if gpu.uuid == uuid), "?")
            if pid != os.getpid() and had is None:
                left.append(f"process {pid} {name} with {memory >> 20} MiB of GPU {index}")
            elif had is not None and memory > had[1]:
                more = (memory - had[1]) >> 20
                left.append(f"{more} MiB more of process {pid} {name} on GPU {index}")
        return left


def _has_gpus(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return item.get_closest_marker("gpu") is not None or "gpu" in names


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _give_back() -> None:
    """Returns cached memory of this process, so that only memory in use counts."""
    import gc
    import sys

    gc.collect()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        cuda.empty_cache()

