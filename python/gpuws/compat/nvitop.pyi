from collections.abc import Iterable
from typing import Any, Literal, overload

__all__ = ["select_devices"]

@overload
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["index"] = "index",
    force_index: bool = False,
    min_count: int = 0,
    max_count: int | None = None,
    min_free_memory: int | str | None = None,
    min_total_memory: int | str | None = None,
    max_gpu_utilization: int | None = None,
    max_memory_utilization: int | None = None,
    tolerance: int = 0,
    free_accounts: Iterable[str] | None = None,
    sort: bool = True,
) -> list[int]: ...
@overload
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["uuid"],
    force_index: bool = False,
    min_count: int = 0,
    max_count: int | None = None,
    min_free_memory: int | str | None = None,
    min_total_memory: int | str | None = None,
    max_gpu_utilization: int | None = None,
    max_memory_utilization: int | None = None,
    tolerance: int = 0,
    free_accounts: Iterable[str] | None = None,
    sort: bool = True,
) -> list[str]: ...

# Devices of nvitop.
@overload
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["device"],
    force_index: bool = False,
    min_count: int = 0,
    max_count: int | None = None,
    min_free_memory: int | str | None = None,
    min_total_memory: int | str | None = None,
    max_gpu_utilization: int | None = None,
    max_memory_utilization: int | None = None,
    tolerance: int = 0,
    free_accounts: Iterable[str] | None = None,
    sort: bool = True,
) -> list[Any]: ...

# Everything else is nvitop's own.
def __getattr__(name: str) -> Any: ...
