"""The exceptions. Each has a kind, which does not change between versions, and a hint."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuws._records import IsolatedReport


class GpuwsError(RuntimeError):
    """A failure of gpuws."""

    kind = "failed"

    def __init__(self, text: str = "", *, kind: str | None = None, hint: str | None = None) -> None:
        super().__init__(text if hint is None else f"{text}\nhint: {hint}")
        self.kind = kind or type(self).kind
        self.hint = hint


class NotAvailable(GpuwsError):
    """No GPUs are available now, or none became available within the timeout."""

    kind = "not-available"


class NeverAvailable(GpuwsError):
    """This machine, or the enclosing lease, can never provide the GPUs."""

    kind = "never-available"


class CudaInitialized(GpuwsError):
    """CUDA is initialised in this process, so a claim could no longer select its GPUs."""

    kind = "cuda-initialized"


class DriverError(GpuwsError):
    """The driver is missing, or does not work."""

    kind = "driver"


class DriverTimeout(DriverError, TimeoutError):
    """The driver does not answer."""

    kind = "timed-out"


class NotPermitted(GpuwsError, PermissionError):
    """This user may not do that."""

    kind = "not-permitted"

    def __init__(self, text: str = "", *, kind: str | None = None, hint: str | None = None) -> None:
        GpuwsError.__init__(self, text, kind=kind, hint=hint)


class InvalidRequest(GpuwsError, ValueError):
    """The arguments are invalid, or name an object that does not exist."""

    kind = "invalid"


class Leaked(GpuwsError):
    """A test has left GPU memory or processes behind."""

    kind = "leaked"


class IsolatedError(GpuwsError):
    """An isolated function returned no result. `report` lists the ended processes, or is None."""

    kind = "isolated"

    def __init__(
        self,
        text: str = "",
        *,
        kind: str | None = None,
        hint: str | None = None,
        report: IsolatedReport | None = None,
    ) -> None:
        super().__init__(text, kind=kind, hint=hint)
        self.report = report


class IsolatedTimeout(IsolatedError, TimeoutError):
    """An isolated function reached its time limit and was ended."""

    kind = "isolated-timed-out"


class IsolatedDied(IsolatedError):
    """The process of an isolated function has ended without a result."""

    kind = "isolated-died"


_CLASSES: dict[str, type[GpuwsError]] = {
    found.kind: found
    for found in (
        NotAvailable,
        NeverAvailable,
        CudaInitialized,
        DriverError,
        DriverTimeout,
        NotPermitted,
        InvalidRequest,
    )
}


def error(kind: str, text: str, hint: str | None) -> GpuwsError:
    """Returns the exception of a kind. Called by `_gpuws`."""
    return _CLASSES.get(kind, GpuwsError)(text, kind=kind, hint=hint)
