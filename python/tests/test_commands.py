"""Functions that call commands of the program: they return its JSON, and end nothing unasked."""

import json
import os
import signal
import subprocess
import sys

import pytest

import gpuws
from gpuws import place
from observed import alive, until

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
    "torch_dtype": "float16",
}
FLOAT = {"dtype": {"type": "float"}}
GRAPH = {
    "nodes": [
        {"name": "left", "op": "Placeholder", "attrs": FLOAT},
        {"name": "right", "op": "Placeholder", "attrs": FLOAT, "device": "/cpu:0"},
        {"name": "sum", "op": "AddV2", "inputs": ["left", "right"], "attrs": {"T": FLOAT["dtype"]}},
    ]
}


def printed(*words):
    program = gpuws.find_gpuws_bin()
    done = subprocess.run([program, "--json", *words], capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.fixture
def file(tmp_path):
    """Writes an object to a file, and returns its path."""

    def write(value):
        path = tmp_path / "--a directory" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))
        return path

    return write


@pytest.fixture
def ghost():
    """A simulated machine on which a process keeps memory that the driver lists for none."""
    with gpuws.sim("p100-ghost") as machine:
        yield machine


def test_reap_returns_the_plan_of_the_program():
    plan = gpuws.reap(sim="p100-ghost")
    assert plan.to_dict() == printed("reap", "--sim", "p100-ghost")
    assert plan.targets and plan.report is None
    narrowed = gpuws.reap(sim="p100-ghost", pid=[plan.targets[0].pid], grace=0, scope="group")
    assert narrowed.grace_ms == 0 and narrowed.targets[0].why == "requested by PID"
    assert gpuws.reap(sim="p100-ghost", gpu=0, user=plan.targets[0].uid).targets == plan.targets
    assert gpuws.reap(sim="p100-ghost", user="root").targets == ()


def test_reap_ends_processes_only_with_yes(ghost):
    (target,) = gpuws.reap().targets
    assert alive(target.pid)
    done = gpuws.reap(pid=target.pid, yes=True, grace=1)
    assert done.report.complete and not alive(target.pid)
    assert [action.pid for action in done.report.actions] == [target.pid]


# An empty list must not mean all processes, and only True is a consent.
@pytest.mark.parametrize(
    "terms",
    [
        *({name: empty} for name in ("pid", "gpu", "user", "protect") for empty in ([], ())),
        *({name: odd} for name in ("pid", "gpu", "user", "protect") for odd in ("", b"0", [None])),
        *({"yes": other} for other in (1, "no", "yes", None, [True])),
        *({"pid": other} for other in (True, -1, 1.5, "self", "1 2")),
        *({"grace": other} for other in (-1, "soon", float("nan"), 1e30)),
        {"scope": "all"},
        {"user": "no\0body"},
        {"user": "--yes"},
    ],
)
def test_invalid_arguments_end_nothing(ghost, terms):
    (target,) = gpuws.reap().targets
    with pytest.raises(gpuws.InvalidRequest):
        gpuws.reap(**{"yes": True, **terms})
    assert alive(target.pid)


def test_reap_refuses_what_the_program_refuses(machine):
    refused = gpuws.reap(pid=[os.getpid(), 1], yes=True).refused
    assert {each.pid: each.why for each in refused} == {os.getpid(): "own-ancestry", 1: "init"}


INTERRUPTED = """
import gpuws, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    gpuws.reap(pid=int(sys.argv[1]), yes=True, grace=600)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_reap_before_its_next_signal(machine):
    used = machine.use(0)
    # It cannot end by SIGTERM now.
    used.send_signal(signal.SIGSTOP)
    command = [sys.executable, "-c", INTERRUPTED, str(used.pid)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until(lambda: pending(used.pid), process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert alive(used.pid)
    used.kill()
    used.wait()


def pending(pid):
    """Returns whether SIGTERM is waiting for a process."""
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return bool(int(fields["ShdPnd"], 16) >> (signal.SIGTERM - 1) & 1)


def test_report_returns_the_json_of_the_program(tmp_path):
    history = tmp_path / "history"
    record = ["--sim", "labbox", "record", history, "--for", "1s", "--every", "200ms"]
    subprocess.run([gpuws.find_gpuws_bin(), *record], check=True, capture_output=True)
    report = gpuws.report(history, step=0)
    assert report.to_dict() == printed("report", str(history), "--step", "0")
    assert report.sample_count > gpuws.report(history, since="-300ms", step=0).sample_count
    gaps = gpuws.report(history, step=0.05, gap=0.1).gaps
    assert gaps and all(gap.from_ < gap.to for gap in gaps)
    for path in (tmp_path / "none", tmp_path / "no\0ne"):
        with pytest.raises(gpuws.InvalidRequest):
            gpuws.report(path)
    with pytest.raises(gpuws.InvalidRequest, match="since"):
        gpuws.report(history, since="soon")


def test_model_is_placed_as_by_the_program(file):
    path = file(MODEL).parent
    found = place.model(path, memory=["1GiB", 1 << 30], context="2k", goal="latency", kv="F16")
    words = ["--memory", "1GiB,1GiB", "--context", "2048", "--goal", "latency"]
    assert found.to_dict() == printed("place", "model", *words, "--", str(path))
    assert found.fits and found.verdict == "fits" and len(found.layers) >= 6
    assert place.model(path, memory="1MiB", margin="1MiB").verdict == "does-not-fit"
    assert place.model(path, sim="labbox", gpu=[1, 2], accept_used=True).machine == "labbox"
    with pytest.raises(gpuws.InvalidRequest, match="memory=.* names none"):
        place.model(path, memory=[])
    with pytest.raises(gpuws.GpuwsError, match="No such file"):
        place.model(path / "none")


def test_graph_is_placed_scheduled_and_run_as_by_the_program(file):
    path = file(GRAPH)
    devices = ["/cpu:0", "/gpu:0"]
    placed = place.graph(path, devices=devices)
    words = ["place", "graph", "--devices", ",".join(devices), "--", str(path)]
    assert placed.to_dict() == printed(*words)
    assert {node.name: node.device[-5:] for node in placed.nodes}["right"] == "CPU:0"
    scheduled = place.schedule(path, devices=devices)
    assert scheduled.to_dict() == printed(*words[:2], "--schedule", *words[2:])
    values = {"dtype": FLOAT["dtype"], "value": {"tensor": {"dtype": "float", "values": [2.5]}}}
    constants = [{"name": name, "op": "Const", "attrs": values} for name in ("left", "right")]
    path = file({"nodes": [*constants, GRAPH["nodes"][2]]})
    ran = place.run(path, fetch="sum:0", devices="/cpu:0")
    assert ran.values[0].elements == (5.0,)
    with pytest.raises(TypeError, match="device_names"):
        place.graph(path, device_names=devices)
