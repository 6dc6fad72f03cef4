"""The interface of safe_gpu 2.0 and 1.5, on claims of gpuws.

Improvements: a claim also excludes users of gpuws; no framework has to allocate a placeholder
(`placeholder_fn=None`); a claim after the first CUDA call raises CudaInitialized instead of
selecting a wrong GPU; and `gpuws.hold(n, timeout=600)` waits in the queue instead of failing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time

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

gpu_owner = None


class NvidiasmiError(Exception):
    """The driver cannot be queried."""


def pytorch_placeholder(device_no):
    """Allocates a tensor of PyTorch on a visible GPU; nothing if there is no PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch.zeros((1), device=f"cuda:{device_no}")


def tensorflow_placeholder(device_no):
    """Allocates a tensor of TensorFlow on a visible GPU."""
    import tensorflow

    with tensorflow.device(f"GPU:{device_no}"):
        return tensorflow.constant([1.0])


class PytorchPlaceholder:
    """Keeps a tensor of PyTorch."""

    def __init__(self, logger=logging):
        self.logger = logger

    def __call__(self, device_no):
        return pytorch_placeholder(device_no)

    def release(self, placeholder):
        self.logger.info("PyTorch keeps its context; the claim is released")


class TensorflowPlaceholder:
    """Keeps a tensor of TensorFlow."""

    def __init__(self, logger=logging):
        self.logger = logger

    def __call__(self, device_no):
        return tensorflow_placeholder(device_no)

    def release(self, placeholder):
        self.logger.info("TensorFlow keeps its context; the claim is released")


class PyCudaPlaceholder:
    """Keeps a context of PyCUDA."""

    def __init__(self, logger=logging):
        self.logger = logger

    def __call__(self, device_no):
        from pycuda import driver

        driver.init()
        return driver.Device(device_no).make_context()

    def release(self, placeholder):
        placeholder.detach()
        self.logger.info("released a CUDA context")


def get_free_gpus():
    """Returns the indexes, as texts, of the GPUs that are neither used nor claimed."""
    return [str(gpu.index) for gpu in _look.status().gpus if gpu.free and not gpu.leases]


class GPUOwner:
    """GPUs of this process, until this object is deleted or released."""

    _claim = None

    def __init__(
        self, nb_gpus=1, placeholder_fn=PytorchPlaceholder(), logger=None, debug_sleep=0.0
    ):
        self.logger = logging if logger is None else logger
        self.debug_sleep = debug_sleep
        self.placeholder_fn = placeholder_fn
        self.devices_taken = []
        self.placeholders = []
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

    def _take(self, count, gpus, accept_used):
        claim = _claim.claim(
            count, gpu=gpus, wait=False, visible="index", accept_used=accept_used, quiet=True
        )
        try:
            claim._take()
        except (NotAvailable, NeverAvailable) as error:
            free = get_free_gpus()
            raise RuntimeError(
                f"Required {count} GPUs, only found these free: {free}. {error}"
            ) from error
        self._claim = claim
        self._adopt(claim.environment["CUDA_VISIBLE_DEVICES"].split(","))

    def allocate_gpus(self, gpu_device_numbers):
        """Claims these GPUs as well, by index, and makes them the visible ones."""
        if self._claim is not None:
            self._claim.release()
        self._take(len(gpu_device_numbers), list(gpu_device_numbers), False)

    def _adopt(self, numbers):
        self.logger.info(f"Set CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']}")
        time.sleep(self.debug_sleep)
        if self.placeholder_fn is not None:
            self.placeholders.extend(map(self.placeholder_fn, range(len(numbers))))
        self.devices_taken.extend(int(number) for number in numbers)

    def release_gpus(self):
        """Releases the placeholders, then the GPUs."""
        release = getattr(self.placeholder_fn, "release", None)
        if release is not None:
            for placeholder in self.placeholders:
                release(placeholder)
        if self._claim is not None:
            self._claim.release()

    def __del__(self):
        if self._claim is not None:
            self._claim.release()


def claim_gpus(nb_gpus=1, placeholder_fn=PytorchPlaceholder(), logger=None, debug_sleep=0.0):
    """Claims GPUs for this process, and makes them the only visible ones.

    Raises RuntimeError at once if too few are free, and gpuws.CudaInitialized, which is one.
    """
    global gpu_owner
    gpu_owner = GPUOwner(nb_gpus, placeholder_fn, logger, debug_sleep)


def release_gpus():
    """Releases the GPUs of `claim_gpus`."""
    if gpu_owner is not None:
        gpu_owner.release_gpus()


# `from safe_gpu import safe_gpu` is the old way to import it.
import sys as _sys  # noqa: E402

safe_gpu = _sys.modules[__name__]
