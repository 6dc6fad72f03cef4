from collections.abc import Callable, Collection
from typing import Any, Protocol

from gpuws.compat import safe_gpu as safe_gpu

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

_Placeholder = Callable[[int], Any]

gpu_owner: GPUOwner | None

class NvidiasmiError(Exception): ...

# The values are objects of the frameworks.
def pytorch_placeholder(device_no: int) -> Any: ...
def tensorflow_placeholder(device_no: int) -> Any: ...

class _Kept:
    logger: _Logger
    def __init__(self, logger: _Logger = ...) -> None: ...
    def __call__(self, device_no: int) -> Any: ...
    def release(self, placeholder: Any) -> None: ...

class PytorchPlaceholder(_Kept): ...
class TensorflowPlaceholder(_Kept): ...
class PyCudaPlaceholder(_Kept): ...

def get_free_gpus() -> list[str]: ...

class GPUOwner:
    logger: _Logger
    debug_sleep: float
    placeholder_fn: _Placeholder | None
    devices_taken: list[int]
    placeholders: list[Any]
    def __init__(
        self,
        nb_gpus: int = 1,
        placeholder_fn: _Placeholder | None = ...,
        logger: _Logger | None = None,
        debug_sleep: float = 0.0,
    ) -> None: ...
    def allocate_gpus(self, gpu_device_numbers: Collection[int | str]) -> None: ...
    def release_gpus(self) -> None: ...
    def __del__(self) -> None: ...

def claim_gpus(
    nb_gpus: int = 1,
    placeholder_fn: _Placeholder | None = ...,
    logger: _Logger | None = None,
    debug_sleep: float = 0.0,
) -> None: ...
def release_gpus() -> None: ...
