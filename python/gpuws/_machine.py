"""The machine that a call is about, as `_gpuws` takes it."""

from __future__ import annotations

import os

from gpuws._program import find_gpuws_bin


def machine(sim=None, deadline=30.0):
    """Returns a machine: this one, or that of the session, or the simulated one named by `sim`."""
    return {
        "program": find_gpuws_bin(),
        "sim": None if sim is None else os.fspath(sim),
        "deadline_s": float(deadline),
    }


def amount(value):
    """Returns an amount of memory, such as "6GiB" or a number of bytes, in bytes."""
    if value is None:
        return None
    if isinstance(value, str):
        from gpuws._gpuws import parse_bytes

        return parse_bytes(value)
    if isinstance(value, bool) or int(value) != value or value < 1:
        from gpuws._errors import InvalidRequest

        raise InvalidRequest(
            f"failed to read '{value}' as an amount of memory", hint='use a text such as "6GiB"'
        )
    return int(value)


def names(value):
    """Returns GPUs as texts: an index, an UUID, a range such as "0-3", or a list of these."""
    if value is None:
        return []
    if isinstance(value, (str, int)):
        value = [value]
    texts = []
    for each in value:
        texts.extend(part.strip() for part in str(each).split(",") if part.strip())
    return texts
