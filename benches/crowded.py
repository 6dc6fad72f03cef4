#!/usr/bin/env python3
"""Measures commands beside the largest directories of leases that other users can write.

    gpuws sim dgx1-v100 --live -- unshare --mount benches/crowded.py GPUWS [ROUNDS [RUNS]]

Real processes, users, files and locks on a tmpfs of 64 MiB; the driver is simulated. Needs root.
Prints the median CPU time and the highest peak memory of a command, and how much each is above
that beside an empty directory. RUNS (1,000) runs then start at once beside the largest directory
of one user; all must be served.
"""

import fcntl
import os
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

FIRST_UID = 70_000
F_OFD_SETLK = 37


def text(number, names, size):
    """An entry with this number of names in at most `size` bytes."""
    identity = f"{number:012x}"
    head = f'{{"schema":1,"id":"{identity}","devices":['
    width = (size - len(head) - 2) // names - 3
    listed = (f'"{number:06x}{name:03x}'.ljust(width + 1, "0") + '"' for name in range(names))
    return identity, head + ",".join(listed) + "]}"


def write(directory, kind, number, names, size):
    identity, content = text(number, names, size)
    path = os.path.join(directory, f"{kind}-{identity}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        left = os.statvfs(directory)
        if left.f_bavail * left.f_bsize < ROOM:
            raise OSError("the file system is full")
        if os.write(descriptor, content.encode()) < len(content):
            raise OSError("the file system is full")
        fcntl.fcntl(descriptor, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        os.close(descriptor)
        os.unlink(path)
        raise
    return descriptor


def fill(shared, uid, kinds, ready):
    """Writes the entries of a user until a limit or the file system ends it, and holds them."""
    os.setgid(uid)
    os.setuid(uid)
    directory = os.path.join(shared, f"u{uid}")
    os.mkdir(directory, 0o755)
    total = 0
    try:
        for kind, parts in kinds:
            each = [(names, size) for count, names, size in parts for _ in range(count)]
            for number, (names, size) in enumerate(each):
                entry = write(directory, kind, number, names, size)
                total += 1
                if parts is DEAD:
                    os.close(entry)
    except OSError:
        pass
    os.write(ready, struct.pack("i", total))
    signal.pause()


LARGEST = [(4, 512, 32_000), (252, 64, 8_000)]
DEAD = [(288, 1, 100)]
MANY = [(256, 112, 4_000)]
SHORT = [(4, 2_048, 30_000), (252, 112, 8_100)]
DIRECTORIES = [
    ("empty", 0, []),
    ("one user, largest", 1, [("lease", LARGEST), ("try", LARGEST)]),
    ("one user, short names", 1, [("lease", SHORT), ("try", SHORT)]),
    ("eight users, largest", 8, [("lease", LARGEST)]),
    ("eight users, most", 8, [("lease", MANY), ("try", MANY)]),
    ("eight users, short names", 8, [("lease", SHORT), ("try", SHORT)]),
    ("eight users, dead", 8, [("lease", DEAD), ("kept", DEAD), ("try", DEAD)]),
]
# Without room for its own files, a claim fails.
ROOM = 128 << 10


class Directory:
    def __init__(self, users, kinds):
        self.path = tempfile.mkdtemp()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "tmpfs", self.path], check=True)
        self.children, self.entries = [], 0
        for user in range(users):
            read, ready = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                try:
                    fill(self.path, FIRST_UID + user, kinds, ready)
                finally:
                    os._exit(1)
            os.close(ready)
            self.children.append(child)
            self.entries += struct.unpack("i", os.read(read, 4))[0]
            os.close(read)

    def close(self):
        for child in self.children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        subprocess.run(["umount", self.path], check=True)
        os.rmdir(self.path)


def measure(command, environment):
    """Returns CPU milliseconds, wall milliseconds, the peak in KiB of the largest process, and the
    exit status."""
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        # At the end of its standard input, `claim --hold` gives its devices back.
        ended, writer = os.pipe()
        os.close(writer)
        output = os.open(os.devnull, os.O_WRONLY)
        errors = os.open(os.path.join(tempfile.gettempdir(), "crowded-errors"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, source in enumerate((ended, output, errors)):
            os.dup2(source, number)
        try:
            os.execvpe(command[0], command, environment)
        finally:
            os._exit(127)
    _, status, used = os.wait4(child, 0)
    wall = time.monotonic() - begin
    return (used.ru_utime + used.ru_stime) * 1e3, wall * 1e3, used.ru_maxrss, status


def main():
    gpuws = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (8_192, 8_192))
    commands = {
        "run": ["run", "--", "true"],
        "claim": ["claim", "--hold"],
        "leases": ["leases"],
        "status": ["status"],
        "export": ["export", "--textfile", "-"],
    }
    print(f"{'directory':26} {'command':8} {'CPU ms':>8} {'above':>7} {'wall':>7} {'above':>7} {'peak MiB':>8} {'above':>6}")
    failed = False
    base = {}
    for name, users, kinds in DIRECTORIES:
        directory = Directory(users, kinds)
        environment = dict(os.environ, GPUWS_CLAIMS=directory.path)
        print(f"{name}: {directory.entries} entries")
        for command, arguments in commands.items():
            taken = [measure([gpuws, *arguments], environment) for _ in range(rounds)]
            cpu, wall, peak = (statistics.median(one[i] for one in taken) for i in range(3))
            failures = sum(one[3] != 0 for one in taken)
            if failures:
                print(open(os.path.join(tempfile.gettempdir(), "crowded-errors")).read()[:300], file=sys.stderr)
            at = base.setdefault(command, (cpu, wall, peak))
            print(
                f"{'':26} {command:8} {cpu:8.1f} {cpu - at[0]:+7.1f} {wall:7.1f} {wall - at[1]:+7.1f} {peak / 1024:8.1f}"
                f" {(peak - at[2]) / 1024:+6.1f}" + (f"  {failures} FAILED" if failures else "")
            )
            failed |= failures > 0
        directory.close()
    directory = Directory(1, DIRECTORIES[1][2])
    environment = dict(os.environ, GPUWS_CLAIMS=directory.path)
    begin = time.monotonic()
    started = [
        subprocess.Popen([gpuws, "run", "--", "true"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(runs)
    ]
    served = sum(one.wait() == 0 for one in started)
    print(f"{served} of {runs} simultaneous runs served in {time.monotonic() - begin:.1f} s")
    directory.close()
    sys.exit(failed or served < runs)


main()
