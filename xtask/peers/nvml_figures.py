"""Prints the figures that nvidia-ml-py reads as one JSON object.

The name of a figure is "DEVICE FIELD" or "DEVICE pid PID FIELD", with the field name of
`gpuws status --json`. A value that NVML does not report is null.
"""

import json
import sys

import pynvml


def ask(function, *arguments):
    """Calls an NVML function; None if the device does not report the value."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def figures():
    """Reads all devices by index."""
    found = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        memory = handle and ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        utilization = handle and ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        found[f"{index} name"] = handle and ask(pynvml.nvmlDeviceGetName, handle)
        found[f"{index} uuid"] = handle and ask(pynvml.nvmlDeviceGetUUID, handle)
        found[f"{index} memory_used_bytes"] = memory and memory.used
        found[f"{index} memory_total_bytes"] = memory and memory.total
        found[f"{index} utilization_percent"] = utilization and utilization.gpu
        found[f"{index} temperature_c"] = handle and ask(
            pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
        )
        found[f"{index} power_draw_mw"] = handle and ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        lists = (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        )
        for process in [one for get in lists for one in (handle and ask(get, handle) or [])]:
            found[f"{index} pid {process.pid} memory_bytes"] = process.usedGpuMemory
    return found


def main():
    try:
        pynvml.nvmlInit()
        print(json.dumps(figures()))
    except pynvml.NVMLError as error:
        sys.exit(f"NVML returned {error}")


main()
