"""Claims of many processes, of `gpuws run` and of the real safe-gpu never get one GPU twice."""

import json
import os
import subprocess
import sys

import pytest

import gpuws

# Each user of a GPU marks it for as long as it has it. A mark that exists already is a collision.
MARK = """
import json, os, sys, time

def have(indexes, who):
    session = os.environ["GPUWS_SIM_SESSION"]
    marks = [os.path.join(session, f"mark-{index}") for index in indexes]
    for mark in marks:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            print(json.dumps(["collision", who, mark]), flush=True)
    time.sleep(0.02)
    for mark in marks:
        os.path.exists(mark) and os.unlink(mark)
    print(json.dumps(["had", who, len(marks)]), flush=True)
"""

PYTHON = MARK + """
import gpuws
for round in range(ROUNDS):
    with gpuws.claim(1 + round % 2, visible="index", timeout=120, quiet=True) as claim:
        have([gpu.index for gpu in claim.gpus], "python")
"""

RUN = MARK + """
import subprocess
if len(sys.argv) > 1:
    have(os.environ["CUDA_VISIBLE_DEVICES"].split(","), "run")
else:
    for round in range(ROUNDS):
        command = ["GPUWS", "run", "--quiet", "--visible", "index", "--", sys.executable, __file__, "job"]
        subprocess.run(command, check=True)
"""

SAFE = MARK + """
import shutil, subprocess
sys.path.insert(0, "PLACE")
from safe_gpu import safe_gpu
session = os.environ["GPUWS_SIM_SESSION"]
# The lock lies in the session, so that users of safe-gpu on this machine do not wait for the test.
safe_gpu.LOCK_FILENAME = session + safe_gpu.LOCK_FILENAME.removeprefix("/tmp")
os.environ["PATH"] = "SMI:" + os.environ["PATH"]

def placeholder(number):
    device = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[number]
    child = subprocess.Popen([os.path.join(session, "nvml-sim-process"), "--use", device + ":500"])
    registered = os.path.join(session, "walk-ons")
    while not any(name.startswith(f"{child.pid}-") for name in os.listdir(registered)):
        time.sleep(0.01)
    children.append(child)
    return child

for round in range(ROUNDS):
    children = []
    try:
        safe_gpu.claim_gpus(1, placeholder)
    except RuntimeError:
        print(json.dumps(["refused", "safe-gpu", 0]), flush=True)
        time.sleep(0.05)
        continue
    have(os.environ.pop("CUDA_VISIBLE_DEVICES").split(","), "safe-gpu")
    for child in children:
        child.kill()
        child.wait()
"""

# An nvidia-smi with the queries of safe-gpu.
SMI = """#!/bin/sh
if [ "$1" = -q ]; then
  echo "Attached GPUs : 4"
  echo "Display Mode : Disabled"
  exit 0
fi
exec "GPUWS" query "$@" 2>/dev/null
"""


@pytest.mark.parametrize("version", [None, "1.5.1", "2.0.0"])
def test_nobody_gets_a_gpu_twice(machine, tmp_path, version):
    rounds = 12 if os.environ.get("GPUWS_DEEP") else 4
    programs = [("python", PYTHON, 8), ("run", RUN, 2)]
    place = os.path.join(os.environ.get("GPUWS_SAFE_GPU", ""), f"safe-gpu-{version}")
    if version is not None:
        if not os.path.isdir(os.path.join(place, "safe_gpu")):
            pytest.skip(f"safe-gpu {version} is not installed")
        programs.append(("safe", SAFE, 3))
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.replace("GPUWS", gpuws.find_gpuws_bin()))
    smi.chmod(0o755)
    processes = []
    for name, text, count in programs:
        text = text.replace("ROUNDS", str(rounds)).replace("GPUWS\"", gpuws.find_gpuws_bin() + '"')
        text = text.replace("PLACE", place).replace("SMI:", f"{smi.parent}:")
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        processes += [
            subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
    reported = []
    try:
        for process in processes:
            out, _ = process.communicate(timeout=240)
            assert process.returncode == 0
            reported += [json.loads(line) for line in out.splitlines() if line.startswith("[")]
    finally:
        # None outlives the session, whose directory safe-gpu would make again.
        for process in processes:
            process.kill()
            process.wait()
    assert [each for each in reported if each[0] == "collision"] == []
    had = [who for what, who, _ in reported if what == "had"]
    refused = sum(what == "refused" for what, *_ in reported)
    print(f"safe-gpu {version}: {len(had)} claims, {refused} refused, no collision")
    assert had.count("python") == 8 * rounds and had.count("run") == 2 * rounds
    if version is not None:
        assert had.count("safe-gpu") + refused == 3 * rounds
    assert gpuws.leases().leases == ()
