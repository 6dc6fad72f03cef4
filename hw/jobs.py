"""Runs PyTorch jobs on one GPU through gpuws, and says whether what it promises holds.

Usage: jobs.py DIR SECONDS

DIR gets what every program printed, and jobs.md, the table of the report. It runs only where
GPUWS_HW_GPU names a GPU by its UUID, and signals only processes that it started itself and has not
waited for yet.
"""

import ctypes
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GPUWS = str(HERE / "bin" / "gpuws")
JOB = [sys.executable, str(HERE / "job.py")]

# The settings of PyTorch's allocator under which a job is recorded.
SETTINGS = {
    "": "default settings",
    "expandable_segments:True": "expandable segments",
    "max_split_size_mb:64,garbage_collection_threshold:0.6": "a split size and a threshold",
    "roundup_power2_divisions:4": "rounded sizes",
}
# Seconds for which the views run, and how much memory a process may still hold after its end.
VIEWED = 15
SLACK_MIB = 64
SUBREAPER = 36


class Jobs:
    """Starts programs, each in a session of its own, and keeps what they print."""

    def __init__(self, raw, gpu):
        self.raw = raw
        self.gpu = gpu
        self.started = []
        # What a program leaves behind is this program's child then, and its CPU time is counted.
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)

    def start(self, name, words, env=None):
        with open(self.raw / f"{name}.txt", "wb") as log:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self.started.append(child)
        return child

    def run(self, name, words, seconds=60, env=None):
        """Runs a program to its end; returns what it printed and its code."""
        child = self.start(name, words, env)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end(child)
            code = None
        return self.said(name), code

    def said(self, name):
        return (self.raw / f"{name}.txt").read_text(encoding="utf-8", errors="replace")

    def job(self, name, shape, seconds):
        """Starts a job and waits until it has its memory."""
        child = self.start(name, [*JOB, shape, str(seconds)])
        until = time.monotonic() + 60
        while "ready" not in self.said(name):
            if child.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} did not start: {self.said(name)[-200:]}")
            time.sleep(0.1)
        return child

    def end(self, *children):
        """Ends children, with three seconds for all of them to end by themselves. A stopped one is
        continued. Popen signals nobody that it has waited for."""
        for number in (signal.SIGTERM, signal.SIGCONT):
            for child in children:
                child.send_signal(number)
        until = time.monotonic() + 3
        for child in children:
            try:
                child.wait(max(0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
        for child in children:
            child.wait()

    def end_all(self):
        self.end(*self.started)

    def memory_used(self):
        query = ["nvidia-smi", f"--id={self.gpu}", "--query-gpu=memory.used"]
        done = subprocess.run(
            [*query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return int(done.stdout.split()[0])

    def gpuws_run(self, name, options, command, seconds=60, env=None):
        """Runs a command on the GPU through `gpuws run`; returns its report, and what it printed."""
        words = [GPUWS, "run", "--gpu", self.gpu, "--json", *options, "--", *command]
        said, _ = self.run(name, words, seconds, env)
        reports = [line for line in said.splitlines() if line.startswith('{"schema"')]
        return (json.loads(reports[-1]) if reports else {}), said

    def view(self, words, seconds):
        """Runs a program on a terminal of 120 × 40 until a key ends it. Returns the
        milliseconds of CPU time of it and its descendants, and those until it first showed a
        value."""
        begun = time.monotonic()
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
                os.environ.setdefault("TERM", "xterm-256color")
                os.execvp(words[0], words)
            finally:
                os._exit(127)
        shown, first, quits = b"", None, None
        while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            now = time.monotonic() - begun
            if quits is None and now > seconds:
                os.write(terminal, b"q")
                quits = now
            if quits is not None and now > quits + 10:
                os.kill(pid, signal.SIGKILL)
            if not select.select([terminal], [], [], 0.05)[0]:
                continue
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                # Its last process has closed the terminal, and ends.
                time.sleep(0.02)
                continue
            if first is None and re.search(rb"\d.{0,20}[GM]iB", shown):
                first = time.monotonic() - begun
        os.close(terminal)
        cpu = of_usage(os.wait4(pid, 0)[2]) + self.left_behind()
        return cpu, None if first is None else first * 1000

    def left_behind(self):
        """Returns the CPU time of what ends within 2 s and was not started here: what a program
        left behind."""
        own = [child.pid for child in self.started]
        cpu, until = 0, time.monotonic() + 2
        while time.monotonic() < until:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if ended and ended.si_pid not in own:
                cpu += of_usage(os.wait4(ended.si_pid, 0)[2])
            else:
                time.sleep(0.02)
        return cpu


def last_line(said):
    return next((line for line in reversed(said.splitlines()) if line.strip()), "no word")[-160:]


def of_usage(usage):
    return (usage.ru_utime + usage.ru_stime) * 1000


def limit(jobs):
    """A share is what the job gets, with its context."""
    _, said = jobs.gpuws_run("limit", ["--mem", "6GiB"], [*JOB, "fill", "8"])
    sizes = re.search(r"got (\d+) MiB, listed with (\d+) MiB", said)
    if not sizes:
        return last_line(said), False
    got, listed = map(int, sizes.groups())
    text, _ = jobs.run("limit-explain", [GPUWS, "mem", "explain", str(jobs.raw / "limit.txt")])
    cause = next(iter(text.strip().splitlines()), "no explanation")
    return f"{got} MiB allocated, {listed} MiB of the GPU; {cause}", 4096 <= listed <= 6144


def left_behind(jobs):
    before = jobs.memory_used()
    command = ["sh", "-c", 'setsid "$@" >/dev/null 2>&1 & sleep 10', "sh", *JOB, "idle", "120"]
    report, said = jobs.gpuws_run("left-behind", [], command)
    after = jobs.memory_used()
    ended = len(report.get("left_behind") or [])
    found = f"{ended} processes left behind; {before} → {after} MiB"
    return found if report else last_line(said), ended > 0 and after <= before + SLACK_MIB


def one_at_a_time(jobs):
    first = jobs.start("first", [GPUWS, "run", "--gpu", jobs.gpu, "--", *JOB, "busy", "15"])
    until = time.monotonic() + 60
    while "ready" not in jobs.said("first") and time.monotonic() < until:
        time.sleep(0.1)
    words = [GPUWS, "run", "--gpu", jobs.gpu]
    _, refused = jobs.run("second", [*words, "--no-wait", "--", "true"])
    _, waited = jobs.run("third", [*words, "--timeout", "60s", "--", "true"], 90)
    first_ended = first.poll() is not None
    found = f"while the first runs: exit {refused}; in the queue: exit {waited}"
    return found, (refused, waited, first_ended) == (75, 0, True)


def time_limit(jobs):
    before = jobs.memory_used()
    words = [GPUWS, "run", "--gpu", jobs.gpu, "--time-limit", "10s", "--", *JOB, "idle", "120"]
    _, code = jobs.run("time-limit", words, 90)
    after = jobs.memory_used()
    return f"exit {code}; {before} → {after} MiB", code == 124 and after <= before + SLACK_MIB


def replay(jobs, settings):
    file = jobs.raw / "job.pickle"
    file.unlink(missing_ok=True)
    env = {"PYTORCH_CUDA_ALLOC_CONF": settings, "PYTORCH_ALLOC_CONF": settings} if settings else {}
    name = f"replay-{re.sub('[^a-z0-9]+', '-', settings) or 'default'}"
    said, _ = jobs.run(f"{name}-record", [*JOB, "record", str(file)], env=env)
    if not file.exists():
        return last_line(said), False
    said, _ = jobs.run(name, [GPUWS, "mem", "replay", str(file), "--json"])
    try:
        answer = json.loads(said)
    except ValueError:
        return last_line(said), False
    tallies = {key: answer.get(key) for key in ("addresses", "segments", "segments_freed")}
    found = ", ".join(
        f"{one['predicted_count']} of {one['recorded_count']} {key.replace('_', ' ')}"
        for key, one in tallies.items()
        if one
    )
    exact = all(one and one["predicted_count"] == one["recorded_count"] for one in tallies.values())
    return found or "no segments in the recording", exact


def history(jobs):
    directory = Path(tempfile.mkdtemp(prefix="gpuws-hw-"))
    try:
        job = jobs.job("recorded-job", "busy", 60)
        words = [GPUWS, "record", "--for", "15s", "--every", "1s", str(directory / "history")]
        _, recorded = jobs.run("record", words)
        jobs.end(job)
        words = [GPUWS, "report", str(directory / "history"), "--by", "gpu", "--format", "csv"]
        said, code = jobs.run("report", words)
        lines = said.strip().splitlines()
        found = f"record: exit {recorded}; report: exit {code}; {lines[-1] if lines else 'no row'}"
        return found, (recorded, code) == (0, 0) and len(lines) > 1
    finally:
        shutil.rmtree(directory)


def stopped_is_told(jobs):
    """A watcher tells of a process that holds memory and cannot compute."""
    job = jobs.job("stopped-job", "idle", 60)
    policy = jobs.raw / "policy.toml"
    policy.write_text('[findings]\nmin_confidence = "possible"\nafter = "2s"\nmin_memory = "0.5GiB"\n')
    try:
        job.send_signal(signal.SIGSTOP)
        words = [GPUWS, "watch", "--every", "1s", "--for", "10s", "--policy", str(policy), "--json"]
        said, code = jobs.run("watch", words)
    finally:
        jobs.end(job)
    events = [json.loads(line)["event"] for line in said.splitlines() if line.startswith("{")]
    # A process this young may be no finding: then nothing was shown.
    return f"exit {code}; events: {', '.join(events) or 'none'}", bool(events) or None


def views(jobs):
    """CPU time of the views that stay open, one after the other, beside a busy and an idle job, and
    the fields of those processes beside nvidia-smi's."""
    tools = {"gpuws top": [GPUWS, "top"]}
    if shutil.which("nvtop"):
        tools["nvtop"] = ["nvtop", "-d", "10"]
    both = [jobs.job("viewed-busy", "busy", 240), jobs.job("viewed-idle", "idle", 240)]
    fields, _ = jobs.run("compare-jobs", [sys.executable, str(HERE / "compare.py"), str(jobs.raw)])
    found = {name: [] for name in tools}
    for _ in range(2):
        for name, words in tools.items():
            found[name].append(jobs.view(words, VIEWED))
    jobs.end(*both)
    words = [
        f"{name}: {' and '.join(f'{cpu:.0f}' for cpu, _ in runs)} ms of CPU time in {VIEWED} s, "
        f"first value after {' and '.join('?' if at is None else f'{at:.0f}' for _, at in runs)} ms"
        for name, runs in found.items()
    ]
    said = "; ".join([*words, last_line(fields)])
    return said, all(at is not None for _, at in found["gpuws top"])


def mps(jobs):
    """A limit that the MPS server enforces on a program that knows no limit."""
    if not shutil.which("nvidia-cuda-mps-control"):
        return "no MPS on this machine", None
    directory = Path(tempfile.mkdtemp(prefix="gpuws-hw-mps-"))
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": str(directory / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(directory / "log"),
        "CUDA_VISIBLE_DEVICES": jobs.gpu,
    }
    for name in ("pipe", "log"):
        (directory / name).mkdir()
    control = "nvidia-cuda-mps-control"
    said, code = jobs.run("mps-start", [control, "-d"], 20, env)
    if code != 0:
        return f"the server does not start: {last_line(said)}", None
    del env["CUDA_VISIBLE_DEVICES"]
    try:
        # With the settings of JAX, PyTorch knows no limit: only the server can keep it.
        options = ["--mem", "4GiB", "--framework", "jax"]
        _, said = jobs.gpuws_run("mps", options, [*JOB, "fill", "6"], env=env)
        sizes = re.search(r"got (\d+) MiB", said)
        if not sizes:
            return last_line(said), False
        return f"{sizes[1]} MiB allocated of a share of 4,096", 2048 <= int(sizes[1]) < 4096
    finally:
        # The job has ended, so the server has no client to wait for.
        _, code = jobs.run("mps-end", ["sh", "-c", f"echo quit | {control}"], 20, env)
        # Else somebody has to end it through this directory.
        if code == 0:
            shutil.rmtree(directory, ignore_errors=True)


CHECKS = [
    ("a share of 6 GiB", limit),
    ("a process that a run leaves behind", left_behind),
    ("one run at a time", one_at_a_time),
    ("a time limit of 10 s", time_limit),
    *(
        (f"a replay, {about}", lambda jobs, settings=settings: replay(jobs, settings))
        for settings, about in SETTINGS.items()
    ),
    ("a history of 15 s", history),
    ("a watcher beside a stopped process", stopped_is_told),
    ("a share of 4 GiB under MPS", mps),
    ("the views", views),
]


def main():
    raw, seconds = Path(sys.argv[1]), float(sys.argv[2])
    gpu = os.environ.get("GPUWS_HW_GPU", "")
    if not gpu.startswith("GPU-"):
        sys.exit("GPUWS_HW_GPU names no GPU: nothing is run")
    until = time.monotonic() + seconds
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    jobs = Jobs(raw, gpu)
    lines = ["| job | what was found | as expected |\n", "|---|---|---|\n"]
    try:
        for title, check in CHECKS:
            if time.monotonic() > until:
                found, good = "not tried: out of time", None
            else:
                try:
                    found, good = check(jobs)
                except Exception as failure:
                    found, good = f"could not be run: {type(failure).__name__}: {failure}", False
            clean = "".join(c if c.isprintable() else " " for c in found).replace("|", "/")
            lines.append(f"| {title} | {clean} | {'' if good is None else 'yes' if good else 'NO'} |\n")
            print(lines[-1], end="", flush=True)
    finally:
        jobs.end_all()
        (raw / "jobs.md").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
