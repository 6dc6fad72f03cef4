import os
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from subprocess import Popen
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from gpuws import callbacks as callbacks
from gpuws import compat as compat
from gpuws import mem as mem
from gpuws import notebook as notebook
from gpuws._records import Claimed as Claimed
from gpuws._records import Device
from gpuws._records import Doctor as Doctor
from gpuws._records import Explained as Explained
from gpuws._records import Fitted as Fitted
from gpuws._records import IsolatedReport as IsolatedReport
from gpuws._records import Leases as Leases
from gpuws._records import Status as Status

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_S = TypeVar("_S")
_Path = str | os.PathLike[str]
_Gpus = int | str | Iterable[int | str]

__version__: str
__all__ = [
    "Claim",
    "Claimed",
    "CudaInitialized",
    "Doctor",
    "DriverError",
    "DriverTimeout",
    "Explained",
    "Fitted",
    "GpuwsError",
    "InvalidRequest",
    "IsolatedDied",
    "IsolatedError",
    "IsolatedReport",
    "IsolatedTimeout",
    "Leaked",
    "Leases",
    "NeverAvailable",
    "NotAvailable",
    "NotPermitted",
    "Status",
    "aclaim",
    "claim",
    "compat",
    "doctor",
    "find_gpuws_bin",
    "hold",
    "isolated",
    "leases",
    "mem",
    "notebook",
    "release",
    "sim",
    "status",
]

class GpuwsError(RuntimeError):
    kind: str
    hint: str | None
    def __init__(
        self, text: str = "", *, kind: str | None = None, hint: str | None = None
    ) -> None: ...

class NotAvailable(GpuwsError): ...
class NeverAvailable(GpuwsError): ...
class CudaInitialized(GpuwsError): ...
class DriverError(GpuwsError): ...
class DriverTimeout(DriverError, TimeoutError): ...
class NotPermitted(GpuwsError, PermissionError): ...
class InvalidRequest(GpuwsError, ValueError): ...
class Leaked(GpuwsError): ...

class IsolatedError(GpuwsError):
    report: IsolatedReport | None
    def __init__(
        self,
        text: str = "",
        *,
        kind: str | None = None,
        hint: str | None = None,
        report: IsolatedReport | None = None,
    ) -> None: ...

class IsolatedTimeout(IsolatedError, TimeoutError): ...
class IsolatedDied(IsolatedError): ...

class Claim:
    def __init__(self, wanted: dict[str, Any], quiet: bool) -> None: ...
    def __enter__(self) -> Claim: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def release(self) -> None: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def lease(self) -> str | None: ...
    @property
    def info(self) -> Claimed | None: ...
    @property
    def gpus(self) -> tuple[Device, ...]: ...
    @property
    def environment(self) -> dict[str, str]: ...

def claim(
    n: int = 1,
    *,
    mem: int | str | None = None,
    gpu: _Gpus | None = None,
    exclude: _Gpus | None = None,
    min_free: int | str | None = None,
    wait: bool = True,
    timeout: float | None = None,
    accept_used: bool = False,
    visible: Literal["uuid", "index"] = "uuid",
    quiet: bool = False,
) -> Claim: ...
def hold(n: int = 1, **terms: Any) -> Claim: ...
def aclaim(n: int = 1, **terms: Any) -> AbstractAsyncContextManager[Claim]: ...
def release() -> None: ...

class _Outcome(Generic[_R]):
    value: _R
    report: IsolatedReport

class _Isolated(Generic[_P, _R]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def outcome(self, *args: _P.args, **kwargs: _P.kwargs) -> _Outcome[_R]: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> _Isolated[_P, _R]: ...
    @overload
    def __get__(
        self: _Isolated[Concatenate[_S, _Q], _R], instance: _S, owner: type | None = None, /
    ) -> Callable[_Q, _R]: ...

@overload
def isolated(n: Callable[_P, _R]) -> _Isolated[_P, _R]: ...
@overload
def isolated(
    n: int = 1,
    *,
    mem: int | str | None = None,
    timeout: float | None = None,
    wait: bool = True,
    wait_timeout: float | None = None,
    grace: float = 10.0,
    **terms: Any,
) -> Callable[[Callable[_P, _R]], _Isolated[_P, _R]]: ...

class _Sim:
    machine: _Path
    def __enter__(self) -> _Sim: ...
    def __exit__(self, *ended: object) -> None: ...
    def start(self) -> _Sim: ...
    def stop(self) -> None: ...
    @property
    def path(self) -> str | None: ...
    def use(self, *gpus: int, mib: int = 500) -> Popen[bytes]: ...

def sim(machine: _Path = "labbox") -> _Sim: ...
def status(
    *, details: bool = False, sim: _Path | None = None, deadline: float = 30.0
) -> Status: ...
def doctor(
    *,
    samples: int = 1,
    every: float = 5.0,
    sim: _Path | None = None,
    deadline: float = 30.0,
    looks: int | None = None,
) -> Doctor: ...
def leases(*, sim: _Path | None = None, deadline: float = 30.0) -> Leases: ...
def find_gpuws_bin() -> str: ...
def load_ipython_extension(shell: Any) -> None: ...
def unload_ipython_extension(shell: Any) -> None: ...
