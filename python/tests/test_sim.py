"""The simulated machine."""

import os
import subprocess
import sys

import pytest

import gpuws
from observed import alive, until

KILLED = """
import signal, sys, time, gpuws
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), signal.SIG_IGN)
machine = gpuws.sim("p100-ghost").start()
print(machine.path, machine.use(0).pid, flush=True)
time.sleep(600)
"""


# The second as under nohup, in the background of a shell without job control.
@pytest.mark.parametrize("ignored", [[], ["SIGHUP", "SIGINT", "SIGQUIT"]])
def test_next_simulation_removes_what_a_killed_process_has_left(ignored):
    command = [sys.executable, "-c", KILLED, *ignored]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    path, pid = process.stdout.readline().split()
    with gpuws.sim("labbox"):
        assert os.path.exists(path), "its process runs"
    process.kill()
    process.communicate(timeout=60)

    def is_removed():
        # Its last process may hold the directory for a moment longer.
        with gpuws.sim("labbox"):
            return not os.path.exists(path)

    until(is_removed)
    until(lambda: not alive(pid))
