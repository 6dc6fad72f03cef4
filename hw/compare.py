"""Asks nvidia-smi and gpuws for every field that both know, and says where they differ.

Usage: compare.py DIR

DIR gets compare.md, a table of the differing values, and compare.txt, the fields that only
nvidia-smi has. nvidia-smi is asked before and after gpuws: a value of gpuws that equals one of the
two is no difference.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

SUBJECTS = ["gpu", "compute-apps"]
# It is different each time.
CHANGING = "timestamp"


def output(words):
    """Returns what a program prints; nothing if it cannot be run or does not end."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def fields_of_nvidia_smi(subject):
    """Returns the fields of nvidia-smi's help, in which each stands quoted at a line's start."""
    return re.findall(r'^"([\w.]+)"', output(["nvidia-smi", f"--help-query-{subject}"]), re.M)


def fields_of_gpuws(subject):
    return set(re.findall(r"[\w.]+", output(["gpuws", "query", f"--help-query-{subject}"])))


def rows(tool, subject, fields):
    """Returns the rows of a query, without the header."""
    text = output([*tool, f"--query-{subject}={','.join(fields)}", "--format=csv"])
    return list(csv.reader(text.splitlines(), skipinitialspace=True))[1:]


def differences(subject, fields):
    """Returns rows of a table: row and field, nvidia-smi's values before and after, gpuws's."""
    before = rows(["nvidia-smi"], subject, fields)
    ours = rows(["gpuws", "query"], subject, fields)
    after = rows(["nvidia-smi"], subject, fields)
    found = []
    # A machine may have no process, but not no GPU.
    none = subject == "gpu" and not ours
    if none or not len(before) == len(ours) == len(after):
        found.append((f"rows of {subject}", len(before), len(ours), len(after)))
    for number, row in enumerate(zip(before, ours, after)):
        if any(len(values) != len(fields) for values in row):
            found.append((f"row {number} of {subject}", *map(len, row)))
            continue
        for field, first, our, last in zip(fields, *row):
            if our not in (first, last):
                found.append((f"{number} {field}", first, our, last))
    return found


def compare(raw):
    """Writes both files; returns the number of fields that were compared."""
    table = ["row and field", "nvidia-smi before", "gpuws", "nvidia-smi after"]
    lines, missing, count = [table, ["---"] * len(table)], [], 0
    for subject in SUBJECTS:
        ours = fields_of_gpuws(subject)
        known, unknown = [], []
        for field in fields_of_nvidia_smi(subject):
            (known if field in ours else unknown).append(field)
        known = [field for field in known if field != CHANGING]
        missing += [f"{subject} {field}" for field in unknown]
        count += len(known)
        lines += differences(subject, known) if known else [(f"no field of {subject}", "", "", "")]
    clean = lambda cell: "".join(c for c in str(cell) if c.isprintable()).replace("|", "/")
    text = "".join(f"| {' | '.join(map(clean, line))} |\n" for line in lines)
    (raw / "compare.md").write_text(text, encoding="utf-8")
    (raw / "compare.txt").write_text("".join(f"{name}\n" for name in missing), encoding="utf-8")
    print(f"{count} fields, {len(lines) - 2} values differ, {len(missing)} fields are not known")
    return count


if __name__ == "__main__":
    sys.exit(0 if compare(Path(sys.argv[1])) else 1)
