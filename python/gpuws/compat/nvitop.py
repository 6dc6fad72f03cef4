"""`select_devices` of nvitop 1.7, on claims of gpuws.

Difference: it claims all GPUs that it returns for this process, so pass `max_count`. `Device` and
the rest of nvitop come from nvitop itself, where it is installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from gpuws._machine import amount
from gpuws.compat import _claims

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["select_devices"]


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("nvitop"), name)


class _Criteria(TypedDict, total=False):
    force_index: bool
    min_count: int
    max_count: int | None
    min_free_memory: int | str | None
    min_total_memory: int | str | None
    max_gpu_utilization: int | None
    max_memory_utilization: int | None
    tolerance: int
    free_accounts: Iterable[str] | None
    sort: bool


def _bytes(value: int | str | None) -> int | None:
    if isinstance(value, str):
        # nvitop also takes '8GB' and a number without unit.
        return int(value) if value.strip().isdigit() else amount(value)
    return value


@overload
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["index"] = "index",
    **criteria: Unpack[_Criteria],
) -> list[int]: ...
@overload
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["uuid"],
    **criteria: Unpack[_Criteria],
) -> list[str]: ...
@overload
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["device"],
    **criteria: Unpack[_Criteria],
) -> list[Any]: ...
def select_devices(
    devices: Iterable[Any] | None = None,
    *,
    format: Literal["index", "uuid", "device"] = "index",
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
) -> list[Any]:
    """Claims GPUs that satisfy the criteria, up to `max_count`, and returns them as indexes, UUIDs
    or devices of nvitop. `min_count` is not enforced, as in nvitop.

    MIG devices are not selected; claim them with `gpuws run --mig`.
    """
    if format not in ("index", "uuid", "device"):
        raise AssertionError(f"format is 'index', 'uuid' or 'device', not {format!r}")
    if tolerance < 0 or (max_count is not None and not 0 <= min_count <= max_count):
        if max_count == 0:
            return []
        raise AssertionError("tolerance is at least 0, and max_count at least min_count")
    if max_count == 0:
        return []
    loose = tolerance / 100
    among = None if devices is None else {_uuid(device) for device in devices}
    accounts = set(free_accounts or [])
    found = []
    # Details have the utilisation of the memory.
    from gpuws._look import status

    limits: list[tuple[int | None, int | None, float, bool]]
    for gpu in status(details=True).gpus:
        if gpu.error is not None or (among is not None and gpu.uuid not in among):
            continue
        activity = getattr(gpu.details, "activity", None)
        counted = sum(
            process.memory_bytes or 0 for process in gpu.processes if process.user in accounts
        )
        used = (gpu.memory_used_bytes or 0) - counted
        free = (gpu.memory_total_bytes or 0) - used
        busy = getattr(activity, "memory_percent", None)
        limits = [
            (_bytes(min_free_memory), free, 1 - loose, True),
            (_bytes(min_total_memory), gpu.memory_total_bytes or 0, 1 - loose, True),
            (max_gpu_utilization, gpu.utilization_percent, 100 * loose, False),
            (max_memory_utilization, busy, 100 * loose, False),
        ]
        strict = [_within(limit, value, is_least, None) for limit, value, _, is_least in limits]
        if all(_within(limit, value, is_least, by) for limit, value, by, is_least in limits):
            order = (strict.count(False), -free, -used, gpu.utilization_percent or 0, busy or 0)
            found.append(((*order, -gpu.index), gpu))
    if sort:
        found.sort(key=lambda each: each[0])
    gpus = {gpu.index: gpu for _, gpu in found}
    count = len(gpus) if max_count is None else max_count
    taken = _claims.take_up_to(gpus, count, accept_used=True)
    if format == "uuid":
        return [gpus[index].uuid for index in taken]
    if format == "device":
        nvitop = importlib.import_module("nvitop")
        return [nvitop.Device(index) for index in taken]
    return taken


def _within(limit: int | None, value: int | None, is_least: bool, by: float | None) -> bool:
    """Returns whether a value is within a limit, or within the limit loosened by this."""
    if limit is None:
        return True
    if value is None:
        return False
    if is_least:
        return value >= limit * (1 if by is None else by)
    return value <= limit + (0 if by is None else by)


def _uuid(device: Any) -> Any:
    uuid = device.uuid
    return uuid() if callable(uuid) else uuid
