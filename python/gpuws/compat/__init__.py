"""The interfaces of other packages, on claims of gpuws.

Change the import, and each GPU that such a function returns is claimed for this process alone.

    from gpuws.compat import safe_gpu     # import safe_gpu, from safe_gpu import safe_gpu
    from gpuws.compat import GPUtil, gpustat, nvitop, py3nvml

Each GPU stays claimed until this process ends, or `gpuws.compat.release()`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuws.compat import GPUtil, gpustat, nvitop, py3nvml, safe_gpu

__all__ = ["GPUtil", "gpustat", "nvitop", "py3nvml", "release", "safe_gpu"]


def release() -> None:
    """Releases the GPUs that functions of this package have claimed for this process."""
    from gpuws.compat import _claims

    _claims.release()


if not TYPE_CHECKING:

    def __getattr__(name):
        if name in __all__:
            return importlib.import_module(f"gpuws.compat.{name}")
        raise AttributeError(f"module 'gpuws.compat' has no attribute '{name}'")
