"""Arguments of a call, in the form that `_gpuws` takes."""

from __future__ import annotations

import operator
import os

from gpuws._errors import InvalidRequest
from gpuws._program import find_gpuws_bin


def machine(sim=None, deadline=30.0):
    """Returns this machine, that of the session, or the simulated one named by `sim`."""
    return {
        "program": find_gpuws_bin(),
        "sim": None if sim is None else os.fspath(sim),
        "deadline_s": seconds(deadline, "deadline"),
    }


def count(value, name, most=(1 << 32) - 1):
    """Returns a count of at least 1."""
    try:
        found = operator.index(value)
    except TypeError:
        found = 0
    if not 1 <= found <= most:
        raise InvalidRequest(f"failed to read {name}={value!r} as a number from 1 to {most}")
    return found


def seconds(value, name):
    """Returns a time in seconds, at least 0; an infinite time is 30 years."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    # A comparison with nan is false.
    if not found >= 0.0:
        raise InvalidRequest(f"failed to read {name}={value!r} as a number of seconds")
    return min(found, 1e9)


def amount(value):
    """Returns an amount of memory, such as "6GiB" or a number of bytes, in bytes."""
    if value is None:
        return None
    if isinstance(value, str):
        from gpuws._gpuws import parse_bytes

        return parse_bytes(value)
    try:
        found = 0 if isinstance(value, bool) or int(value) != value else int(value)
    except (TypeError, ValueError, OverflowError):
        found = 0
    if not 1 <= found < 1 << 64:
        raise InvalidRequest(
            f"failed to read '{value}' as an amount of memory", hint='use a text such as "6GiB"'
        )
    return found


def names(value):
    """Returns GPUs as texts: an index, a UUID, a range such as "0-3", or a list of these."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        value = [] if value is None else [value]
    texts = []
    for each in value:
        texts.extend(part.strip() for part in str(each).split(",") if part.strip())
    return texts


def among(value):
    """Returns the GPUs to choose from, as `names` does; an empty list is an error."""
    texts = names(value)
    if value is not None and not texts:
        raise InvalidRequest("failed to choose a GPU: the argument gpu names none")
    return texts
