from typing import Any

from gpuws._records import Status

__all__ = ["KerasGpus", "LightningGpus", "figures"]

def figures(look: Status | None = None) -> dict[str, float]: ...

# They derive from the callback of the framework that is installed, which may be none.
class LightningGpus(Any):
    def __init__(self, every: float = 10.0) -> None: ...

class KerasGpus(Any):
    def __init__(self) -> None: ...
