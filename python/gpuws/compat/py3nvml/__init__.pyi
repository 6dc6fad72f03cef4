from collections.abc import Iterable

from gpuws.compat.py3nvml import py3nvml as py3nvml

__all__ = ["get_free_gpus", "get_num_procs", "grab_gpus", "py3nvml"]

def grab_gpus(
    num_gpus: int = 1,
    gpu_select: int | Iterable[int] | None = None,
    gpu_fraction: float = 0.95,
    max_procs: int = -1,
    env_set_ok: bool = False,
    gpu_min_memory: float | None = None,
) -> int: ...
def get_free_gpus(max_procs: int = 0) -> list[bool]: ...
def get_num_procs() -> list[int]: ...
