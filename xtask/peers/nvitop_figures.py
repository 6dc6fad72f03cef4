"""Prints what nvitop's Python interface shows, as one JSON object of figures.

The names are those of nvml_figures.py.
"""

import json
import sys

import nvitop


def value(shown):
    """Returns a figure; None for nvitop's N/A, which is a text that is also a number."""
    return None if isinstance(shown, str) and shown == nvitop.NA else shown


def main():
    try:
        devices = nvitop.PhysicalDevice.all()
        nvitop.Device.driver_version()
    except nvitop.NVMLError as error:
        sys.exit(f"NVML says: {error}")
    if not devices and nvitop.Device.driver_version() == nvitop.NA:
        sys.exit("nvitop finds no driver")
    found = {}
    for index, device in enumerate(devices):
        found[f"{index} name"] = value(device.name())
        found[f"{index} uuid"] = value(device.uuid())
        found[f"{index} memory_used_bytes"] = value(device.memory_used())
        found[f"{index} memory_total_bytes"] = value(device.memory_total())
        found[f"{index} utilization_percent"] = value(device.gpu_utilization())
        found[f"{index} temperature_c"] = value(device.temperature())
        found[f"{index} power_draw_mw"] = value(device.power_draw())
        for pid, process in device.processes().items():
            found[f"{index} pid {pid} memory_bytes"] = value(process.gpu_memory())
    print(json.dumps(found))


main()
