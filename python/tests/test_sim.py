"""The simulated machine."""

import os
import subprocess
import sys

import gpuws
from observed import alive, until

KILLED = """
import time, gpuws
machine = gpuws.sim("p100-ghost").start()
print(machine.path, machine.use(0).pid, flush=True)
time.sleep(600)
"""


def test_next_simulation_removes_what_a_killed_process_has_left():
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    path, pid = process.stdout.readline().split()
    with gpuws.sim("labbox"):
        assert os.path.exists(path), "its process runs"
    process.kill()
    process.communicate()

    def is_removed():
        # Its last process may hold the directory for a moment longer.
        with gpuws.sim("labbox"):
            return not os.path.exists(path)

    until(is_removed)
    until(lambda: not alive(pid))
