from gpuws.compat import GPUtil as GPUtil
from gpuws.compat import gpustat as gpustat
from gpuws.compat import nvitop as nvitop
from gpuws.compat import py3nvml as py3nvml
from gpuws.compat import safe_gpu as safe_gpu

__all__ = ["GPUtil", "gpustat", "nvitop", "py3nvml", "release", "safe_gpu"]

def release() -> None: ...
