"""Tests of the comparisons and of the views, without a GPU: python3 -m unittest test_jobs"""

import os
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import compare
import jobs

# Shows a value, leaves a child behind that computes for 0.3 s, and ends at `q`.
VIEW = """
import os, sys, termios, time, tty
tty.setraw(0)
print("12.5 GiB", flush=True)
if os.fork() == 0:
    os.setsid()
    while time.process_time() < 0.3:
        pass
    os._exit(0)
while os.read(0, 1) != b"q":
    pass
"""


class Views(unittest.TestCase):
    def setUp(self):
        self.raw = Path(tempfile.mkdtemp())
        self.jobs = jobs.Jobs(self.raw, "GPU-none")
        self.addCleanup(self.jobs.end_all)

    def test_the_cpu_time_of_a_child_that_is_left_behind_counts(self):
        cpu, first = self.jobs.view([sys.executable, "-c", VIEW], 0.5)
        self.assertGreaterEqual(cpu, 300)
        self.assertGreater(first, 0)

    def test_a_view_that_shows_no_value_is_told_from_one_that_does(self):
        _, first = self.jobs.view(["sh", "-c", "read line"], 0.1)
        self.assertIsNone(first)

    def test_a_program_that_cannot_be_run_is_no_copy_of_this_one(self):
        begun = time.monotonic()
        cpu, first = self.jobs.view(["/nonexistent"], 5)
        self.assertIsNone(first)
        self.assertLess(time.monotonic() - begun, 5)

    def test_stopped_children_end_and_their_end_is_not_waited_for_long(self):
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
        children = [
            self.jobs.start("stopped", ["sleep", "60"]),
            self.jobs.start("stubborn", [sys.executable, "-c", stubborn]),
        ]
        until = time.monotonic() + 20
        while "ready" not in self.jobs.said("stubborn") and time.monotonic() < until:
            time.sleep(0.02)
        for child in children:
            child.send_signal(signal.SIGSTOP)
        self.jobs.end_all()
        codes = [child.returncode for child in children]
        self.assertEqual(codes, [-signal.SIGTERM, -signal.SIGKILL])

    def test_a_program_that_does_not_end_is_ended(self):
        said, code = self.jobs.run("sleeps", ["sh", "-c", "echo begun; exec sleep 60"], seconds=1)
        self.assertEqual((said, code), ("begun\n", None))
        self.assertIsNotNone(self.jobs.started[0].poll())


class Comparisons(unittest.TestCase):
    def tool(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def test_values_that_differ_and_fields_that_one_lacks_are_told(self):
        raw = Path(tempfile.mkdtemp())
        self.bin = raw / "bin"
        self.bin.mkdir()
        # The power changes between the two queries of nvidia-smi.
        self.tool(
            "nvidia-smi",
            'case "$1" in --help-query-gpu) printf \'"timestamp"\\n"name"\\n"used" or "u"\\n"power"\\n"new"\\n\';;\n'
            "--help*) ;;\n"
            '*) n=$(wc -l < "$0.log" 2>/dev/null || echo 0); echo >> "$0.log"\n'
            'printf "name, used, power\\nA, 5 MiB, $n W\\n";; esac',
        )
        self.tool(
            "gpuws",
            'case "$2" in --help-query-gpu) echo "timestamp name used or u power";;\n'
            '--help*) ;; *) printf "name, used, power\\nA, 4 MiB, 1 W\\n";; esac',
        )
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        with mock.patch.dict(os.environ, {"PATH": path}):
            self.assertEqual(compare.compare(raw), 3)
        table = (raw / "compare.md").read_text(encoding="utf-8").splitlines()
        differs, lacks = table[2:]
        self.assertEqual(differs, "| 0 used | 5 MiB | 4 MiB | 5 MiB |")
        self.assertIn("no field of compute-apps", lacks)
        self.assertEqual((raw / "compare.txt").read_text(encoding="utf-8"), "gpu new\n")


if __name__ == "__main__":
    unittest.main()
