"""Callbacks for Lightning and Keras: the figures of this job's GPUs in the logs of the training.

    Trainer(callbacks=[gpuws.callbacks.LightningGpus()])
    model.fit(…, callbacks=[gpuws.callbacks.KerasGpus()])

For each visible GPU N: memory used by this job, total memory used, utilisation, power and
temperature, as `gpuws/gpuN/…`; and the memory that other jobs use there, which explains an
out-of-memory error that this job did not cause.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuws._records import Status

    # They derive from the callback of the framework that is installed, which may be none.
    class LightningGpus(Any):  # type: ignore[misc]
        """Logs the figures to the trainer's loggers, at most once in `every` seconds."""

        def __init__(self, every: float = 10.0) -> None: ...

    class KerasGpus(Any):  # type: ignore[misc]
        """Adds the figures to the logs of each epoch, for the callbacks after it."""

        def __init__(self) -> None: ...


__all__ = ["KerasGpus", "LightningGpus", "figures"]

_MIB = 1 << 20


def figures(look: Status | None = None) -> dict[str, float]:
    """Returns the figures of the GPUs that are visible to this process, by name; unknown ones are
    left out."""
    from gpuws._look import status

    look = status() if look is None else look
    visible = look.visible_gpus
    own = _own_pids(look)
    found = {}
    for gpu in look.gpus:
        if visible is not None and gpu.index not in visible:
            continue
        sizes = [
            (process.pid in own, process.memory_bytes)
            for process in gpu.processes
            if process.memory_bytes is not None
        ]
        values = {
            "memory_own_mib": sum(size for is_own, size in sizes if is_own) / _MIB,
            "memory_others_mib": sum(size for is_own, size in sizes if not is_own) / _MIB,
            "memory_used_mib": _scaled(gpu.memory_used_bytes, _MIB),
            "utilization_percent": gpu.utilization_percent,
            "power_w": _scaled(gpu.power_draw_mw, 1000),
            "temperature_c": gpu.temperature_c,
        }
        for name, value in values.items():
            if value is not None:
                found[f"gpuws/gpu{gpu.index}/{name}"] = float(value)
    return found


def _scaled(value: int | None, unit: int) -> float | None:
    return None if value is None else value / unit


def _own_pids(look: Status) -> set[int]:
    """Returns the processes of this job that use a GPU: this one, its descendants, and the other
    ranks, if torchrun or multiprocessing has started it."""
    import multiprocessing
    import os

    parents = {p.pid: p.parent_pid for gpu in look.gpus for p in gpu.processes}
    own = {os.getpid()}
    if multiprocessing.parent_process() is not None or "TORCHELASTIC_RUN_ID" in os.environ:
        own.add(os.getppid())
    while True:
        more = {pid for pid, parent in parents.items() if parent in own} - own
        if not more:
            return own
        own |= more


class _Pace:
    """Takes a sample at most once in `every` seconds, and never fails the training."""

    def __init__(self, every: float) -> None:
        self.every = every
        self._due = 0.0

    def figures(self, *, now: bool = False) -> dict[str, float]:
        import time

        moment = time.monotonic()
        if moment < self._due and not now:
            return {}
        self._due = moment + self.every
        try:
            return figures()
        except (OSError, RuntimeError):
            return {}


def _lightning() -> Any:
    from importlib import import_module

    for module in ("lightning.pytorch", "pytorch_lightning"):
        if module.partition(".")[0] in sys.modules:
            return import_module(module).Callback
    try:
        return import_module("lightning.pytorch").Callback
    except ImportError:
        return import_module("pytorch_lightning").Callback


def _keras() -> Any:
    from importlib import import_module

    return import_module("keras").callbacks.Callback


def _step(trainer: Any) -> Any:
    """Returns the step of Lightning's own logs, as its callbacks do: it counts batches, where
    `global_step` counts the steps of each optimizer."""
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    return getattr(loop, "_batches_that_stepped", trainer.global_step)


def _lightning_class() -> type:
    class LightningGpus(_lightning()):  # type: ignore[misc]
        """Logs the figures to the trainer's loggers, at most once in `every` seconds."""

        # Pickle finds it by this name, as the strategies of Lightning that spawn do.
        __qualname__ = "LightningGpus"

        def __init__(self, every: float = 10.0) -> None:
            super().__init__()
            self._pace = _Pace(every)

        def _log(self, trainer: Any, now: bool = False) -> None:
            found = self._pace.figures(now=now)
            for logger in trainer.loggers if found else []:
                logger.log_metrics(found, step=_step(trainer))

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._log(trainer, now=True)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            self._log(trainer)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._log(trainer, now=True)

    return LightningGpus


def _keras_class() -> type:
    class KerasGpus(_keras()):  # type: ignore[misc]
        """Adds the figures to the logs of each epoch, for the callbacks after it."""

        __qualname__ = "KerasGpus"

        def __init__(self) -> None:
            super().__init__()
            self._pace = _Pace(0.0)

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            if logs is not None:
                logs.update(self._pace.figures(now=True))

    return KerasGpus


if not TYPE_CHECKING:

    def __getattr__(name):
        # Their base classes are those of the framework, which is imported at the first use.
        makers = {"KerasGpus": _keras_class, "LightningGpus": _lightning_class}
        if name not in makers:
            raise AttributeError(f"module 'gpuws.callbacks' has no attribute '{name}'")
        made = globals()[name] = makers[name]()
        return made
