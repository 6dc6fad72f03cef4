"""The interfaces of other packages: same signatures, same values, and claims underneath."""

import importlib
import inspect
import io
import json
import logging
import os
import sys

import pytest

import gpuws
from gpuws import compat
from observed import another_holder


@pytest.fixture
def clean(machine):
    """A simulated machine; what was claimed on it is released."""
    yield machine
    compat.release()
    compat.safe_gpu.release_gpus()


def signature(function):
    """Returns names, kinds and defaults of the parameters; a default object by its class."""

    def default(value):
        plain = (int, float, str, bool, type(None), list, type(inspect.Parameter.empty))
        return value if isinstance(value, plain) else type(value).__name__

    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, default(each.default)) for each in parameters]


def original(name):
    return pytest.importorskip(name, exc_type=ImportError)


def safe_gpu_of(version, monkeypatch):
    """Imports the real safe_gpu of a version, or skips."""
    place = os.path.join(os.environ.get("GPUWS_SAFE_GPU", ""), f"safe-gpu-{version}")
    if not os.path.isdir(os.path.join(place, "safe_gpu")):
        pytest.skip(f"safe-gpu {version} is not installed")
    for name in [name for name in sys.modules if name.partition(".")[0] == "safe_gpu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(place)
    return importlib.import_module("safe_gpu.safe_gpu")


def test_signatures_are_those_of_safe_gpu(monkeypatch):
    real = safe_gpu_of("2.0.0", monkeypatch)
    ours = compat.safe_gpu
    for name in ["claim_gpus", "release_gpus", "GPUOwner", "get_free_gpus"]:
        assert signature(getattr(ours, name)) == signature(getattr(real, name)), name
    for name in ["PytorchPlaceholder", "TensorflowPlaceholder", "PyCudaPlaceholder"]:
        for method in ["__init__", "__call__", "release"]:
            of = [getattr(getattr(each, name), method) for each in (ours, real)]
            assert signature(of[0]) == signature(of[1]), (name, method)
    for name in ["allocate_gpus", "release_gpus"]:
        of = [getattr(each.GPUOwner, name) for each in (ours, real)]
        assert signature(of[0]) == signature(of[1]), name


def test_placeholders_are_those_of_safe_gpu_1_5(monkeypatch):
    real = safe_gpu_of("1.5.1", monkeypatch)
    for name in ["pytorch_placeholder", "tensorflow_placeholder"]:
        of = [getattr(each, name) for each in (compat.safe_gpu, real)]
        assert signature(of[0]) == signature(of[1]), name


def test_signatures_are_those_of_the_others():
    gputil = original("GPUtil")
    for name in ["getAvailable", "getFirstAvailable", "getGPUs", "showUtilization", "GPU"]:
        assert signature(getattr(compat.GPUtil, name)) == signature(getattr(gputil, name)), name
    assert signature(compat.GPUtil.getAvailability) == signature(gputil.getAvailability)
    py3nvml = original("py3nvml")
    for name in ["grab_gpus", "get_free_gpus", "get_num_procs"]:
        assert signature(getattr(compat.py3nvml, name)) == signature(getattr(py3nvml, name)), name
    nvitop = original("nvitop")
    assert signature(compat.nvitop.select_devices) == signature(nvitop.select_devices)
    assert compat.nvitop.Device is nvitop.Device
    gpustat = original("gpustat")
    ours, theirs = compat.gpustat.GPUStatCollection, gpustat.GPUStatCollection
    for name in ["new_query", "jsonify"]:
        assert signature(getattr(ours, name)) == signature(getattr(theirs, name)), name
    names = [name for name, *_ in signature(theirs.print_formatted)]
    assert [name for name, *_ in signature(ours.print_formatted)] == names
    properties = [n for n, v in vars(gpustat.GPUStat).items() if isinstance(v, property)]
    assert set(properties) <= set(dir(compat.gpustat.GPUStat))


README_OF_SAFE_GPU = """
from gpuws.compat import safe_gpu

safe_gpu.claim_gpus()
"""


def test_example_of_safe_gpu_claims(clean):
    exec(README_OF_SAFE_GPU, {})
    assert [int(each) for each in os.environ["CUDA_VISIBLE_DEVICES"].split(",")] == [
        gpu.index for gpu in gpuws.leases().leases[0].gpus
    ]
    compat.safe_gpu.release_gpus()
    assert gpuws.leases().leases == ()
    placed = []
    with another_holder(2):
        gpu_owner = compat.safe_gpu.safe_gpu.GPUOwner(2, placeholder_fn=placed.append)
        assert placed == [0, 1] and len(gpu_owner.devices_taken) == 2
        with pytest.raises(RuntimeError, match=r"Required 1 GPUs, only found these free: \[\]"):
            compat.safe_gpu.claim_gpus(placeholder_fn=None)
    del gpu_owner
    assert gpuws.leases().leases == () and "CUDA_VISIBLE_DEVICES" not in os.environ


def test_each_phase_of_safe_gpu_goes_to_the_logger(clean, caplog):
    phases = lambda: [record.getMessage() for record in caplog.records if record.name == "job"]
    logger = logging.getLogger("job")
    caplog.set_level(logging.INFO, "job")

    class Placeholder:
        def __call__(self, device_no):
            logger.info(f"placeholder {device_no}")

        def release(self, placeholder):
            pass

    compat.safe_gpu.claim_gpus(2, Placeholder(), logger)
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    locked = ["acquiring lock", "lock acquired"]
    chosen = [f"Set CUDA_VISIBLE_DEVICES={visible}", "placeholder 0", "placeholder 1"]
    assert phases() == [*locked, *chosen, "lock released"]
    caplog.clear()
    compat.safe_gpu.release_gpus()
    assert phases() == [f"Releasing placeholder on CUDA device: {n}" for n in visible.split(",")]
    caplog.clear()
    with pytest.raises(RuntimeError, match="Required 5 GPUs"):
        compat.safe_gpu.claim_gpus(5, Placeholder(), logger)
    assert phases() == [*locked, "lock released"]
    caplog.clear()

    def fails(device_no):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        compat.safe_gpu.claim_gpus(1, fails, logger)
    assert phases()[-1] == "lock released" and phases()[-2].startswith("no placeholder: ")


README_OF_GPUTIL = """
from gpuws.compat import GPUtil
deviceIDs = GPUtil.getAvailable(order = 'first', limit = 1, maxLoad = 0.5, maxMemory = 0.5,
    includeNan=False, excludeID=[], excludeUUID=[])
DEVICE_ID_LIST = GPUtil.getFirstAvailable()
DEVICE_ID = DEVICE_ID_LIST[0] # grab first element from list
import os
os.environ["CUDA_DEVICE_ORDER"]="PCI_BUS_ID"
os.environ["CUDA_VISIBLE_DEVICES"] = str(DEVICE_ID)
GPUtil.showUtilization()
GPUtil.showUtilization(all=True)
"""


def test_example_of_gputil_claims_what_it_returns(clean, capsys):
    scope = {}
    exec(README_OF_GPUTIL, scope)
    assert scope["DEVICE_ID_LIST"] == [0]
    assert [gpu.index for lease in gpuws.leases().leases for gpu in lease.gpus] == [0]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["|", "ID", "|", "GPU", "|", "MEM", "|"] and len(shown) == 12
    os.environ.pop("CUDA_VISIBLE_DEVICES")
    compat.release()
    with another_holder(2):
        # What others have claimed is not available, whatever its load.
        found = compat.GPUtil.getAvailable(limit=4)
        assert len(found) == 2
        with pytest.raises(RuntimeError, match="Could not find an available GPU after 2 attempts"):
            compat.GPUtil.getFirstAvailable(excludeID=found, attempts=2, interval=0)


def test_gputil_shows_the_values_of_the_machine(clean):
    process = clean.use(2, mib=24000)
    gpus = compat.GPUtil.getGPUs()
    assert [gpu.memoryUsed for gpu in gpus][2] >= 24000
    assert compat.GPUtil.getAvailable(order="memory", limit=9, maxMemory=0.4) != []
    assert 2 not in compat.GPUtil.getAvailable(limit=9, maxMemory=0.4)
    assert all(gpu.memoryFree + gpu.memoryUsed == gpu.memoryTotal for gpu in gpus)
    process.kill()
    process.wait()


@pytest.mark.parametrize("given", ["0,1", "1"])
def test_gputil_and_nvitop_stay_within_the_outer_list(clean, given):
    mine = [int(each) for each in given.split(",")]
    for take in [
        lambda: compat.GPUtil.getAvailable(limit=4),
        lambda: sorted(compat.nvitop.select_devices()),
    ]:
        os.environ["CUDA_VISIBLE_DEVICES"] = given
        assert take() == mine
        # A caller that has selected one of them asks again.
        os.environ["CUDA_VISIBLE_DEVICES"] = str(mine[0])
        assert take() == mine
        compat.release()


def test_gpu_stays_claimed_when_another_is_asked_for(clean):
    assert compat.GPUtil.getAvailable() == [0]
    assert compat.GPUtil.getAvailable(excludeID=[0]) == [1]
    assert compat.nvitop.select_devices(max_count=1) != []
    held = [gpu.index for lease in gpuws.leases().leases for gpu in lease.gpus]
    assert {0, 1} <= set(held)


def test_py3nvml_refuses_after_the_first_use_of_cuda(clean):
    descriptor = os.open(os.path.join(clean.path, "dev", "nvidia-uvm"), os.O_RDWR)
    try:
        with pytest.raises(gpuws.CudaInitialized):
            compat.py3nvml.grab_gpus(1)
        assert gpuws.leases().leases == () and "CUDA_VISIBLE_DEVICES" not in os.environ
    finally:
        os.close(descriptor)


def test_gputil_prints_the_columns_that_a_caller_describes(clean, capsys):
    column = {"attr": "memoryTotal", "name": "GiB", "suffix": "G", "precision": 1}
    column["transform"] = lambda mib: mib / 1024
    compat.GPUtil.showUtilization(attrList=[[{"attr": "id", "name": "ID"}, column]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| ID | GiB   |" and lines[2] == "|  0 | 48.0G |", lines


README_OF_PY3NVML = """
from gpuws.compat import py3nvml
import os
py3nvml.grab_gpus(3)
"""


def test_example_of_py3nvml_claims(clean):
    exec(README_OF_PY3NVML, {})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert sum(len(lease.gpus) for lease in gpuws.leases().leases) == 3
    assert compat.py3nvml.get_free_gpus() == [True] * 4
    with pytest.raises(ValueError, match="env_set_ok"):
        compat.py3nvml.grab_gpus(1)
    os.environ.pop("CUDA_VISIBLE_DEVICES")
    compat.release()
    with another_holder(3):
        with pytest.warns(RuntimeWarning, match="claimed 1 of 2"):
            assert compat.py3nvml.grab_gpus(2) == 1
        assert compat.py3nvml.get_free_gpus().count(True) == 1
        compat.release()
        with pytest.warns(RuntimeWarning, match="could not claim"):
            taken = [gpu.index for gpu in gpuws.leases().leases[0].gpus]
            assert compat.py3nvml.grab_gpus(1, gpu_select=taken, env_set_ok=True) == 0
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert compat.py3nvml.grab_gpus(0, env_set_ok=True) == 0
    pytest.importorskip("pynvml")
    compat.py3nvml.py3nvml.nvmlInit()
    assert compat.py3nvml.py3nvml.nvmlDeviceGetCount() == 4
    compat.py3nvml.py3nvml.nvmlShutdown()


README_OF_NVITOP = """
import os
from gpuws.compat.nvitop import select_devices
os.environ['CUDA_VISIBLE_DEVICES'] = ','.join(
    select_devices(format='uuid', min_count=4, min_free_memory='8GiB')
)
"""


def test_example_of_nvitop_claims(clean):
    exec(README_OF_NVITOP, {})
    assert len(os.environ.pop("CUDA_VISIBLE_DEVICES").split(",")) == 4
    assert sum(len(lease.gpus) for lease in gpuws.leases().leases) == 4
    compat.release()
    assert compat.nvitop.select_devices(max_count=0) == []


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"min_free_memory": "30GiB"},
        {"max_count": 2},
        {"sort": False},
        {"max_gpu_utilization": 50, "tolerance": 10},
        {"min_total_memory": 40 << 30, "format": "uuid"},
    ],
)
def test_select_devices_selects_as_nvitop_does(clean, run, terms):
    original("nvitop")
    process = clean.use(1, mib=20000)
    # nvitop looks at one machine in the life of a process.
    text = f"import json, nvitop\nprint(json.dumps(nvitop.select_devices(**{terms!r})))"
    assert compat.nvitop.select_devices(**terms) == json.loads(run(text).stdout)
    process.kill()
    process.wait()


def test_gpustat_shows_what_gpustat_shows(clean):
    gpustat = original("gpustat")
    process = clean.use(1, mib=700)
    ours, theirs = compat.gpustat.new_query(), gpustat.new_query()
    assert len(ours) == compat.gpustat.gpu_count() == 4 and compat.gpustat.is_available()
    for mine, other in zip(ours, theirs):
        for name in ["index", "uuid", "name", "memory_total", "memory_used", "memory_free"]:
            assert getattr(mine, name) == getattr(other, name), name
        for name in ["temperature", "utilization", "power_draw", "power_limit", "fan_speed"]:
            assert getattr(mine, name) == getattr(other, name), name
        pids = [{each["pid"] for each in gpu.processes} for gpu in (mine, other)]
        assert pids[0] == pids[1]
        assert set(other.keys()) <= set(mine.keys())
    shown = [io.StringIO(), io.StringIO()]
    for collection, out in zip((ours, theirs), shown):
        collection.print_formatted(out, no_color=True, show_pid=True, show_power=True)
    lines = [out.getvalue().splitlines()[1:] for out in shown]
    assert lines[0] == lines[1]
    out = io.StringIO()
    ours[1].print_to(out, show_pid=True, show_power=True)
    assert out.getvalue().splitlines() == [lines[0][1]]
    assert compat.gpustat.__version__ == gpustat.__version__
    out = io.StringIO()
    ours.print_json(out)
    assert set(json.loads(out.getvalue())) == {"hostname", "driver_version", "query_time", "gpus"}
    assert [gpu.index for gpu in compat.gpustat.GPUStatCollection.new_query(id="0,2")] == [0, 2]
    process.kill()
    process.wait()


def test_without_a_driver_each_says_so(monkeypatch):
    if gpuws.status().driver_error is None:
        pytest.skip("this machine has a driver")
    assert compat.GPUtil.getGPUs() == [] and not compat.gpustat.is_available()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.warns(RuntimeWarning, match="driver"):
        assert compat.py3nvml.grab_gpus(1) == 0
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(compat.safe_gpu.NvidiasmiError, match="driver"):
        compat.safe_gpu.claim_gpus()
