"""Starts nvtop on a separate terminal, and prints the figures on its screen as one JSON object.

Usage: nvtop_figures.py NVTOP. The figures have the same names as in nvml_figures.py; figures that
nvtop rounds have separate names. nvtop 3.0 has no output for scripts, so this reads its screen.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

import pyte

COLUMNS, LINES = 200, 200
# The time limit for drawing, and the time for which the screen must not change.
SECONDS, QUIET = 10.0, 0.7

DEVICE = re.compile(r"Device (\d+) *\[(.*?)\]")
# Each of these occurs once per device, from left to right and from top to bottom.
UTILIZATION = re.compile(r"GPU\[\|* *(?:(\d+)%|N/A)\]")
MEMORY = re.compile(r"MEM\[\|* *(?:([\d.]+)Gi/([\d.]+)Gi|N/A)\]")
TEMPERATURE = re.compile(r"TEMP +(?:(\d+)°C|N/A)")
POWER = re.compile(r"POW +(\d+|N/A) ")
PROCESS = re.compile(r"^ *(\d+) +\S+ +(\d+) +(?:Compute|Graphic|Both G\+C) .*?(?:(\d+)MiB|N/A) ")


def screen_of(program):
    """Runs a program on a terminal until its screen stops changing; returns its lines, and its exit
    code if it exited by itself."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.environ.update(TERM="linux", LC_ALL="C.UTF-8")
        os.execv(program, [program, "--no-color", "--no-plot", "--delay", "600"])
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    until = time.monotonic() + SECONDS
    while (left := until - time.monotonic()) > 0:
        drawn = any("F10" in line for line in screen.display)
        ready, _, _ = select.select([terminal], [], [], min(left, QUIET) if drawn else left)
        if not ready:
            break
        try:
            stream.feed(os.read(terminal, 65536))
        except OSError:
            break
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    lines = [line.rstrip() for line in screen.display if line.strip()]
    return lines, os.waitstatus_to_exitcode(status) if ended else None


def whole(text):
    return int(text) if text and text.isdigit() else None


def thousandths(text):
    return round(float(text) * 1000) if text else None


def figures(lines):
    text = "\n".join(lines)
    found = {}
    devices = [(int(index), name) for index, name in DEVICE.findall(text)]
    for position, (index, name) in enumerate(devices):

        def nth(pattern):
            return (pattern.findall(text) + [None] * len(devices))[position]

        memory = nth(MEMORY) or ("", "")
        found[f"{index} name"] = None if name == "N/A" else name
        found[f"{index} utilization_percent"] = whole(nth(UTILIZATION))
        found[f"{index} temperature_c"] = whole(nth(TEMPERATURE))
        found[f"{index} power_draw_w"] = whole(nth(POWER))
        found[f"{index} memory_used_milligib"] = thousandths(memory[0])
        found[f"{index} memory_total_milligib"] = thousandths(memory[1])
    for line in lines:
        if process := PROCESS.match(line):
            pid, index, memory = process.groups()
            found[f"{index} pid {pid} memory_mib"] = whole(memory)
    return found


def main():
    lines, code = screen_of(sys.argv[1])
    if os.environ.get("PEERS_SHOW_SCREEN"):
        sys.stderr.write("\n".join(lines) + "\n")
    if code is not None or not any("Device" in line for line in lines):
        sys.exit(f"nvtop shows no device: {lines[-1] if lines else 'an empty screen'}")
    print(json.dumps(figures(lines)))


if __name__ == "__main__":
    main()
