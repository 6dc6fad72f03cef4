"""The stubs: they have what the modules have, and the fields of docs/schema."""

import subprocess
import sys
from pathlib import Path

import pytest

import gpuws

ROOT = Path(__file__).resolve().parents[2]


def test_types_of_records_are_those_of_the_schemas():
    check = [sys.executable, ROOT / "packaging" / "python" / "records.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# `__main__` runs at import, the classes of records exist only for type checkers, frameworks call the
# hooks of the callbacks, and nvidia-ml-py has no types.
UNTYPED = r"""
gpuws\.callbacks\..*\.on_.*
gpuws\.__main__\..*
gpuws\._gpuws\.__all__
gpuws\._records\..*
gpuws\.compat\.py3nvml\.py3nvml\..*
"""


def test_stubs_are_those_of_the_modules(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("pynvml")
    (tmp_path / "untyped").write_text(UNTYPED)
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n")
    command = [sys.executable, "-m", "mypy.stubtest", "gpuws", "--allowlist", "untyped"]
    command += ["--mypy-config-file", "mypy.ini", "--ignore-unused-allowlist"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# What docs/python.md shows. It is checked, not run.
PROGRAM = """
import asyncio
import io
import subprocess
from collections.abc import Callable

import gpuws
from gpuws.compat import GPUtil, gpustat, nvitop, py3nvml, release, safe_gpu

with gpuws.claim(2, mem="6GiB", gpu=[0, "2-3"], exclude="1", timeout=600, visible="index") as claim:
    index: int = claim.gpus[0].index
    environment: dict[str, str] = claim.environment
    lease: str | None = claim.lease if claim.is_held else None
    info: gpuws.Claimed | None = claim.info
held: gpuws.Claim = gpuws.hold(mem="6GiB")
held.release()
gpuws.release()

async def later() -> None:
    async with gpuws.aclaim(1, timeout=3) as claim:
        print(claim.gpus)

asyncio.run(later())

@gpuws.isolated(mem="6GiB", timeout=3600, wait_timeout=3, grace=1)
def words(count: int, *, base: int = 10) -> str:
    return str(count)

@gpuws.isolated
def nothing() -> None: ...

class Model:
    @gpuws.isolated(2)
    def evaluate(self, path: str) -> float:
        return 0.5

text: str = words(3, base=8)
report: gpuws.IsolatedReport = words.outcome(3).report
ended: tuple[int, ...] = report.ended_pids
nothing()
model = Model()
score: float = model.evaluate("a.pt")
bound: Callable[[str], float] = model.evaluate
score = Model.evaluate(model, "a.pt")
score = Model.evaluate.outcome(model, "a.pt").value

status: gpuws.Status = gpuws.status(details=True, sim="labbox", deadline=3)
for gpu in status.gpus:
    used: int | None = gpu.memory_used_bytes
    why: str = gpu.absent.memory_used_bytes
    why = gpu.processes[0].absent.memory_bytes
    if gpu.details is not None and gpu.details.clocks is not None:
        clock: int | None = gpu.details.clocks.sm_mhz
as_json: dict[str, object] = status.to_dict()
doctor: gpuws.Doctor = gpuws.doctor(samples=2, every=1)
commands: list[str] = [step.command for finding in doctor.findings for step in finding.next]
leases: gpuws.Leases = gpuws.leases()
waiting: int = len(leases.queue)
program: str = gpuws.find_gpuws_bin()
version: str = gpuws.__version__

try:
    held = gpuws.hold()
except (gpuws.NotAvailable, gpuws.NeverAvailable, gpuws.CudaInitialized, gpuws.InvalidRequest,
        gpuws.DriverError, gpuws.DriverTimeout, gpuws.NotPermitted, gpuws.Leaked,
        gpuws.GpuwsError) as error:
    kind: str = error.kind
    hint: str | None = error.hint
try:
    nothing()
except (gpuws.IsolatedTimeout, gpuws.IsolatedDied, gpuws.IsolatedError) as failed:
    left: gpuws.IsolatedReport | None = failed.report

try:
    print()
except RuntimeError as raised:
    told: gpuws.Explained = gpuws.mem.explain(raised, live=False)
    causes: list[str] = [event.diagnosis.cause for event in told.events]
    stats = told.events[0].stats
    in_use: int | None = None if stats is None else stats.InUse
fitted: gpuws.Fitted = gpuws.mem.fit("a.pickle", device_memory="80GiB", policy=["bfc"])
fits: bool | None = fitted.jobs[0].fits
variables: dict[str, str] = gpuws.mem.limit("6GiB", context=1 << 29, gpu=0)
returned: int = gpuws.notebook.free()

class Base: ...

callbacks: list[Base] = [gpuws.callbacks.LightningGpus(every=3), gpuws.callbacks.KerasGpus()]
figures: dict[str, float] = gpuws.callbacks.figures(status)

with gpuws.sim("labbox") as machine:
    process: subprocess.Popen[bytes] = machine.use(0, mib=700)
    path: str | None = machine.path

safe_gpu.claim_gpus(1, placeholder_fn=None)
safe_gpu.claim_gpus(placeholder_fn=safe_gpu.TensorflowPlaceholder())
owner = safe_gpu.GPUOwner(2, safe_gpu.pytorch_placeholder)
taken: list[int] = owner.devices_taken
owner.release_gpus()
names: list[str] = safe_gpu.get_free_gpus()
indexes: list[int] = GPUtil.getAvailable(order="memory", limit=2, excludeID=[0])
indexes = GPUtil.getFirstAvailable(attempts=2)
loads: list[float] = [each.load for each in GPUtil.getGPUs()]
GPUtil.showUtilization(all=True)
count: int = py3nvml.grab_gpus(2, gpu_select=[0, 1])
free: list[bool] = py3nvml.get_free_gpus()
py3nvml.py3nvml.nvmlInit()
indexes = nvitop.select_devices(max_count=2, min_free_memory="8GiB")
uuids: list[str] = nvitop.select_devices(format="uuid", max_count=1)
print([nvitop.Device(0), *nvitop.select_devices(format="device")])
gpustat.new_query().print_formatted(io.StringIO(), show_pid=True)
temperatures: list[int | None] = [each.temperature for each in gpustat.new_query()]
release()
"""

# The mistakes are on the lines after the first.
MISTAKES = """import gpuws
words("3")
model.evaluate(3)
Model.evaluate("a.pt")
gpuws.status().gpus[0].memry
number: int = gpu.absent.memory_used_bytes
gpuws.claim(visible="name")
GPUtil.getAvailable(limit="2")
"""


def errors_of(text, tmp_path):
    """Returns the lines on which mypy finds an error, and what it prints."""
    (tmp_path / "program.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    return list(dict.fromkeys(int(line.split(":")[1]) for line in found)), done.stdout + done.stderr


def test_type_checker_accepts_what_the_manual_shows(tmp_path):
    pytest.importorskip("mypy")
    listed = [*gpuws.__all__, *gpuws.compat.__all__, *gpuws.mem.__all__, *gpuws.notebook.__all__]
    assert [name for name in [*listed, *gpuws.callbacks.__all__] if name not in PROGRAM] == []
    assert errors_of(PROGRAM, tmp_path)[0] == []


def test_type_checker_finds_mistakes(tmp_path):
    pytest.importorskip("mypy")
    first = PROGRAM.count("\n") + 2
    found, told = errors_of(PROGRAM + MISTAKES, tmp_path)
    assert found == [*range(first, first + 7)], told
