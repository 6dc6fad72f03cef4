"""Views equal what the program prints."""

import json
import pickle
import subprocess
import sys

import pytest

import gpuws

MACHINES = ["labbox", "p100-ghost", "hgx-h100-x8", "no-driver"]


def printed(*words):
    done = subprocess.run([gpuws.find_gpuws_bin(), *words, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def known(machine):
    listed = subprocess.run(
        [gpuws.find_gpuws_bin(), "status", "--sim", "no such machine"],
        capture_output=True,
        text=True,
    ).stderr
    return machine in listed


@pytest.mark.parametrize("machine", MACHINES)
def test_views_equal_the_json_of_the_program(machine):
    if not known(machine):
        pytest.skip(f"no machine {machine} is shipped")
    assert gpuws.status(sim=machine).to_dict() == printed("status", "--sim", machine)
    details = gpuws.status(sim=machine, details=True)
    assert details.to_dict() == printed("status", "--details", "--sim", machine)
    assert gpuws.doctor(sim=machine).to_dict() == printed("doctor", "--sim", machine)
    assert gpuws.leases(sim=machine).to_dict() == printed("leases", "--sim", machine)


def test_visible_gpus_are_those_of_the_variable(monkeypatch):
    def visible(value, sim="labbox"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        return [gpu.index for gpu in gpuws.visible_gpus(sim=sim)]

    # The plugin may have hidden the GPUs, as this test requests none.
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu.index for gpu in gpuws.visible_gpus(sim="labbox")] == [0, 1, 2, 3]
    assert visible("2,0") == [2, 0]
    assert visible(gpuws.status(sim="labbox").gpus[3].uuid) == [3]
    assert visible("") == [] and visible("0,9,1") == [0]
    with pytest.raises(gpuws.DriverError):
        visible("0", sim="no-driver")


def test_equal_records_have_equal_hashes():
    data = gpuws.status(sim="labbox").to_dict()
    turned = {name: data[name] for name in reversed(data)}
    a, b = type(gpuws.status(sim="labbox"))(data), type(gpuws.status(sim="labbox"))(turned)
    assert a == b and hash(a) == hash(b)


def test_views_are_frozen():
    look = gpuws.status(sim="labbox")
    gpu = look.gpus[0]
    with pytest.raises(AttributeError, match="frozen"):
        gpu.index = 7
    with pytest.raises(AttributeError, match="no field 'memry'"):
        _ = gpu.memry
    look.to_dict()["gpus"].clear()
    assert len(look.gpus) == 4
    assert look == gpuws.status(sim="labbox") and hash(look) == hash(gpuws.status(sim="labbox"))
    assert pickle.loads(pickle.dumps(look)) == look
    assert "memory_used_bytes" in dir(gpu)


def test_missing_value_is_none_with_its_reason():
    for gpu in gpuws.status(sim="p100-ghost").gpus:
        absent = gpu.to_dict()["absent"]
        for name, value in gpu.to_dict().items():
            assert value is not None or name in absent or name in ("error", "details"), name


def test_unknown_machine_is_an_error_with_kind():
    with pytest.raises(gpuws.InvalidRequest, match="find machine 'labbx'") as raised:
        gpuws.status(sim="labbx")
    assert raised.value.kind == "invalid"
    assert isinstance(raised.value, gpuws.GpuwsError) and isinstance(raised.value, ValueError)


def test_driver_that_hangs_ends_at_the_deadline_and_other_threads_run(tmp_path):
    # The driver's first call never returns, in the program that queries it.
    command = [gpuws.find_gpuws_bin(), "sim", "labbox", "--fault", "nvmlInit_v2=hang", "--"]
    program = """
import threading, gpuws
counted = 0
def count():
    global counted
    while not done.wait(0.01):
        counted += 1
done = threading.Event()
threading.Thread(target=count).start()
look = gpuws.status(deadline=1.0)
done.set()
print(look.driver_error.what)
print(counted > 20)
"""
    (tmp_path / "p.py").write_text(program)
    done = subprocess.run(
        [*command, sys.executable, tmp_path / "p.py"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    what, counted = done.stdout.splitlines()
    assert "nvmlInit" in what and counted == "True", done.stdout
