"""Prints the figures of nvitop's Python interface as one JSON object.

The figures have the same names as in nvml_figures.py.
"""

import json
import sys

import nvitop


def value(shown):
    """Returns a figure; None for nvitop's N/A, a string that also acts as a number."""
    return None if isinstance(shown, str) and shown == nvitop.NA else shown


def memory(device):
    """Returns the used and the total memory of a device.

    For a device without its own memory, nvitop shows the host's memory, which is not a figure of
    the device. The total then equals that of the host to the byte.
    """
    total = value(device.memory_total())
    if total == nvitop.host.virtual_memory().total:
        return None, None
    return value(device.memory_used()), total


def main():
    try:
        devices = nvitop.PhysicalDevice.all()
        nvitop.Device.driver_version()
    except nvitop.NVMLError as error:
        sys.exit(f"NVML returned {error}")
    if not devices and nvitop.Device.driver_version() == nvitop.NA:
        sys.exit("nvitop found no driver")
    found = {}
    for index, device in enumerate(devices):
        found[f"{index} name"] = value(device.name())
        found[f"{index} uuid"] = value(device.uuid())
        used, total = memory(device)
        found[f"{index} memory_used_bytes"] = used
        found[f"{index} memory_total_bytes"] = total
        found[f"{index} utilization_percent"] = value(device.gpu_utilization())
        found[f"{index} temperature_c"] = value(device.temperature())
        found[f"{index} power_draw_mw"] = value(device.power_draw())
        for pid, process in device.processes().items():
            found[f"{index} pid {pid} memory_bytes"] = value(process.gpu_memory())
    print(json.dumps(found))


main()
