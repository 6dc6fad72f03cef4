"""What a claim and its release cost in Python, beside safe-gpu, on one simulated machine.

    python benches/python/claim.py [--rounds 30] [--safe-gpu DIRECTORY] [--nvidia-smi PROGRAM]

Run it with the Python that has the wheel installed. DIRECTORY is for PYTHONPATH and has safe_gpu;
without it only gpuws is measured. Both claim one GPU in a process that runs already. safe-gpu asks
`nvidia-smi` three times: NVIDIA's, which `cargo xtask peers --install-only` unpacks, or without
PROGRAM a shell script around `gpuws query`, which is several times faster. Its placeholder does
nothing, which leaves out the seconds that a framework takes. On a busy machine, compare the CPU
times: the wall times are those of the queue for a CPU. `import` is a fresh interpreter with
`import gpuws` less one without.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import gpuws

SMI = """#!/bin/sh
if [ "$1" = -q ]; then
  echo "Attached GPUs : 4"
  echo "Display Mode : Disabled"
  exit 0
fi
exec "GPUWS" query "$@" 2>/dev/null
"""

# It reads processes through a private interface that the simulated NVML does not have.
OF_NVIDIA = """#!/bin/sh
"PROGRAM" "$@" | grep -v Uninitialized
exit 0
"""


def spent():
    """Returns the CPU time of this process and of its children that have ended, in seconds."""
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def measure(rounds, once):
    """Returns wall times, and the mean CPU time, in milliseconds."""
    times, before = [], spent()
    for _ in range(rounds):
        begin = time.perf_counter()
        once()
        times.append((time.perf_counter() - begin) * 1000)
    return times, (spent() - before) * 1000 / rounds


def show(name, measured):
    times, cpu = measured
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 10], ordered[-len(ordered) // 10 - 1]
    wall = statistics.median(times)
    print(f"{name:24} {wall:8.1f} ms   ({low:.1f} to {high:.1f})   {cpu:6.1f} ms of CPU")
    return wall, cpu


def claims():
    with gpuws.claim(1, quiet=True):
        pass


def of_safe_gpu(place, session):
    sys.path.insert(0, place)
    from safe_gpu import safe_gpu

    # Users of safe-gpu on this machine do not wait for a bench.
    safe_gpu.LOCK_FILENAME = session + safe_gpu.LOCK_FILENAME.removeprefix("/tmp")

    def once():
        safe_gpu.claim_gpus(1, lambda number: None)
        os.environ.pop("CUDA_VISIBLE_DEVICES")

    return once


def start(text):
    return lambda: subprocess.run([sys.executable, "-c", text], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--safe-gpu")
    parser.add_argument("--nvidia-smi")
    parser.add_argument("--machine", default="rtx8000-x4")
    terms = parser.parse_args()
    with gpuws.sim(terms.machine) as machine, tempfile.TemporaryDirectory() as programs:
        smi = os.path.join(programs, "nvidia-smi")
        text = SMI.replace("GPUWS", gpuws.find_gpuws_bin())
        if terms.nvidia_smi:
            text = OF_NVIDIA.replace("PROGRAM", os.path.abspath(terms.nvidia_smi))
        with open(smi, "w") as script:
            script.write(text)
        os.chmod(smi, 0o755)
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        claims()
        own = show("gpuws.claim, release", measure(terms.rounds, claims))
        if terms.safe_gpu:
            once = of_safe_gpu(terms.safe_gpu, machine.path)
            other = show("safe_gpu.claim_gpus", measure(terms.rounds, once))
            wall, cpu = (mine / theirs for mine, theirs in zip(own, other))
            print(f"{'ratio':24} {wall:8.2f}      {'':20} {cpu:6.2f}")
    bare = show("python -c pass", measure(terms.rounds, start("pass")))
    with_import = show("python -c import gpuws", measure(terms.rounds, start("import gpuws")))
    wall, cpu = (after - before for after, before in zip(with_import, bare))
    print(f"{'import gpuws':24} {wall:8.1f} ms   {'':20} {cpu:6.1f} ms of CPU")


if __name__ == "__main__":
    main()
