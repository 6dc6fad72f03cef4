from collections.abc import Container, Iterable
from typing import Any

__version__: str

class GPU:
    id: int
    uuid: str
    load: float
    memoryUtil: float
    memoryTotal: float
    memoryUsed: float
    memoryFree: float
    driver: str
    name: str
    serial: str
    display_mode: str
    display_active: str
    temperature: float
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
    ) -> None: ...

def getGPUs() -> list[GPU]: ...
def getAvailability(
    GPUs: Iterable[GPU],
    maxLoad: float = 0.5,
    maxMemory: float = 0.5,
    memoryFree: float = 0,
    includeNan: bool = False,
    excludeID: Container[int] = [],
    excludeUUID: Container[str] = [],
) -> list[int]: ...
def getAvailable(
    order: str = "first",
    limit: int = 1,
    maxLoad: float = 0.5,
    maxMemory: float = 0.5,
    memoryFree: float = 0,
    includeNan: bool = False,
    excludeID: Container[int] = [],
    excludeUUID: Container[str] = [],
) -> list[int]: ...
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
) -> list[int]: ...
def showUtilization(
    all: bool = False,
    attrList: Iterable[Iterable[dict[str, Any]]] | None = None,
    useOldCode: bool = False,
) -> None: ...
