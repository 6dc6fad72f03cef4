"""Tests of how ghosts are made, with workers that hold nothing: python3 -m unittest test_ghosts"""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import ghost
import ghosts


def hold_nothing():
    return None


def namespaces_work():
    command = [*ghosts.namespace(), "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def lives(pid, start):
    """One that its new parent has not collected yet has ended all the same."""
    try:
        return ghost.start_of(pid) == start and ghosts.state_of(pid) not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Mechanics(unittest.TestCase):
    def setUp(self):
        self.started = ghosts.Started()
        self.ghosts = ghosts.Ghosts(self.started, [sys.executable, __file__, "--worker"])

    def tearDown(self):
        self.started.end_all()
        shutil.rmtree(self.ghosts.directory)

    def ends(self, pid, start):
        self.started.signal(pid, start, signal.SIGKILL)
        until = time.monotonic() + 20
        while lives(pid, start):
            self.assertLess(time.monotonic(), until, f"{pid} does not end")
            time.sleep(0.02)

    def test_a_plain_one_sleeps_and_is_known_by_its_start(self):
        pid, start = self.ghosts.plain()
        self.assertEqual(ghost.start_of(pid), start)
        self.assertEqual(ghosts.parent_of(pid), os.getpid())
        self.ends(pid, start)

    def test_a_stopped_one_is_stopped(self):
        pid, start = self.ghosts.stopped()
        until = time.monotonic() + 20
        while ghosts.state_of(pid) != "T":
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        self.ends(pid, start)

    def test_a_zombie_leader_has_a_living_thread(self):
        pid, start = self.ghosts.zombie_leader()
        self.assertEqual(ghosts.state_of(pid), "Z")
        others = [int(thread) for thread in os.listdir(f"/proc/{pid}/task") if int(thread) != pid]
        self.assertEqual(len(others), 1)
        with open(f"/proc/{pid}/task/{others[0]}/stat", encoding="utf-8") as file:
            self.assertIn(file.read().rpartition(")")[2].split()[0], "SR")
        self.started.signal(pid, start, signal.SIGKILL)
        until = time.monotonic() + 20
        while ghost.start_of(pid) == start:
            self.assertLess(time.monotonic(), until, "the threads do not end")
            time.sleep(0.02)

    def test_an_orphan_has_lost_its_parent_and_its_group_leader(self):
        pid, start = self.ghosts.orphan()
        parent = self.started.processes[0][0]
        self.assertNotEqual(ghosts.parent_of(pid), parent)
        group = int(ghosts.fields_of(pid)[2])
        self.assertEqual(group, parent)
        self.ends(pid, start)

    @unittest.skipUnless(namespaces_work(), "no PID namespace can be made here")
    def test_one_in_another_namespace_has_another_number_there(self):
        pid, start = self.ghosts.in_other_namespace()
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            numbers = [line.split()[1:] for line in file if line.startswith("NSpid:")][0]
        self.assertEqual((int(numbers[-2]), int(numbers[-1])), (pid, 1))
        self.ends(pid, start)

    def test_nobody_else_is_signalled(self):
        other = subprocess.Popen(["sleep", "60"])
        try:
            with self.assertRaises(ghosts.Failed):
                self.started.signal(other.pid, ghost.start_of(other.pid), signal.SIGKILL)
            # The number alone is not enough: it may have come to somebody else.
            self.started.add(other.pid, ghost.start_of(other.pid) - 1)
            self.started.signal(other.pid, ghost.start_of(other.pid) - 1, signal.SIGKILL)
            time.sleep(0.1)
            self.assertIsNone(other.poll())
        finally:
            other.kill()
            other.wait()

    def test_children_that_nobody_named_are_ended_too(self):
        parent, ready = self.ghosts.start("orphan")
        pid, start = self.ghosts.wait(parent, ready)
        self.assertNotIn((pid, start), self.started.processes)
        self.started.end_all()
        self.assertIn((pid, start), self.started.processes)
        self.ends(pid, start)

    def test_one_that_does_not_start_says_why(self):
        failing = ghosts.Ghosts(self.started, [sys.executable, "-c", "raise OSError('no cuda')"])
        with self.assertRaisesRegex(ghosts.Failed, "no cuda"):
            failing.plain()
        shutil.rmtree(failing.directory)


class Rows(unittest.TestCase):
    def test_what_others_print_stays_in_its_cell(self):
        text = ghosts.table([["a|b\n\x1b[31m", "c"]])
        lines = text.splitlines()
        self.assertEqual(len(lines), 3)
        self.assertEqual({line.count("|") for line in lines}, {len(ghosts.HEAD) + 1})
        self.assertNotIn("\x1b", text)

    def test_doctor_and_status_are_read(self):
        doctor = {"findings": [{"kind": "orphan", "suspects": [{"pid": 7, "confidence": "high"}]}]}
        self.assertEqual(ghosts.found_by_doctor(doctor, 7), "orphan (high)")
        self.assertEqual(ghosts.found_by_doctor(doctor, 8), "not named (findings: orphan)")
        process = {"pid": 7, "listed": True, "memory_bytes": 5 << 20}
        status = {"gpus": [{"uuid": "GPU-1", "processes": [process]}]}
        self.assertEqual(ghosts.shown_by_status(status, "GPU-1", 7), "5 MiB, listed")
        self.assertEqual(ghosts.shown_by_status(status, "GPU-2", 7), "not shown")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        del sys.argv[1]
        ghost.SHAPES = {shape: (run, hold_nothing) for shape, (run, _) in ghost.SHAPES.items()}
        ghost.main()
    else:
        unittest.main()
