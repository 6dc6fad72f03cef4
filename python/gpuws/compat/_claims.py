"""Claims on single GPUs by index, for functions that return indexes and leave the environment to
their caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gpuws import _claim, _gpuws, _look
from gpuws._errors import NeverAvailable, NotAvailable
from gpuws._machine import machine

if TYPE_CHECKING:
    from gpuws._records import Gpu, Status

_leases: dict[int, _gpuws.Lease] = {}
# The environment before the first of them. The callers of these functions set CUDA_VISIBLE_DEVICES
# to the result, and the next call must choose among the same GPUs as the first.
_outer: Mapping[str, str | None] = {}


def look() -> Status:
    """Returns the state of the machine."""
    return _look.status()


def take(index: int, *, accept_used: bool = False) -> bool:
    """Claims a GPU, and returns whether this process holds it."""
    global _outer
    held = _leases.get(index)
    if held is not None and held.is_held:
        return True
    if not _leases:
        _outer = _claim.outer()
    terms = _claim.wanted(1, gpu=index, wait=False, accept_used=accept_used, visible="index")
    try:
        _leases[index] = _gpuws.claim(machine(), terms, list(_outer.items()), None, None)
    except (NotAvailable, NeverAvailable):
        return False
    return True


def take_up_to(indexes: Iterable[int], count: int, *, accept_used: bool = False) -> list[int]:
    """Claims GPUs in this order until it has `count`, and returns their indexes."""
    taken: list[int] = []
    for index in indexes:
        if len(taken) >= count:
            break
        if take(index, accept_used=accept_used):
            taken.append(index)
    return taken


def is_taken_by_others(gpu: Gpu) -> bool:
    """Returns whether another process has claimed a GPU."""
    own = _leases.get(gpu.index)
    return bool(gpu.leases) and not (own is not None and own.is_held)


def release() -> None:
    """Releases all GPUs."""
    while _leases:
        _leases.popitem()[1].release()


def by_order(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Returns the GPUs that are visible, in the order of NVML."""
    return sorted(gpus, key=lambda gpu: gpu.index)
