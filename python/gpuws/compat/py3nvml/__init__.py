"""The interface of py3nvml 0.2.7, on claims of gpuws.

Improvement: `grab_gpus` claims the GPUs that it makes visible; the original only reads their state.
`gpuws.compat.py3nvml.py3nvml` has the functions of NVML; it needs nvidia-ml-py.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuws import _claim
from gpuws.compat import _claims

if TYPE_CHECKING:
    from gpuws._records import Gpu
    from gpuws.compat.py3nvml import py3nvml

__all__ = ["get_free_gpus", "get_num_procs", "grab_gpus", "py3nvml"]

_MIB = 1 << 20


if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "py3nvml":
            return importlib.import_module("gpuws.compat.py3nvml.py3nvml")
        raise AttributeError(f"module 'gpuws.compat.py3nvml' has no attribute '{name}'")


def _gpus() -> list[Gpu] | None:
    """Returns the GPUs, or None with a warning if there is no driver."""
    look = _claims.look()
    if look.driver_error is not None:
        warnings.warn(f"no GPU can be used: {look.driver_error.what}", RuntimeWarning, stacklevel=3)
        return None
    return _claims.by_order(look.gpus)


def _selected(gpu_select: int | Iterable[int] | None, count: int) -> set[int]:
    if gpu_select is None:
        return set(range(count))
    try:
        chosen = {gpu_select} if isinstance(gpu_select, int) else {int(each) for each in gpu_select}
    except (TypeError, ValueError):
        raise ValueError("gpu_select must be None, an int or an iterable of ints") from None
    if not chosen <= set(range(-count, count)):
        raise ValueError(f"gpu_select names GPUs that do not exist: {sorted(chosen)}")
    return {each % count for each in chosen}


def grab_gpus(
    num_gpus: int = 1,
    gpu_select: int | Iterable[int] | None = None,
    gpu_fraction: float = 0.95,
    max_procs: int = -1,
    env_set_ok: bool = False,
    gpu_min_memory: float | None = None,
) -> int:
    """Claims up to `num_gpus` GPUs, all that are free if it is -1, and sets CUDA_VISIBLE_DEVICES.

    A GPU is free if this part of its memory is, and at most `max_procs` processes use it. Returns
    how many were claimed, with a RuntimeWarning if they are fewer; without any, no GPU is visible.
    Raises ValueError if CUDA_VISIBLE_DEVICES is set, unless `env_set_ok`, and gpuws.CudaInitialized.
    """
    if not env_set_ok and "CUDA_VISIBLE_DEVICES" in os.environ:
        raise ValueError("CUDA_VISIBLE_DEVICES is set already; env_set_ok=True permits that")
    _claim.refuse_if_initialized()
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    taken: list[int] = []
    try:
        gpus = _gpus() if num_gpus != 0 else []
        if not gpus:
            return 0
        chosen = _selected(gpu_select, len(gpus))
        wanted = len(gpus) if num_gpus == -1 else num_gpus

        def fits(gpu: Gpu) -> bool:
            total, used = gpu.memory_total_bytes, gpu.memory_used_bytes
            if gpu.error is not None or total is None or used is None:
                return False
            if gpu_min_memory and total // _MIB < gpu_min_memory:
                return False
            if max_procs >= 0 and len(gpu.processes) > max_procs:
                return False
            return (total - used + 10) / total >= gpu_fraction

        indexes = [gpu.index for gpu in gpus if gpu.index in chosen and fits(gpu)]
        taken = _claims.take_up_to(indexes, wanted, accept_used=True)
        if not taken:
            warnings.warn("could not claim any GPU", RuntimeWarning, stacklevel=2)
        elif len(taken) < wanted and num_gpus != -1:
            text = f"claimed {len(taken)} of {num_gpus} GPUs"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        return len(taken)
    finally:
        # With no GPU, nothing is visible, so that the caller may go on with the CPU.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, taken))


def get_free_gpus(max_procs: int = 0) -> list[bool]:
    """Returns for each GPU whether at most `max_procs` processes use it and no other process has
    claimed it, without a claim."""
    return [
        gpu.error is None
        and len(gpu.processes) <= max_procs
        and not _claims.is_taken_by_others(gpu)
        for gpu in _gpus() or []
    ]


def get_num_procs() -> list[int]:
    """Returns for each GPU how many processes use it; -1 if that is unknown."""
    return [-1 if gpu.error is not None else len(gpu.processes) for gpu in _gpus() or []]
