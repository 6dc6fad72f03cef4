"""A process that keeps GPU memory, in one of the shapes in which such processes are left behind.

Usage: ghost.py SHAPE READY

SHAPE says what becomes of it once it has the memory, and READY is a file that it then writes its
number and its start into:

    plain          it sleeps
    zombie-leader  its first thread ends, and a second one keeps the memory
    orphan         a child of it has the memory, and it waits to be killed
    torch-orphan   the same with a worker of torch.multiprocessing

Whatever happens to whoever started it, it ends by itself after LIFE seconds. It takes memory on
the one GPU that the variable GPUWS_HW_GPU names by its UUID, and on no other.
"""

import ctypes
import os
import signal
import sys
import threading
import time
import uuid

SIZE = 512 << 20
LIFE = 180


def hold_with_cuda():
    """Makes a CUDA context and takes memory; returns what keeps both alive."""
    permitted = os.environ["GPUWS_HW_GPU"]
    os.environ["CUDA_VISIBLE_DEVICES"] = permitted
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(what, code):
        if code != 0:
            raise OSError(f"{what} returns {code}")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    check("cuInit", cuda.cuInit(0))
    check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
    own = (ctypes.c_ubyte * 16)()
    check("cuDeviceGetUuid", cuda.cuDeviceGetUuid(ctypes.byref(own), device))
    if f"GPU-{uuid.UUID(bytes=bytes(own))}" != permitted:
        raise OSError(f"CUDA's first device is not {permitted}")
    check("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
    check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(SIZE)))
    return cuda, context, memory


def hold_with_torch():
    """Takes memory as a PyTorch program does."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["GPUWS_HW_GPU"]
    import torch

    return torch.empty(SIZE, dtype=torch.uint8, device="cuda:0")


def start_of(pid):
    """Returns when a process started, in clock ticks since boot; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def tell(ready):
    """Writes who has the memory; the file appears whole."""
    with open(f"{ready}.new", "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {start_of(os.getpid())}\n")
    os.rename(f"{ready}.new", ready)


def plain(hold, ready):
    end_some_time()
    held = hold()
    tell(ready)
    time.sleep(LIFE)
    del held


def end_some_time():
    """Has the kernel end this process, whatever it then does."""
    signal.alarm(LIFE + 30)


def zombie_leader(hold, ready):
    end_some_time()

    def second():
        held = hold()
        tell(ready)
        time.sleep(LIFE)
        del held
        os._exit(0)

    threading.Thread(target=second).start()
    while not os.path.exists(ready):
        time.sleep(0.05)
    # Ends this thread alone; ctypes has let go of the interpreter's lock by then.
    ctypes.CDLL(None).pthread_exit(None)


def orphan(hold, ready):
    if os.fork() == 0:
        plain(hold, ready)
        os._exit(0)
    end_some_time()
    time.sleep(LIFE)


def torch_orphan(hold, ready):
    import torch.multiprocessing

    end_some_time()
    worker = torch.multiprocessing.get_context("spawn").Process(target=plain, args=(hold, ready))
    worker.start()
    time.sleep(LIFE)


SHAPES = {
    "plain": (plain, hold_with_cuda),
    "zombie-leader": (zombie_leader, hold_with_cuda),
    "orphan": (orphan, hold_with_cuda),
    "torch-orphan": (torch_orphan, hold_with_torch),
}


def main():
    shape, hold = SHAPES[sys.argv[1]]
    shape(hold, sys.argv[2])


if __name__ == "__main__":
    main()
