"""The interface of GPUtil 1.4, on claims of gpuws.

Improvements: it imports on Python 3.12 and later, needs no nvidia-smi, and claims each GPU that
`getAvailable` returns for this process, in addition to those of earlier calls.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from gpuws.compat import _claims

if TYPE_CHECKING:
    from gpuws._records import Gpu, Status

__version__ = "1.4.0"
_MIB = 1 << 20


class GPU:
    """A GPU, with memory in MiB and load from 0 to 1; unknown values are nan."""

    def __init__(
        self,
        ID: int,
        uuid: str,
        load: float,
        memoryTotal: float,
        memoryUsed: float,
        memoryFree: float,
        driver: str,
        gpu_name: str,
        serial: str,
        display_mode: str,
        display_active: str,
        temp_gpu: float,
    ) -> None:
        self.id = ID
        self.uuid = uuid
        self.load = load
        self.memoryUtil = memoryUsed / memoryTotal if memoryTotal else math.nan
        self.memoryTotal = memoryTotal
        self.memoryUsed = memoryUsed
        self.memoryFree = memoryFree
        self.driver = driver
        self.name = gpu_name
        self.serial = serial
        self.display_mode = display_mode
        self.display_active = display_active
        self.temperature = temp_gpu


def _number(value: int | None, unit: int = 1) -> float:
    return math.nan if value is None else float(value // unit)


def _switch(value: bool | None) -> str:
    return {True: "Enabled", False: "Disabled", None: "N/A"}[value]


def _gpu(look: Status, gpu: Gpu) -> GPU:
    total, used = _number(gpu.memory_total_bytes, _MIB), _number(gpu.memory_used_bytes, _MIB)
    details = gpu.details
    serial = getattr(getattr(details, "product", None), "serial", None)
    attached = getattr(getattr(details, "modes", None), "display_attached", None)
    return GPU(
        gpu.index,
        gpu.uuid or "N/A",
        _number(gpu.utilization_percent) / 100,
        total,
        used,
        total - used,
        look.driver_version or "N/A",
        gpu.name or "N/A",
        serial or "N/A",
        _switch(attached),
        _switch(gpu.display_active),
        _number(gpu.temperature_c),
    )


def _look() -> Status:
    from gpuws._look import status

    return status(details=True)


def getGPUs() -> list[GPU]:
    """Returns all GPUs; none without a driver."""
    look = _look()
    return [_gpu(look, gpu) for gpu in look.gpus if gpu.error is None]


def getAvailability(
    GPUs: Iterable[GPU],
    maxLoad: float = 0.5,
    maxMemory: float = 0.5,
    memoryFree: float = 0,
    includeNan: bool = False,
    excludeID: Container[int] = [],
    excludeUUID: Container[str] = [],
) -> list[int]:
    """Returns 1 for each GPU within the limits, and 0 for the others, without a claim."""

    def below(value: float, limit: float) -> bool:
        return value < limit or (includeNan and math.isnan(value))

    return [
        int(
            gpu.memoryFree >= memoryFree
            and below(gpu.load, maxLoad)
            and below(gpu.memoryUtil, maxMemory)
            and gpu.id not in excludeID
            and gpu.uuid not in excludeUUID
        )
        for gpu in GPUs
    ]


def _key(order: str) -> Callable[[GPU], float]:
    def last_if_nan(value: float) -> float:
        return math.inf if math.isnan(value) else value

    keys: dict[str, Callable[[GPU], float]] = {
        "first": lambda gpu: gpu.id,
        "last": lambda gpu: -gpu.id,
        "random": lambda gpu: random.random(),
        "load": lambda gpu: last_if_nan(gpu.load),
        "memory": lambda gpu: last_if_nan(gpu.memoryUtil),
    }
    return keys.get(order, lambda gpu: 0)


def getAvailable(
    order: str = "first",
    limit: int = 1,
    maxLoad: float = 0.5,
    maxMemory: float = 0.5,
    memoryFree: float = 0,
    includeNan: bool = False,
    excludeID: Container[int] = [],
    excludeUUID: Container[str] = [],
) -> list[int]:
    """Claims up to `limit` GPUs within the limits, and returns their indexes, in the given order."""
    gpus = getGPUs()
    fits = getAvailability(
        gpus, maxLoad, maxMemory, memoryFree, includeNan, excludeID, excludeUUID
    )
    gpus = sorted((gpu for gpu, fit in zip(gpus, fits) if fit), key=_key(order))
    # A process below the limits may use them, as the original allows.
    taken = _claims.take_up_to([gpu.id for gpu in gpus], limit, accept_used=True)
    return taken


def getFirstAvailable(
    order: str = "first",
    maxLoad: float = 0.5,
    maxMemory: float = 0.5,
    attempts: int = 1,
    interval: float = 900,
    verbose: bool = False,
    includeNan: bool = False,
    excludeID: Container[int] = [],
    excludeUUID: Container[str] = [],
) -> list[int]:
    """Claims a GPU within the limits, and returns its index in a list; it tries `attempts` times,
    `interval` seconds apart, then raises RuntimeError."""
    for attempt in range(attempts):
        if verbose:
            print(f"Attempting ({attempt + 1}/{attempts}) to locate available GPU.")
        available = getAvailable(
            order, 1, maxLoad, maxMemory, 0, includeNan, excludeID, excludeUUID
        )
        if available:
            if verbose:
                print(f"GPU {available} located!")
            return available
        if attempt + 1 < attempts:
            time.sleep(interval)
    raise RuntimeError(
        f"Could not find an available GPU after {attempts} attempts with {interval} seconds "
        "interval."
    )


_SHORT = [("id", "ID", ""), ("load", "GPU", "%"), ("memoryUtil", "MEM", "%")]
_ALL = [
    ("id", "ID", ""),
    ("name", "Name", ""),
    ("serial", "Serial", ""),
    ("uuid", "UUID", ""),
    ("temperature", "GPU temp.", "C"),
    ("load", "GPU util.", "%"),
    ("memoryUtil", "Memory util.", "%"),
    ("memoryTotal", "Memory total", "MB"),
    ("memoryUsed", "Memory used", "MB"),
    ("memoryFree", "Memory free", "MB"),
    ("display_mode", "Display mode", ""),
    ("display_active", "Display active", ""),
]


def _column(attr: str, name: str, suffix: str) -> dict[str, Any]:
    scale = 100 if suffix == "%" else 1
    return {
        "attr": attr,
        "name": name,
        "suffix": suffix,
        "transform": lambda value: value * scale,
        "precision": 0,
    }


def showUtilization(
    all: bool = False,
    attrList: Iterable[Iterable[dict[str, Any]]] | None = None,
    useOldCode: bool = False,
) -> None:
    """Prints a table of the GPUs; `attrList` names columns as GPUtil does."""
    if attrList is None:
        attrList = [[_column(*each) for each in (_ALL if all else _SHORT)]]
    gpus = getGPUs()
    table = []
    for column in [each for group in attrList for each in group]:
        transform = column.get("transform", lambda value: value)
        values = [transform(getattr(gpu, column["attr"])) for gpu in gpus]
        form = f".{column['precision']}f" if "precision" in column else "f"
        cells = [
            (format(value, form) if isinstance(value, float) else str(value))
            + column.get("suffix", "")
            for value in values
        ]
        width = max(map(len, [column["name"], *cells]))
        align = str.ljust if any(isinstance(value, str) for value in values) else str.rjust
        table.append([column["name"].ljust(width), *(align(each, width) for each in cells)])
    lines = ["".join(f"| {each} " for each in line) + "|" for line in zip(*table)]
    print(lines[0])
    print("-" * len(lines[0]))
    for line in lines[1:]:
        print(line)
