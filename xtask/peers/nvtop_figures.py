"""Starts nvtop on a terminal of its own, and prints the figures on its screen as one JSON object.

Usage: nvtop_figures.py NVTOP. The names are those of nvml_figures.py, with what nvtop rounds under
names of their own. nvtop 3.0 has no output for scripts, so its screen is read.
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

COLUMNS, LINES, SECONDS = 200, 160, 4.0

DEVICE = re.compile(r"Device (\d+) \[(.*?)\]")


def screen_of(program):
    """Runs a program on a terminal until its screen stands still; returns the lines and whether
    it was still running."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="linux", LANG="C.UTF-8")
        os.execv(program, [program, "--no-color", "--delay", "10"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    until = time.monotonic() + SECONDS
    drawn = False
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([terminal], [], [], min(left, 1.0 if drawn else left))
        if not ready:
            break
        try:
            stream.feed(os.read(terminal, 65536))
        except OSError:
            break
        drawn = any(DEVICE.search(line) for line in screen.display)
    ended, _ = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [line.rstrip() for line in screen.display if line.strip()], not ended


def main():
    lines, running = screen_of(sys.argv[1])
    if os.environ.get("PEERS_SHOW_SCREEN"):
        sys.stderr.write("\n".join(lines) + "\n")
    print(json.dumps({"lines": lines, "running": running}))


main()
