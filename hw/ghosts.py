"""Makes processes that keep memory of one GPU as ghosts do, looks at each, and has gpuws free it.

Usage: ghosts.py DIR SECONDS

DIR gets what every program printed, and rows.md, the table of the report. It runs only where
GPUWS_HW_GPU names a GPU by its UUID, and makes nothing on another. It signals and has gpuws reap
only processes that it started itself, each known by its number and its start.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ghost

HERE = Path(__file__).resolve().parent
GPUWS = HERE / "bin" / "gpuws"

# Seconds that a ghost may take to have its memory; importing PyTorch is slow the first time.
PATIENCE = 60
# What may stay after the end of a process: the driver's own tables grow with the first context.
SLACK_MIB = 64


class Failed(Exception):
    """A ghost that could not be made, with the reason."""


class Started:
    """The processes that were started here, by number and start.

    Each has a session of its own, so that what it started in its turn is known by that session.
    """

    def __init__(self):
        self.processes = []

    def add(self, pid, start):
        self.processes.append((pid, start))

    def signal(self, pid, start, number):
        """Signals one of them; nobody when it is gone or is not of these."""
        if (pid, start) not in self.processes:
            raise Failed(f"process {pid} was not started here")
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # From here on the handle is of the process whose start is read.
            if ghost.start_of(pid) == start:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)

    def take_in_children(self):
        """Adds what is in the sessions of these: a session's number is not given again while
        somebody is in it."""
        leaders = dict(self.processes)
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            try:
                session, start = int(fields_of(pid)[3]), ghost.start_of(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if start is not None and start >= leaders.get(session, start + 1):
                self.processes.append((pid, start))

    def end_all(self):
        self.take_in_children()
        for pid, start in self.processes:
            self.signal(pid, start, signal.SIGKILL)


class Ghosts:
    """Starts processes in the shapes of ghost.py; `worker` is the command that does so."""

    def __init__(self, started, worker):
        self.started = started
        self.worker = worker
        self.directory = Path(tempfile.mkdtemp(prefix="gpuws-hw-"))

    def start(self, shape, before=()):
        """Starts a worker, behind the words `before`; returns its Popen and its ready file."""
        ready = self.directory / f"{shape}-{len(self.started.processes)}"
        with open(f"{ready}.log", "wb") as log:
            child = subprocess.Popen(
                [*before, *self.worker, shape, str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its own group too, so that the end of its leader leaves an orphan.
                start_new_session=True,
            )
        self.started.add(child.pid, ghost.start_of(child.pid))
        # Collects it when it ends: one that is dead and not collected would look like a ghost.
        threading.Thread(target=child.wait, daemon=True).start()
        return child, ready

    def wait(self, child, ready):
        """Waits until a worker has its memory; returns the number and start that it knows."""
        until = time.monotonic() + PATIENCE
        while not ready.exists():
            # A worker may end once another process has its memory and has said so.
            over = time.monotonic() > until or child.poll() is not None
            if over and not ready.exists():
                said = Path(f"{ready}.log").read_text(errors="replace").strip().splitlines()
                raise Failed(f"it did not start: {said[-1] if said else 'without a word'}")
            time.sleep(0.05)
        pid, start = map(int, ready.read_text().split())
        return pid, start

    def own(self, pid, start):
        """Takes in a process that a worker started."""
        self.started.add(pid, start)
        return pid, start

    def plain(self):
        return self.own(*self.wait(*self.start("plain")))

    def stopped(self):
        pid, start = self.plain()
        self.started.signal(pid, start, signal.SIGSTOP)
        return pid, start

    def zombie_leader(self):
        child, ready = self.start("zombie-leader")
        pid, start = self.own(*self.wait(child, ready))
        until = time.monotonic() + 5
        while state_of(pid) != "Z":
            if time.monotonic() > until:
                raise Failed(f"its first thread is in state {state_of(pid)}")
            time.sleep(0.05)
        return pid, start

    def orphan(self, shape="orphan"):
        parent, ready = self.start(shape)
        pid, start = self.own(*self.wait(parent, ready))
        self.started.signal(parent.pid, ghost.start_of(parent.pid), signal.SIGKILL)
        until = time.monotonic() + 5
        while parent_of(pid) == parent.pid:
            if time.monotonic() > until:
                raise Failed("its parent does not end")
            time.sleep(0.05)
        return pid, start

    def torch_orphan(self):
        return self.orphan("torch-orphan")

    def in_other_namespace(self):
        child, ready = self.start("plain", before=namespace())
        _, start = self.wait(child, ready)
        # In its namespace it has another number: out here it is the child of unshare.
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="utf-8") as file:
            children = [int(word) for word in file.read().split()]
        inside = [pid for pid in children if ghost.start_of(pid) == start]
        if len(inside) != 1:
            raise Failed(f"unshare has the children {children}")
        return self.own(inside[0], start)


def namespace():
    """Returns the words that run a command in a PID namespace of its own."""
    words = ["unshare", "--pid", "--fork", "--mount-proc"]
    return words if os.geteuid() == 0 else [words[0], "--user", "--map-root-user", *words[1:]]


def fields_of(pid):
    """Returns the fields of /proc/PID/stat from the state on."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def state_of(pid):
    return fields_of(pid)[0]


def parent_of(pid):
    return int(fields_of(pid)[1])


class Looks:
    """Runs programs that look, and keeps what they print."""

    def __init__(self, raw, gpu):
        self.raw = raw
        self.gpu = gpu

    def run(self, name, words, seconds=30):
        """Runs a program to its end; returns what it printed and its code."""
        try:
            done = subprocess.run(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
            out, said, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            out, said, code = late.stdout or b"", b"no answer in time", 124
        except OSError as error:
            out, said, code = b"", str(error).encode(), 127
        text = out.decode(errors="replace")
        with open(self.raw / f"{name}.txt", "w", encoding="utf-8") as file:
            file.write(f"$ {' '.join(map(str, words))}\n{text}")
            file.write(f"--- exit {code}\n{said.decode(errors='replace')}\n")
        return text, code

    def memory_used(self, name):
        """Returns the MiB in use on the GPU; None where nvidia-smi does not say."""
        query = "--query-gpu=memory.used"
        text, _ = self.run(name, ["nvidia-smi", f"--id={self.gpu}", query, *PLAIN])
        words = text.split()
        return int(words[0]) if words and words[0].isdigit() else None

    def listed(self, name, before=()):
        """Returns the processes that nvidia-smi lists on the GPU, with their MiB as it says."""
        query = "--query-compute-apps=pid,used_memory"
        text, _ = self.run(name, [*before, "nvidia-smi", f"--id={self.gpu}", query, *PLAIN])
        rows = [line.split(", ") for line in text.splitlines()]
        return {int(row[0]): row[1] for row in rows if len(row) == 2 and row[0].isdigit()}

    def gpuws(self, name, words, before=(), seconds=40):
        """Returns gpuws's answer as JSON; an empty object where there is none."""
        text, code = self.run(name, [*before, GPUWS, *words, "--json"], seconds)
        try:
            return json.loads(text), code
        except ValueError:
            return {}, code


PLAIN = ["--format=csv,noheader,nounits"]


def found_by_doctor(answer, pid):
    """Returns what gpuws doctor calls a process."""
    found = [
        f"{finding['kind']} ({suspect['confidence']})"
        for finding in answer.get("findings", [])
        for suspect in finding.get("suspects", [])
        if suspect.get("pid") == pid
    ]
    kinds = [finding["kind"] for finding in answer.get("findings", [])]
    return ", ".join(found) or f"not named (findings: {', '.join(kinds) or 'none'})"


def shown_by_status(answer, gpu, pid):
    """Returns how gpuws status shows a process on the GPU."""
    for device in answer.get("gpus", []):
        for process in device.get("processes", []) if device.get("uuid") == gpu else []:
            if process.get("pid") == pid:
                memory = process.get("memory_bytes")
                size = "memory not reported" if memory is None else f"{memory >> 20} MiB"
                return f"{size}, {'listed' if process.get('listed') else 'found by its files'}"
    return "not shown"


def refusals(report):
    """Returns why gpuws reap left processes alone, and what became of the others."""
    refused = [str(one.get("why")) for one in report.get("refused", [])]
    actions = (report.get("report") or {}).get("actions", [])
    return (
        "; ".join(refused + [json.dumps(action.get("outcome")) for action in actions]) or "no word"
    )


def word(value):
    return "?" if value is None else str(value)


def try_ghost(looks, started, title, make, elsewhere=False):
    """Makes one ghost, looks, has it reaped, looks again; returns the row of the table."""
    name = title.replace(" ", "-")
    before = looks.memory_used(f"{name}-1-before")
    try:
        pid, start = make()
    except (Failed, OSError) as failure:
        return [title, f"could not be made: {failure}", "", "", "", "", "", ""]
    held = looks.memory_used(f"{name}-2-held")
    listed = looks.listed(f"{name}-3-nvidia-smi")
    nvml = f"PID {pid} with {listed[pid]} MiB" if pid in listed else f"not PID {pid}"
    nvml += f" ({len(listed)} listed)"
    if elsewhere:
        there = looks.listed(f"{name}-4-nvidia-smi-third-namespace", namespace())
        nvml += f"; from a third namespace: {', '.join(map(str, there)) or 'nobody'}"
        answer, _ = looks.gpuws(f"{name}-5-doctor-third-namespace", ["doctor"], namespace())
        kinds = [finding["kind"] for finding in answer.get("findings", [])]
        abroad = f"; from a third namespace: {', '.join(kinds) or 'nothing'}"
    status, _ = looks.gpuws(f"{name}-6-status", ["status"])
    doctor, _ = looks.gpuws(f"{name}-7-doctor", ["doctor", "--looks", "3", "--every", "1"])
    called = found_by_doctor(doctor, pid) + (abroad if elsewhere else "")
    if ghost.start_of(pid) != start:
        return [title, nvml, shown_by_status(status, looks.gpu, pid), called, "gone by itself"]
    report, code = looks.gpuws(
        f"{name}-8-reap", ["reap", "--pid", str(pid), "--grace", "5", "--yes"], seconds=60
    )
    reaped = f"{'gone' if ghost.start_of(pid) != start else 'still there'}, exit {code}"
    reaped += f": {refusals(report)}" if code else ""
    after = looks.memory_used(f"{name}-9-after")
    back = None not in (before, held, after) and held > before and after <= before + SLACK_MIB
    started.signal(pid, start, signal.SIGKILL)
    return [
        title,
        nvml,
        shown_by_status(status, looks.gpu, pid),
        called,
        reaped,
        f"{word(before)} → {word(held)} → {word(after)}",
        "yes" if back else "NO",
    ]


HEAD = [
    "ghost",
    "NVML (nvidia-smi)",
    "gpuws status",
    "gpuws doctor",
    "gpuws reap",
    "MiB before → held → after",
    "memory back",
]


def table(rows):
    """Returns rows as a table; what other programs said is kept on its line and in its cell."""

    def clean(cell):
        return "".join(c for c in str(cell) if c.isprintable()).replace("|", "/")

    rows = [[*row, *[""] * (len(HEAD) - len(row))][: len(HEAD)] for row in rows]
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "".join(f"| {' | '.join(map(clean, line))} |\n" for line in lines)


def main():
    raw, seconds = Path(sys.argv[1]), float(sys.argv[2])
    gpu = os.environ.get("GPUWS_HW_GPU", "")
    if not gpu.startswith("GPU-"):
        sys.exit("GPUWS_HW_GPU names no GPU: nothing is made")
    until = time.monotonic() + seconds
    started = Started()
    ghosts = Ghosts(started, [sys.executable, str(HERE / "ghost.py")])
    looks = Looks(raw, gpu)
    # What ends this program ends what it started.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    rows = []
    try:
        for title, make, elsewhere in [
            ("sleeping process", ghosts.plain, False),
            ("other PID namespace", ghosts.in_other_namespace, True),
            ("orphaned worker", ghosts.orphan, False),
            ("orphaned torch worker", ghosts.torch_orphan, False),
            ("stopped process", ghosts.stopped, False),
            ("zombie leader", ghosts.zombie_leader, False),
        ]:
            if time.monotonic() > until:
                rows.append([title, "not tried: out of time"])
                continue
            rows.append(try_ghost(looks, started, title, make, elsewhere))
            started.end_all()
    finally:
        started.end_all()
        shutil.rmtree(ghosts.directory, ignore_errors=True)
        (raw / "rows.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
