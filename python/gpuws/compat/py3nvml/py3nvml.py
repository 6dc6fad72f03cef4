"""The functions of NVML, from nvidia-ml-py."""

from pynvml import *  # noqa: F403
