"""A simulated machine for this process and its children."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuws import _gpuws
from gpuws._errors import GpuwsError
from gpuws._program import library

if TYPE_CHECKING:
    import ctypes
    from subprocess import Popen

    from typing_extensions import Self

    from gpuws._terms import Path

_active: Sim | None = None
_loaded: ctypes.CDLL | None = None


class Sim:
    """A simulated machine, for the block of a `with`.

    Users of NVML in this process (pynvml, gpustat, nvitop, Ray) and in child processes see it, and
    so do claims. Real processes represent its simulated processes. The simulated NVML stays loaded
    in this process after the end, and then has no driver.
    """

    __slots__ = ("_before", "_simulated", "machine")

    def __init__(self, machine: Path) -> None:
        self.machine = machine
        self._simulated: _gpuws.Simulated | None = None
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Starts the machine, as `with` does."""
        global _active
        if _active is not None:
            raise GpuwsError(f"failed to simulate {self.machine}: {_active.machine} is simulated")
        _refuse_real_nvml()
        simulated = _gpuws.simulate(os.fspath(self.machine), library())
        environment = dict(simulated.environment)
        names = [*environment, "CUDA_VISIBLE_DEVICES", "GPUWS_CLAIMS"]
        self._before = {name: os.environ.get(name) for name in names}
        # The devices of an outer scheduler or machine do not exist there.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.pop("GPUWS_CLAIMS", None)
        os.environ.update(environment)
        self._simulated = simulated
        _active = self
        _load()
        return self

    def stop(self) -> None:
        """Ends the machine, as the end of the block does; later calls have no effect."""
        global _active
        simulated, self._simulated = self._simulated, None
        if simulated is None:
            return
        _active = None
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _shut_down()
        simulated.close()

    @property
    def path(self) -> str | None:
        """The directory of the session; None while it does not run."""
        return None if self._simulated is None else os.fspath(self._simulated.path)

    def use(self, *gpus: int, mib: int = 500) -> Popen[bytes]:
        """Starts a process that uses `mib` of memory of each of these GPUs, by index; of those in
        CUDA_VISIBLE_DEVICES if none is named. Returns its Popen once its memory is in use."""
        import subprocess

        named = ",".join(str(gpu) for gpu in gpus) or "visible"
        # Each GPU is a separate use.
        uses = [f"{gpu}:{mib}" for gpu in named.split(",")]
        session = self.path
        if session is None:
            raise GpuwsError(f"failed to use a GPU of {self.machine}: it is not simulated now")
        command = [os.path.join(session, "nvml-sim-process")]
        for use in uses:
            command += ["--use", use]
        process = subprocess.Popen(command)
        _wait_for(process, session)
        return process


def sim(machine: Path = "labbox") -> Sim:
    """Simulates a machine, by its name or as a directory, for the block of a `with`.

    `gpuws sim --help` lists the machines.
    """
    return Sim(machine)


def _wait_for(process: Popen[bytes], session: str) -> None:
    import time

    registered = os.path.join(session, "walk-ons")
    while not any(name.startswith(f"{process.pid}-") for name in os.listdir(registered)):
        if process.poll() is not None:
            raise GpuwsError(f"failed to use a simulated GPU: exit code {process.returncode}")
        time.sleep(0.01)


def _load() -> None:
    """Loads the simulated NVML under the name that all other users of NVML load."""
    global _loaded
    if _loaded is None:
        import ctypes

        _loaded = ctypes.CDLL(library())


def _shut_down() -> None:
    """Ends the session of NVML in this process: code that never shuts it down would still see this
    machine in the next simulation."""
    for _ in range(1000):
        if _loaded is None or _loaded.nvmlShutdown() != 0:
            return


def _refuse_real_nvml() -> None:
    own = os.path.realpath(library())
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.split(None, 5)[-1].strip()
            if "libnvidia-ml.so" in path and os.path.realpath(path) != own:
                raise GpuwsError(
                    f"failed to simulate a machine: this process has loaded '{path}'",
                    hint="start the simulation before the first use of NVML",
                )
