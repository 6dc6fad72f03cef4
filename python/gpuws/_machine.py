"""Arguments of a call, in the form that `_gpuws` takes."""

from __future__ import annotations

import operator
import os

from gpuws._errors import InvalidRequest
from gpuws._program import find_gpuws_bin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuws._terms import Path


def machine(sim: Path | None = None, deadline: float = 30.0) -> dict[str, Any]:
    """Returns this machine, that of the session, or the simulated one named by `sim`."""
    return {
        "program": find_gpuws_bin(),
        "sim": None if sim is None else os.fspath(sim),
        "deadline_s": seconds(deadline, "deadline"),
    }


def count(value: Any, name: str, most: int = (1 << 32) - 1) -> int:
    """Returns a count of at least 1."""
    try:
        found = operator.index(value)
    except TypeError:
        found = 0
    if not 1 <= found <= most:
        raise InvalidRequest(f"failed to read {name}={value!r} as a number from 1 to {most}")
    return found


def seconds(value: Any, name: str) -> float:
    """Returns a time in seconds, at least 0; an infinite time is 30 years."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    # A comparison with nan is false.
    if not found >= 0.0:
        raise InvalidRequest(f"failed to read {name}={value!r} as a number of seconds")
    return min(found, 1e9)


def amount(value: Any) -> int:
    """Returns an amount of memory, such as "6GiB" or a number of bytes, in bytes."""
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


def mib(value: Any) -> str | None:
    """Returns an amount in the form that the program takes, rounded down to MiB, at least
    1 MiB; None for None."""
    return None if value is None else f"{max(amount(value) >> 20, 1)}MiB"


def version(value: Any) -> tuple[int, int]:
    """Returns a compute capability, such as "8.0" or (8, 0), as two numbers."""
    try:
        major, minor = map(int, value.split(".")) if isinstance(value, str) else value
        found = operator.index(major), operator.index(minor)
    except (TypeError, ValueError):
        found = -1, -1
    if not all(0 <= number < 1 << 32 for number in found):
        raise InvalidRequest(
            f"failed to read capability={value!r}", hint='use a text such as "8.0", or (8, 0)'
        )
    return found


def several(value: Any) -> list[Any]:
    """Returns a value, or those of a collection, as a list; an empty one for None."""
    if value is None:
        return []
    is_single = isinstance(value, (str, bytes)) or not hasattr(value, "__iter__")
    return [value] if is_single else list(value)


def each_of(value: Any, name: str) -> list[Any]:
    """Returns a value, or those of a collection, as a list. An empty collection is an error: without
    any, the option would not narrow its command."""
    found = several(value)
    if value is not None and not found:
        raise InvalidRequest(f"failed to read {name}={value!r}: it names none")
    return found


def names(value: Any) -> list[str]:
    """Returns GPUs as texts: an index, a UUID, a range such as "0-3", or a list of these."""
    parts = (part.strip() for each in several(value) for part in str(each).split(","))
    return [part for part in parts if part]


def among(value: Any) -> list[str]:
    """Returns the GPUs to choose from, as `names` does; an empty list is an error."""
    texts = names(value)
    if value is not None and not texts:
        raise InvalidRequest("failed to choose a GPU: the argument gpu names none")
    return texts
