import os
from collections.abc import Iterable

from gpuws._records import Explained, Fitted

__all__ = ["explain", "fit", "limit"]

_Path = str | os.PathLike[str]

def explain(
    error: BaseException | str,
    *,
    live: bool = True,
    sim: _Path | None = None,
    deadline: float = 3.0,
) -> Explained: ...
def fit(
    recording: _Path | Iterable[_Path],
    *,
    device_memory: int | str | None = None,
    policy: str | Iterable[str] | None = None,
) -> Fitted: ...
def limit(
    size: int | str,
    *,
    context: int | str | None = None,
    gpu: int | str | Iterable[int | str] | None = None,
) -> dict[str, str]: ...
