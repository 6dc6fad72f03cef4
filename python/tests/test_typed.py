"""The types of the package: the checkers accept its sources, every public name and the examples of
the manual, and find mistakes."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuws

ROOT = Path(__file__).resolve().parents[2]
# The oldest that pyproject.toml supports.
OLDEST = re.search(r">=(3\.\d+)", (ROOT / "pyproject.toml").read_text())[1]


def test_types_of_records_are_those_of_the_schemas():
    check = [sys.executable, ROOT / "packaging" / "python" / "records.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_stub_is_that_of_the_extension(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "untyped").write_text(r"gpuws\._gpuws\.__all__")
    command = [sys.executable, "-m", "mypy.stubtest", "gpuws._gpuws", "--allowlist", "untyped"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def why_no_pyright():
    """Returns why pyright does not run here: its package needs Node.js, or downloads it."""
    command = [sys.executable, "-m", "pyright", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else None


def mypy(*checked):
    pytest.importorskip("mypy")
    return ["mypy", "--strict", "--no-incremental", "--python-version", OLDEST, *checked]


def pyright(*checked):
    pytest.importorskip("pyright")
    if why_no_pyright() is not None:
        pytest.skip(f"pyright is not available: {why_no_pyright()}")
    return ["pyright", "--pythonpath", sys.executable, "--pythonversion", OLDEST, *checked]


@pytest.fixture(params=[mypy, pyright])
def errors_of(request, tmp_path):
    """Returns the lines of programs on which a type checker finds errors, and what it prints."""

    def errors_of(*programs):
        names = [f"program{number}.py" for number in range(len(programs))]
        for name, text in zip(names, programs):
            (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", *request.param(*names)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        said = done.stdout + done.stderr
        found = re.findall(r"program\d+\.py:(\d+):(?:\d+ -)? error:", done.stdout)
        assert bool(found) == bool(done.returncode), said
        return list(dict.fromkeys(map(int, found))), said

    return errors_of


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_sources_have_correct_types(checker, tmp_path):
    package = Path(gpuws.__file__).parent
    command = checker("-p", "gpuws") if checker is mypy else checker(package)
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    stubs = [path.relative_to(package).as_posix() for path in package.rglob("*.pyi")]
    assert sorted(stubs) == ["_gpuws.pyi", "_records.pyi", "compat/py3nvml/py3nvml.pyi"]


# What the examples of the manual take from their reader.
GIVEN = """import gpuws
import pytest

def train() -> None: ...
def accuracy(path: str) -> float:
    return 0.5
"""


def test_examples_have_correct_types(errors_of):
    pages = [(ROOT / page).read_text() for page in ("docs/python.md", "crates/python/README.md")]
    fenced = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
    examples = [GIVEN + example for page in pages for example in fenced.findall(page)]
    assert len(examples) == sum(page.count("```") for page in pages) // 2
    found, said = errors_of(*examples)
    assert found == [], said


# Every public name, used correctly. It is checked, not run.
PROGRAM = """
import asyncio
import io
import subprocess
from collections.abc import Callable
from datetime import datetime

import gpuws
from gpuws.compat import GPUtil, gpustat, nvitop, py3nvml, release, safe_gpu
from typing_extensions import Unpack

with gpuws.claim(2, mem="6GiB", gpu=[0, "2-3"], exclude="1", timeout=600, visible="index") as claim:
    index: int = claim.gpus[0].index
    environment: dict[str, str] = claim.environment
    lease: str | None = claim.lease if claim.is_held else None
    info: gpuws.Claimed | None = claim.info
def narrowed(n: int, **terms: Unpack[gpuws.ClaimTerms]) -> gpuws.Claim:
    return gpuws.claim(n, **terms)

claim = narrowed(2, with_=[1, "GPU-5"], capability=(8, 0))

held: gpuws.Claim = gpuws.hold(mem="6GiB", mig=True, capability="8.0", topology=True, with_=0)
held.release()
gpuws.release()

async def later() -> None:
    async with gpuws.aclaim(1, timeout=3) as claim:
        print(claim.gpus)

asyncio.run(later())

@gpuws.isolated(mem="6GiB", timeout=3600, wait_timeout=3, grace=1, mig=True)
def words(count: int, *, base: int = 10) -> str:
    return str(count)

@gpuws.isolated
def nothing() -> None: ...

class Model:
    @gpuws.isolated(2)
    def evaluate(self, path: str) -> float:
        return 0.5

text: str = words(3, base=8)
outcome: gpuws.Outcome[str] = words.outcome(3)
report: gpuws.IsolatedReport = outcome.report
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
seen: list[int] = [gpu.index for gpu in gpuws.visible_gpus(sim="labbox")]
as_json: dict[str, object] = status.to_dict()
doctor: gpuws.Doctor = gpuws.doctor(samples=2, every=1)
commands: list[str] = [step.command for finding in doctor.findings for step in finding.next]
leases: gpuws.Leases = gpuws.leases()
waiting: int = len(leases.queue)
plan: gpuws.Reap = gpuws.reap(gpu=[0, "2-3"], user=["ada", 1000], protect="user:root")
pids: list[int] = [target.pid for target in plan.targets]
done: gpuws.Reap = gpuws.reap(pid=pids, yes=True, grace=30, scope="container", sim="labbox")
freed: bool = done.report is not None and done.report.complete
history: gpuws.Report = gpuws.report("history", since=datetime(2026, 11, 24), until="-5m", step=60)
hours: list[float] = [user.used_ms / 3.6e6 for user in history.users]
gap_ends: list[str] = [gap.from_ for gap in history.gaps]
model_: gpuws.PlacedModel = gpuws.place.model("Llama", context="8k", memory=["24GiB", 1 << 34])
layers: list[str | None] = [layer.room for layer in model_.layers]
placed: gpuws.PlacedGraph = gpuws.place.graph("a.pb", devices=["/gpu:0"], hard=True)
scheduled: gpuws.ScheduledGraph = gpuws.place.schedule("a.pb", replicas=2, batch=64)
ran: gpuws.RanGraph = gpuws.place.run("a.pb", fetch="c:0", memory="1GiB", deadline=3)
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
    remote: bool = isinstance(failed.__cause__, gpuws.RemoteTraceback)

try:
    print()
except RuntimeError as raised:
    reported: gpuws.Explained = gpuws.mem.explain(raised, live=False)
    causes: list[str] = [event.diagnosis.cause for event in reported.events]
    stats = reported.events[0].stats
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
gpuws.hold(memory="6GiB")
gpuws.aclaim(1, timeout="3")
gpuws.isolated(mem="6GiB", mig="yes")
gpuws.claim(capability=8.0)
gpuws.reap(pid="17", yes=True)
gpuws.reap(scope="job")
gpuws.place.graph("a.pb", replica=2)
gpuws.reports
GPUtil.getAvailable(limit="2")
"""


def test_program_has_every_public_name():
    modules = [gpuws, gpuws.compat, gpuws.mem, gpuws.notebook, gpuws.callbacks, gpuws.place]
    listed = [name for module in modules for name in module.__all__]
    assert [name for name in listed if name not in PROGRAM] == []


def test_type_checker_finds_the_mistakes_alone(errors_of):
    first = PROGRAM.count("\n") + 2
    found, reported = errors_of(PROGRAM + MISTAKES)
    assert found == [*range(first, first + MISTAKES.count("\n") - 1)], reported
