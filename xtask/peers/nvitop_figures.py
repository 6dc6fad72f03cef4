"""Prints what nvitop's Python interface shows, as one JSON object of figures.

The names are those of nvml_figures.py.
"""

import json
import sys

import nvitop


def value(shown):
    """Returns a figure; None for nvitop's N/A, which is a text that is also a number."""
    return None if isinstance(shown, str) and shown == nvitop.NA else shown


def memory(device):
    """Returns what is used and all there is of a device's memory.

    For a device without memory of its own nvitop shows that of the host, which is no figure of the
    device: it is found by the total, which is then the host's to the byte.
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
        sys.exit("nvitop finds no driver")
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
