"""The types of arguments. Only type checkers, and programs that use `ClaimTerms`, import this."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TypedDict

Path = str | os.PathLike[str]
Size = int | str
Gpus = int | str | Iterable[int | str]
Users = int | str | Iterable[int | str]


class Choice(TypedDict, total=False):
    """The arguments that choose GPUs."""

    gpu: Gpus | None
    exclude: Gpus | None
    with_: Gpus | None
    mig: bool
    capability: str | tuple[int, int] | None
    vendor: Literal["nvidia", "amd", "intel"] | None
    topology: bool
    min_free: Size | None
    accept_used: bool
    visible: Literal["uuid", "index"]


class ClaimTerms(Choice, total=False):
    """The arguments of `claim` that have names: `def mine(**terms: Unpack[gpuws.ClaimTerms])`."""

    mem: Size | None
    wait: bool
    timeout: float | None
    quiet: bool
