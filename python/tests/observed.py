"""What a test sees of the machine, and other processes on it."""

import contextlib
import subprocess
import sys
import time

import gpuws

# What PyTorch says when a GPU is too small.
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 5.96 GiB. GPU 0 has a total capacity of 23.69 GiB of which "
    "5.25 GiB is free. Including non-PyTorch memory, this process has 18.17 GiB memory in use. Of the "
    "allocated memory 17.88 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
    "unallocated."
)


def memory_mib():
    """Returns the used memory of each GPU."""
    return [gpu.memory_used_bytes >> 20 for gpu in gpuws.status().gpus]


def alive(pid):
    """Returns whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, process=None):
    """Waits for a condition; a process that ends before, or a minute, is a failure."""
    end = time.monotonic() + 60
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "nothing happened for a minute"
        time.sleep(0.05)


@contextlib.contextmanager
def another_holder(count):
    """Another process, no descendant of a claim of this one, holds GPUs."""
    text = f"import gpuws, sys\ngpuws.hold({count}, quiet=True)\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, text=True)
    try:
        until(lambda: any(lease.pid == process.pid for lease in gpuws.leases().leases), process)
        yield process
    finally:
        process.communicate(timeout=60)
