"""Claims on single GPUs by index, for functions that return indexes and leave the environment to
their caller."""

from __future__ import annotations

import os

from gpuws import _claim, _gpuws, _look
from gpuws._errors import NeverAvailable, NotAvailable
from gpuws._machine import machine

_leases = {}


def look():
    """Returns the state of the machine."""
    return _look.status()


def take(index, *, accept_used=False):
    """Claims a GPU, and returns whether this process has it."""
    held = _leases.get(index)
    if held is not None and held.is_held:
        return True
    terms = _claim.wanted(1, gpu=index, wait=False, accept_used=accept_used, visible="index")
    # These functions choose among all GPUs, as those of the originals do: whoever calls them sets
    # CUDA_VISIBLE_DEVICES with what they return, or has set it so.
    outer = [("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES") if not _leases else None)]
    try:
        _leases[index] = _gpuws.claim(machine(), terms, outer, None)
    except (NotAvailable, NeverAvailable):
        return False
    return True


def take_up_to(indexes, count, *, accept_used=False):
    """Claims GPUs in this order until it has `count`, and returns their indexes."""
    taken = []
    for index in indexes:
        if len(taken) >= count:
            break
        if take(index, accept_used=accept_used):
            taken.append(index)
    return taken


def is_taken_by_others(gpu):
    """Returns whether another process has claimed a GPU."""
    own = _leases.get(gpu.index)
    return bool(gpu.leases) and not (own is not None and own.is_held)


def release(keep=()):
    """Releases all GPUs but those with these indexes."""
    for index in [index for index in _leases if index not in keep]:
        _leases.pop(index).release()


def by_order(gpus):
    """Returns the GPUs that are visible, in the order of NVML."""
    return sorted(gpus, key=lambda gpu: gpu.index)
