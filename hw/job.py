"""A PyTorch job on one GPU.

Usage: job.py SHAPE [ARGUMENT]

    busy SECONDS    computes half of the time
    idle SECONDS    holds 1 GiB and computes nothing
    fill GIB        allocates until it is refused, at most this much, and prints how much it got
    record FILE     trains a small network and writes PyTorch's recording of its memory

It uses the one GPU that the variable GPUWS_HW_GPU names by its UUID, and no other. `busy` and
`idle` print `ready` once they have their memory. Whatever happens to whoever started it, it ends by
itself after LIFE seconds.
"""

import os
import signal
import subprocess
import sys
import time

GIB = 1 << 30
STEP = GIB // 4
LIFE = 300

# Before anything that can hang.
signal.alarm(LIFE)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", os.environ["GPUWS_HW_GPU"])

import torch


def permitted():
    """Ends the program unless CUDA's first device is the permitted one."""
    own = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    if own != os.environ["GPUWS_HW_GPU"]:
        sys.exit(f"CUDA's first device is {own}, which is not permitted")


def hold(seconds, computes):
    held = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    matrix = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    print("ready", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        while computes and time.monotonic() < begun + 0.05:
            matrix @ matrix
            torch.cuda.synchronize()
        time.sleep(0.05)
    del held


def fill(most):
    held = []
    try:
        while len(held) * STEP < most:
            held.append(torch.empty(STEP, dtype=torch.uint8, device="cuda"))
    finally:
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        rows = [line.split(", ") for line in done.stdout.splitlines()]
        own = [row[1] for row in rows if row[0] == str(os.getpid())]
        print(f"got {len(held) * STEP >> 20} MiB, listed with {(own or ['?'])[0]} MiB", flush=True)


def record(file):
    torch.cuda.memory._record_memory_history(max_entries=100_000, context=None)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(12)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for step in range(8):
        batch = torch.randn(512 + 391 * step, 1024, device="cuda")
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(batch[: 100 * step].clone())
        if step % 3 == 2:
            kept.pop(0)
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(file)


def main():
    shape, *arguments = sys.argv[1:]
    permitted()
    if shape in ("busy", "idle"):
        hold(float(arguments[0]), shape == "busy")
    elif shape == "fill":
        fill(int(arguments[0]) * GIB)
    else:
        record(arguments[0])


if __name__ == "__main__":
    main()
