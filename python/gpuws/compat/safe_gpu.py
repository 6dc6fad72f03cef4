"""The interface of safe_gpu 2.0 and 1.5, on claims of gpuws.

Improvements: a claim also excludes users of gpuws; no framework has to allocate a placeholder
(`placeholder_fn=None`); a claim after the first CUDA call raises CudaInitialized instead of
selecting a wrong GPU; and `gpuws.hold(n, timeout=600)` waits in the queue instead of failing.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from gpuws import _claim, _look
from gpuws._errors import NeverAvailable, NotAvailable

__all__ = [
    "GPUOwner",
    "NvidiasmiError",
    "PyCudaPlaceholder",
    "PytorchPlaceholder",
    "TensorflowPlaceholder",
    "claim_gpus",
    "get_free_gpus",
    "pytorch_placeholder",
    "release_gpus",
    "tensorflow_placeholder",
]

class _Logger(Protocol):
    def info(self, msg: str, /) -> object: ...
    def error(self, msg: str, /) -> object: ...


_Placeholder = Callable[[int], Any]

gpu_owner: GPUOwner | None = None


class NvidiasmiError(Exception):
    """The driver cannot be queried."""


def pytorch_placeholder(device_no: int) -> Any:
    """Allocates a tensor of PyTorch on a visible GPU; nothing if there is no PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    return torch.zeros((1), device=f"cuda:{device_no}")


def tensorflow_placeholder(device_no: int) -> Any:
    """Allocates a tensor of TensorFlow on a visible GPU."""
    tensorflow = importlib.import_module("tensorflow")
    with tensorflow.device(f"GPU:{device_no}"):
        return tensorflow.constant([1.0])


class PytorchPlaceholder:
    """Keeps a tensor of PyTorch."""

    def __init__(self, logger: _Logger = logging) -> None:
        self.logger = logger

    def __call__(self, device_no: int) -> Any:
        return pytorch_placeholder(device_no)

    def release(self, placeholder: Any) -> None:
        self.logger.info("PyTorch keeps its context; the claim is released")


class TensorflowPlaceholder:
    """Keeps a tensor of TensorFlow."""

    def __init__(self, logger: _Logger = logging) -> None:
        self.logger = logger

    def __call__(self, device_no: int) -> Any:
        return tensorflow_placeholder(device_no)

    def release(self, placeholder: Any) -> None:
        self.logger.info("TensorFlow keeps its context; the claim is released")


class PyCudaPlaceholder:
    """Keeps a context of PyCUDA."""

    def __init__(self, logger: _Logger = logging) -> None:
        self.logger = logger

    def __call__(self, device_no: int) -> Any:
        driver = importlib.import_module("pycuda.driver")
        driver.init()
        return driver.Device(device_no).make_context()

    def release(self, placeholder: Any) -> None:
        placeholder.detach()
        self.logger.info("Released a CUDA context")


def get_free_gpus() -> list[str]:
    """Returns the indexes, as texts, of the GPUs that are neither used nor claimed."""
    return [str(gpu.index) for gpu in _look.status().gpus if gpu.free and not gpu.leases]


class GPUOwner:
    """GPUs of this process, until this object is deleted or released."""

    _claim: _claim.Claim | None = None

    def __init__(
        self,
        nb_gpus: int = 1,
        placeholder_fn: _Placeholder | None = PytorchPlaceholder(),
        logger: _Logger | None = None,
        debug_sleep: float = 0.0,
    ) -> None:
        self.logger: _Logger = logging if logger is None else logger
        self.debug_sleep = debug_sleep
        self.placeholder_fn = placeholder_fn
        self.devices_taken: list[int] = []
        self.placeholders: list[Any] = []
        gpus = None
        look = _look.status()
        if look.driver_error is not None:
            raise NvidiasmiError(look.driver_error.what)
        is_display = len(look.gpus) == 1 and look.gpus[0].display_active is True
        if is_display and nb_gpus != 1:
            raise ValueError(f"Requested {nb_gpus} GPUs on a machine with single one.")
        if is_display:
            self.logger.info("the only GPU drives a display; it is taken nevertheless")
            gpus = ["0"]
        self._take(nb_gpus, gpus, is_display)

    def _take(self, count: int, gpus: Collection[int | str] | None, accept_used: bool) -> None:
        claim = _claim.claim(
            count, gpu=gpus, wait=False, visible="index", accept_used=accept_used, quiet=True
        )
        # safe_gpu takes its lock only to search for free GPUs.
        phase = self.logger.info if gpus is None else lambda _: None
        phase("acquiring lock")
        try:
            claim._take()
        except (NotAvailable, NeverAvailable) as error:
            phase("lock acquired")
            phase("lock released")
            free = get_free_gpus()
            raise RuntimeError(
                f"Required {count} GPUs, only found these free: {free}. {error}"
            ) from error
        phase("lock acquired")
        self._claim = claim
        try:
            self._adopt(claim.environment["CUDA_VISIBLE_DEVICES"].split(","))
        finally:
            phase("lock released")

    def allocate_gpus(self, gpu_device_numbers: Collection[int | str]) -> None:
        """Claims these GPUs as well, by index, and makes them the visible ones."""
        if self._claim is not None:
            self._claim.release()
        self._take(len(gpu_device_numbers), list(gpu_device_numbers), False)

    def _adopt(self, numbers: list[str]) -> None:
        self.logger.info(f"Set CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']}")
        time.sleep(self.debug_sleep)
        try:
            if self.placeholder_fn is not None:
                self.placeholders.extend(map(self.placeholder_fn, range(len(numbers))))
        except RuntimeError:
            self.logger.error("no placeholder: is another program on the GPU, or was CUDA in use?")
            raise
        self.devices_taken.extend(int(number) for number in numbers)

    def release_gpus(self) -> None:
        """Releases the placeholders, then the GPUs."""
        release = getattr(self.placeholder_fn, "release", None)
        if release is not None:
            for number, placeholder in zip(self.devices_taken, self.placeholders):
                self.logger.info(f"Releasing placeholder on CUDA device: {number}")
                release(placeholder)
        if self._claim is not None:
            self._claim.release()

    def __del__(self) -> None:
        if self._claim is not None:
            self._claim.release()


def claim_gpus(
    nb_gpus: int = 1,
    placeholder_fn: _Placeholder | None = PytorchPlaceholder(),
    logger: _Logger | None = None,
    debug_sleep: float = 0.0,
) -> None:
    """Claims GPUs for this process, and makes them the only visible ones.

    Raises RuntimeError at once if too few are free, and gpuws.CudaInitialized, which is one.
    """
    global gpu_owner
    gpu_owner = GPUOwner(nb_gpus, placeholder_fn, logger, debug_sleep)


def release_gpus() -> None:
    """Releases the GPUs of `claim_gpus`."""
    if gpu_owner is not None:
        gpu_owner.release_gpus()


# `from safe_gpu import safe_gpu` is the old way to import it.
safe_gpu = sys.modules[__name__]
