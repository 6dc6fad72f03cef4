"""Memory: explanations, needs and limits."""

import json
import os
import subprocess
import sys
import types
import venv

import pytest

import gpuws
from observed import OUT_OF_MEMORY


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


OutOfMemoryError.__module__ = "torch"


def caught(error, cause=None):
    try:
        raise error from cause
    except Exception as raised:
        return raised


def test_caught_exception_is_explained_with_the_machine():
    reported = gpuws.mem.explain(caught(OutOfMemoryError(OUT_OF_MEMORY)), sim="labbox")
    (event,) = reported.events
    assert (event.framework, event.diagnosis.cause) == ("pytorch", "too-big")
    assert reported.looked_at.machine == "labbox"
    assert "too big" in str(reported) and "try gpuws run --mem" in str(reported)


def test_cause_of_an_exception_is_explained():
    error = caught(ValueError("the step failed"), caught(OutOfMemoryError(OUT_OF_MEMORY)))
    assert len(gpuws.mem.explain(error, live=False).events) == 1


def test_other_exception_has_no_events():
    reported = gpuws.mem.explain(caught(ValueError("\udcff odd")), live=False)
    assert reported.events == () and "no out-of-memory message" in str(reported)


def test_fit_says_what_a_recording_needs(tmp_path):
    lines = ['{"schema":1,"kind":"memory-trace"}', '{"device":{"device":0}}']
    for address in (1 << 30, 5 << 30):
        event = {"action": "alloc", "device": 0, "address": address, "size_bytes": 3 << 30}
        lines.append(json.dumps({"event": event}))
    path = tmp_path / "job.jsonl"
    path.write_text("\n".join(lines))
    (job,) = gpuws.mem.fit(path).jobs
    assert job.file == str(path) and job.live_bytes == 6 << 30 and job.fits is None
    fits = [gpuws.mem.fit([path], device_memory=size).jobs[0].fits for size in ("5GiB", "9GiB")]
    assert fits == [False, True]
    (least,) = gpuws.mem.fit(path, policy="direct").jobs[0].policies
    assert least.policy == "cudaMalloc" and least.least_bytes >= 6 << 30


def test_fit_of_no_recording_is_invalid(tmp_path):
    with pytest.raises(gpuws.InvalidRequest) as raised:
        gpuws.mem.fit(tmp_path / "missing")
    assert "missing" in str(raised.value)
    with pytest.raises(gpuws.InvalidRequest):
        gpuws.mem.fit(__file__)


@pytest.fixture
def python_of(tmp_path):
    """Makes a virtual environment that has the metadata of packages."""

    def make(name, *packages):
        root = tmp_path / name
        venv.create(root, with_pip=False, symlinks=True)
        (site,) = root.glob("lib/python3.*/site-packages")
        for package in packages:
            (site / f"{package}.dist-info").mkdir()
        (site / "ours.pth").write_text(os.path.dirname(os.path.dirname(gpuws.__file__)))
        return root

    return make


LIMITS = """
import os, sys, warnings, gpuws
with warnings.catch_warnings(record=True) as reported:
    warnings.simplefilter("always")
    with gpuws.sim("rtx8000-x4"):
        print(*gpuws.mem.limit("6GiB"), sep=",")
print(*[each.message for each in reported])
"""


def test_limit_is_for_the_frameworks_of_this_python(python_of):
    has, lacks = python_of("has", "torch-2.10.0"), python_of("lacks")
    said = []
    for own, active in [(has, lacks), (lacks, has)]:
        environment = {**os.environ, "VIRTUAL_ENV": str(active), "CONDA_PREFIX": str(active)}
        command = [own / "bin" / "python", "-c", LIMITS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert "PYTORCH" in said[0][0] and said[0][1] == ""
    assert said[1][0] == "" and "nothing limits the GPU memory" in said[1][1]


@pytest.mark.filterwarnings("ignore:nothing limits")
def test_limit_sets_the_variables_of_frameworks(machine, monkeypatch):
    before = dict(os.environ)
    variables = gpuws.mem.limit("6GiB")
    assert all(os.environ[name] == value for name, value in variables.items())
    for name in variables:
        monkeypatch.delenv(name)
    assert {n: v for n, v in before.items() if n not in variables}.items() <= os.environ.items()
    with pytest.raises(gpuws.InvalidRequest, match="limit"):
        gpuws.mem.limit("100MiB")
    cuda = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with pytest.raises(gpuws.CudaInitialized):
        gpuws.mem.limit("6GiB")
