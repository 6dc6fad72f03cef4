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
from gpuws._look import doctor, leases, status
from gpuws._program import find_gpuws_bin

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

# Modules that most programs do not need are imported at their first use.
_RECORDS = ("Claimed", "Doctor", "Explained", "Fitted", "IsolatedReport", "Leases", "Status")
_LAZY = {
    **dict.fromkeys(_RECORDS, "_records"),
    "aclaim": "_claim",
    "isolated": "_isolated",
    "sim": "_sim",
}
_MODULES = ("callbacks", "compat", "mem", "notebook")


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


def __dir__():
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell):
    """Makes `%load_ext gpuws` work."""
    from gpuws import notebook

    notebook.load_ipython_extension(shell)


def unload_ipython_extension(shell):
    """Undoes `%load_ext gpuws`."""
    from gpuws import notebook

    notebook.unload_ipython_extension(shell)
