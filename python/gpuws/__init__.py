"""Claims shared GPUs, shows which processes use them, and frees their memory.

>>> import gpuws
>>> with gpuws.claim(2, timeout=600):
...     train()

See docs/python.md of the repository.
"""

from __future__ import annotations

from gpuws._claim import Claim, claim, hold, release
from gpuws._errors import (
    CudaInitialized,
    DriverError,
    DriverTimeout,
    GpuwsError,
    InvalidRequest,
    IsolatedDied,
    IsolatedError,
    IsolatedTimeout,
    Leaked,
    NeverAvailable,
    NotAvailable,
    NotPermitted,
)
from gpuws._look import doctor, leases, report, status, visible_gpus
from gpuws._program import find_gpuws_bin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuws import callbacks, compat, mem, notebook, place
    from gpuws._claim import aclaim
    from gpuws._isolated import Outcome, RemoteTraceback, isolated
    from gpuws._reap import reap
    from gpuws._records import (
        Claimed,
        Doctor,
        Explained,
        Fitted,
        IsolatedReport,
        Leases,
        PlacedGraph,
        PlacedModel,
        RanGraph,
        Reap,
        Report,
        ScheduledGraph,
        Status,
    )
    from gpuws._sim import sim
    from gpuws._terms import ClaimTerms

    __version__: str

__all__ = [
    "Claim",
    "ClaimTerms",
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
    "Outcome",
    "PlacedGraph",
    "PlacedModel",
    "RanGraph",
    "Reap",
    "RemoteTraceback",
    "Report",
    "ScheduledGraph",
    "Status",
    "aclaim",
    "callbacks",
    "claim",
    "compat",
    "doctor",
    "find_gpuws_bin",
    "hold",
    "isolated",
    "leases",
    "mem",
    "notebook",
    "place",
    "reap",
    "release",
    "report",
    "sim",
    "status",
    "visible_gpus",
]

# Modules that most programs do not need are imported at their first use.
_PLACES = {
    "_claim": ["aclaim"],
    "_isolated": ["Outcome", "RemoteTraceback", "isolated"],
    "_reap": ["reap"],
    "_records": [
        *("Claimed", "Doctor", "Explained", "Fitted", "IsolatedReport", "Leases", "PlacedGraph"),
        *("PlacedModel", "RanGraph", "Reap", "Report", "ScheduledGraph", "Status"),
    ],
    "_sim": ["sim"],
    "_terms": ["ClaimTerms"],
}
_LAZY = {name: module for module, names in _PLACES.items() for name in names}
_MODULES = ("callbacks", "compat", "mem", "notebook", "place")

if not TYPE_CHECKING:

    def __getattr__(name):
        import importlib

        if name in _LAZY:
            value = getattr(importlib.import_module(f"gpuws.{_LAZY[name]}"), name)
        elif name in _MODULES:
            value = importlib.import_module(f"gpuws.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("gpuws")
        else:
            raise AttributeError(f"module 'gpuws' has no attribute '{name}'")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Makes `%load_ext gpuws` work."""
    from gpuws import notebook

    notebook.load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Undoes `%load_ext gpuws`."""
    from gpuws import notebook

    notebook.unload_ipython_extension(shell)
