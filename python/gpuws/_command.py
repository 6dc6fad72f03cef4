"""Commands of the program, for which there is no function in `_gpuws`."""

from __future__ import annotations

import json
import os
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from gpuws._errors import (
    DriverError,
    DriverTimeout,
    GpuwsError,
    InvalidRequest,
    NotAvailable,
    NotPermitted,
)
from gpuws._program import find_gpuws_bin

# The errors of exit codes; those of other codes are about the arguments.
_ERRORS: dict[int, type[GpuwsError]] = {4: NotPermitted, 5: DriverTimeout, 75: NotAvailable}


def options(**values: Any) -> list[str]:
    """Returns the options of a command: `host_memory="8GiB"` is `--host-memory=8GiB`. True gives an
    option without a value; None and False give none. A list gives one option per element, empty
    ones too: a lost element would widen the command."""
    words = []
    for name, value in values.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            for each in value if isinstance(value, list) else [value]:
                words.append(f"{option}={os.fspath(each) if isinstance(each, os.PathLike) else each}")
    return words


def run(*words: str, unreadable: type[GpuwsError] = DriverError) -> Any:
    """Returns the JSON that a command prints. It raises `unreadable` if the command cannot read its
    machine or file.

    After Ctrl-C, the command is asked to end, and awaited: it may be ending processes.
    """
    named = " ".join(word for word in words[:2] if word.isalpha())
    try:
        process = Popen(
            [find_gpuws_bin(), "--json", *words], stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except ValueError as error:
        # An argument has a zero byte, or characters that no argument can have.
        raise InvalidRequest(f"failed to run gpuws {named}: {error}") from error
    with process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            process.communicate()
            raise
    code = process.returncode
    if code < 0:
        raise GpuwsError(f"failed to run gpuws {named}: signal {-code} ended it")
    if out:
        return json.loads(out)
    lines = err.decode("utf-8", "replace").splitlines()
    said = "\n".join(line for line in lines if not line.startswith("gpuws: warning: "))
    text, _, hint = said.strip().partition("\nhint: ")
    if text.startswith("error: "):
        # The parser of the arguments; its last paragraph is about --help.
        text = f"failed to run gpuws {named}: " + text[len("error: ") :].partition("\n\n")[0]
    kind = unreadable if code == 3 else _ERRORS.get(code, InvalidRequest)
    raise kind(text.removeprefix("gpuws: "), hint=hint or None)
