"""Places: which device has each layer of a model, or each operation of a graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from gpuws._command import options
from gpuws._command import run as _run
from gpuws._errors import GpuwsError
from gpuws._machine import among, each_of, mib, seconds
from gpuws._records import PlacedGraph, PlacedModel, RanGraph, ScheduledGraph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Unpack

    from gpuws._terms import Gpus, Path, Size

__all__ = ["graph", "model", "run", "schedule"]


def model(
    path: Path,
    *,
    context: int | str | None = None,
    sequences: int = 1,
    engine: Literal["llama.cpp", "vllm", "transformers"] | None = None,
    weights: str | None = None,
    kv: str | None = None,
    gpu: Gpus | None = None,
    accept_used: bool = False,
    memory: Size | Iterable[Size] | None = None,
    host_memory: Size | None = None,
    margin: Size = "512MiB",
    goal: Literal["fewest", "latency", "throughput"] = "fewest",
    sim: Path | None = None,
    deadline: float = 30.0,
) -> PlacedModel:
    """Returns the memory that a model needs, and the GPU of each layer: the object of `gpuws place
    model --json`.

    `path` is a directory, a file of weights, or a config.json; only headers are read. `context` is
    the number of tokens of each of `sequences`, `weights` and `kv` are encodings, `margin` stays
    free on each GPU. `memory` plans for GPUs with this much free memory each instead of this
    machine's. `verdict` of the result is "fits", "does-not-fit" or "estimate".
    """
    words = options(
        context=context,
        sequences=sequences,
        engine=engine,
        weights=weights,
        kv=kv,
        gpu=among(gpu),
        accept_used=accept_used,
        memory=[mib(each) for each in each_of(memory, "memory")],
        host_memory=mib(host_memory),
        margin=mib(margin),
        goal=goal,
    )
    return PlacedModel(_placed("model", path, words, sim, deadline))


class GraphTerms(TypedDict, total=False):
    """The arguments that `graph`, `schedule` and `run` share.

    `kernels` are files with operations and kernels, `devices` names like "/gpu:0". `replicas` copies
    the graph to that many devices, or `contexts` names those; `batch` splits that many rows over
    them, in the ratio of `loads`. `placed` is the log or the object of an earlier placement, whose
    nodes stay. `sim` and `deadline` are those of `gpuws.status`.
    """

    kernels: Path | Iterable[Path] | None
    devices: str | Iterable[str] | None
    replicas: int | None
    contexts: str | None
    batch: int | None
    loads: Iterable[float] | None
    placed: Path | None
    sim: Path | None
    deadline: float


def graph(file: Path, *, hard: bool = False, **terms: Unpack[GraphTerms]) -> PlacedGraph:
    """Returns the device of each operation, and why: the object of `gpuws place graph --json`. With
    `hard`, a request that cannot be satisfied is an error."""
    return PlacedGraph(_graph(file, options(hard=hard), **terms))


def schedule(file: Path, **terms: Unpack[GraphTerms]) -> ScheduledGraph:
    """Returns when each operation would run, placed by costs and transfer times: the object of
    `gpuws place graph --schedule --json`."""
    return ScheduledGraph(_graph(file, options(schedule=True), **terms))


def run(
    file: Path,
    *,
    hard: bool = False,
    fetch: str | Iterable[str] | None = None,
    inter_op_threads: int | None = None,
    intra_op_threads: int | None = None,
    memory: Size | None = None,
    **terms: Unpack[GraphTerms],
) -> RanGraph:
    """Runs the operations on threads of the CPU, and returns the values named by `fetch`: the object
    of `gpuws place graph --run --json`. `memory` limits all values together."""
    own = options(
        run=True,
        hard=hard,
        fetch=each_of(fetch, "fetch"),
        inter_op_threads=inter_op_threads,
        intra_op_threads=intra_op_threads,
        memory=mib(memory),
    )
    return RanGraph(_graph(file, own, **terms))


def _graph(
    file: Path,
    own: list[str],
    *,
    kernels: Path | Iterable[Path] | None = None,
    devices: str | Iterable[str] | None = None,
    replicas: int | None = None,
    contexts: str | None = None,
    batch: int | None = None,
    loads: Iterable[float] | None = None,
    placed: Path | None = None,
    sim: Path | None = None,
    deadline: float = 30.0,
) -> Any:
    words = options(
        kernels=each_of(kernels, "kernels"),
        devices=each_of(devices, "devices"),
        replicas=replicas,
        contexts=contexts,
        batch=batch,
        loads=each_of(loads, "loads"),
        placed=placed,
    )
    return _placed("graph", file, [*own, *words], sim, deadline)


def _placed(kind: str, path: Path, words: list[str], sim: Path | None, deadline: float) -> Any:
    machine = options(sim=sim, deadline=seconds(deadline, "deadline"))
    # A file may be unreadable as well as the driver.
    return _run("place", kind, *machine, *words, "--", os.fspath(path), unreadable=GpuwsError)
