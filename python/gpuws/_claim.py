"""Claims: GPUs for this process and its descendants."""

from __future__ import annotations

import os
import sys
import threading

from gpuws import _gpuws
from gpuws._errors import CudaInitialized, GpuwsError, InvalidRequest
from gpuws._machine import among, amount, count, machine, names, seconds, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Any, Literal

    from typing_extensions import Self, Unpack

    from gpuws._records import Claimed, Device
    from gpuws._terms import ClaimTerms, Gpus, Size

# Frameworks that initialise CUDA, in the order of the search for the cause.
_FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy", "numba", "pycuda")

_SET = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GPUWS_LEASE")

# The claims that are held now, in the order in which they were granted, and the environment before
# the first of them: what an outer scheduler gave this process. A claim that is collected as garbage
# is released by whichever thread collects it, which may have the lock.
_active: list[Claim] = []
_outer: dict[str, str | None] = {}
_lock = threading.RLock()
_held: Claim | None = None


def wanted(
    n: int = 1,
    *,
    mem: Size | None = None,
    gpu: Gpus | None = None,
    exclude: Gpus | None = None,
    with_: Gpus | None = None,
    mig: bool = False,
    capability: str | tuple[int, int] | None = None,
    vendor: Literal["nvidia", "amd", "intel"] | None = None,
    topology: bool = False,
    min_free: Size | None = None,
    wait: bool = True,
    timeout: float | None = None,
    accept_used: bool = False,
    visible: Literal["uuid", "index"] = "uuid",
    command: str | None = None,
) -> dict[str, Any]:
    """Returns a claim in the form that `_gpuws` takes."""
    if vendor not in (None, "nvidia", "amd", "intel"):
        raise InvalidRequest(f"failed to read vendor={vendor!r}: it is 'nvidia', 'amd' or 'intel'")
    if visible not in ("uuid", "index"):
        raise InvalidRequest(f"failed to read visible={visible!r}: it is 'uuid' or 'index'")
    wait_s = None if timeout is None else seconds(timeout, "timeout")
    return {
        "n": count(n, "n"),
        "mem_bytes": None if mem is None else amount(mem),
        "gpu": among(gpu),
        "exclude": names(exclude),
        "required": names(with_),
        "mig": bool(mig),
        "capability": None if capability is None else version(capability),
        "vendor": vendor,
        "topology": bool(topology),
        "min_free_bytes": None if min_free is None else amount(min_free),
        "wait_s": wait_s if wait else 0.0,
        "accept_used": bool(accept_used),
        "by_index": visible == "index",
        "command": command or _command(),
    }


def _command() -> str:
    words = getattr(sys, "orig_argv", None) or sys.argv
    text = " ".join([os.path.basename(words[0]), *words[1:]]) if words else "python"
    # An argument that is not UTF-8 has surrogates.
    return os.fsencode(text).decode("utf-8", "replace")


def initialized_by() -> str | None:
    """Returns the name of the library that has initialised CUDA in this process, or None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        return "torch (torch.cuda.is_initialized() is true)"
    files = _gpuws.own_gpu_files()
    if files:
        loaded = [name for name in _FRAMEWORKS if name in sys.modules]
        by = f"{loaded[0]}, by its open " if loaded else "the open "
        return f"{by}{files[0]}"
    return None


def outer() -> Mapping[str, str | None]:
    """Returns the environment before the currently held claims."""
    with _lock:
        return _outer if _active else {name: os.environ.get(name) for name in _SET}


def refuse_if_initialized() -> None:
    """Raises CudaInitialized if it is too late to select the GPUs of this process."""
    by = initialized_by()
    if by is not None:
        raise CudaInitialized(
            f"failed to claim GPUs for this process: CUDA is already initialised here by {by}",
            hint="claim before the first CUDA call; importing a framework before is fine",
        )


def _tell(line: str) -> None:
    print(f"gpuws: {line}", file=sys.stderr, flush=True)


class Claim:
    """GPUs for this process and its descendants, for the block of a `with`.

    Within the block, CUDA_VISIBLE_DEVICES has only the granted GPUs.
    """

    __slots__ = ("_lease", "_quiet", "_wanted")

    def __init__(self, wanted: dict[str, Any], quiet: bool) -> None:
        self._wanted = wanted
        self._quiet = quiet
        self._lease: _gpuws.Lease | None = None

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> None:
        self._show(self._wait(None))

    def _wait(self, stop: _gpuws.Stop | None) -> _gpuws.Lease:
        """Waits for a lease, which is released when it is garbage-collected."""
        if self._lease is not None:
            state = "held" if self.is_held else "released"
            raise GpuwsError(f"failed to claim GPUs again with a claim that is {state}")
        refuse_if_initialized()
        tell = None if self._quiet else _tell
        return _gpuws.claim(machine(), self._wanted, list(outer().items()), tell, stop)

    def _show(self, lease: _gpuws.Lease) -> None:
        """Makes the GPUs of a lease the visible ones."""
        global _outer
        with _lock:
            _outer = dict(outer())
            self._lease = lease
            _active.append(self)
            os.environ.update(lease.environment)
        if not self._quiet:
            for warning in lease.warnings:
                _tell(f"warning: {warning}")

    def release(self) -> None:
        """Releases the GPUs. The visible GPUs are then those of the latest held claim, or those
        before the first claim. Later calls have no effect."""
        with _lock:
            if self._lease is None or self not in _active:
                return
            _active.remove(self)
            newest = _active[-1].environment if _active else {}
            for name, value in {**_outer, **newest}.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        was_held = self.is_held
        self._lease.release()
        if was_held:
            _warn_if_still_used()

    @property
    def is_held(self) -> bool:
        """Whether this process holds the GPUs."""
        return self._lease is not None and self._lease.is_held

    @property
    def lease(self) -> str | None:
        """The ID of the lease; None before the claim is granted."""
        info = self.info
        return None if info is None else info.lease

    @property
    def info(self) -> Claimed | None:
        """The object of `gpuws claim --json`: the lease, its GPUs, and why not the other GPUs."""
        from gpuws._records import Claimed

        return None if self._lease is None else Claimed.of_json(self._lease.json)

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The granted GPUs."""
        info = self.info
        return () if info is None else info.gpus

    @property
    def environment(self) -> dict[str, str]:
        """The variables that show the GPUs to CUDA, for a child process."""
        return {} if self._lease is None else dict(self._lease.environment)

    def __repr__(self) -> str:
        if self._lease is None:
            return f"<gpuws.Claim on {self._wanted['n']} GPUs, not granted>"
        indexes = ", ".join(str(gpu.index) for gpu in self.gpus)
        state = "held" if self.is_held else "released"
        return f"<gpuws.Claim {self.lease} on GPU {indexes}, {state}>"


def _warn_if_still_used() -> None:
    files = _gpuws.own_gpu_files()
    if files:
        import warnings

        warnings.warn(
            "this process releases its GPUs and still has a CUDA context on them, so they look "
            "used to others until it ends; gpuws.isolated gives memory back",
            ResourceWarning,
            stacklevel=4,
        )


def claim(
    n: int = 1,
    *,
    mem: Size | None = None,
    gpu: Gpus | None = None,
    exclude: Gpus | None = None,
    with_: Gpus | None = None,
    mig: bool = False,
    capability: str | tuple[int, int] | None = None,
    vendor: Literal["nvidia", "amd", "intel"] | None = None,
    topology: bool = False,
    min_free: Size | None = None,
    wait: bool = True,
    timeout: float | None = None,
    accept_used: bool = False,
    visible: Literal["uuid", "index"] = "uuid",
    quiet: bool = False,
) -> Claim:
    """Claims `n` GPUs, or `mem` of each of them, for the block of a `with`.

    `gpu`, `exclude` and `with_` name GPUs as `gpuws run --gpu`, `--not` and `--with` do: only among
    these, none of these, all of these. `mig` claims MIG devices. `capability` is the lowest compute
    capability, such as "8.0"; `vendor` is that of the GPUs, by default that of the first GPU;
    `min_free` is the memory that must be free; `topology` fails if the links between the GPUs are
    unknown. It waits in the queue for at most `timeout` seconds; with `wait=False` it does not
    wait. `accept_used` also takes GPUs that other processes use without a
    lease.

    Raises NotAvailable, NeverAvailable, CudaInitialized, DriverError or InvalidRequest.
    """
    terms = wanted(
        n,
        mem=mem,
        gpu=gpu,
        exclude=exclude,
        with_=with_,
        mig=mig,
        capability=capability,
        vendor=vendor,
        topology=topology,
        min_free=min_free,
        wait=wait,
        timeout=timeout,
        accept_used=accept_used,
        visible=visible,
    )
    return Claim(terms, quiet)


def hold(n: int = 1, **terms: Unpack[ClaimTerms]) -> Claim:
    """Claims GPUs until this process ends, or until `release()`. The arguments are those of `claim`.

    Raises GpuwsError if this process already holds GPUs through `hold`, and the errors of `claim`.
    """
    global _held
    if _held is not None and _held.is_held:
        raise GpuwsError(
            f"failed to hold GPUs: this process holds lease {_held.lease} already",
            hint="call gpuws.release() first, or use gpuws.claim() for more GPUs",
        )
    held = claim(n, **terms)
    held._take()
    if _held is None:
        import atexit

        atexit.register(_release_at_exit)
    _held = held
    return held


def release() -> None:
    """Releases the GPUs of `hold`, if there are any."""
    if _held is not None:
        _held.release()


def _release_at_exit() -> None:
    # The process and its contexts end now, so a warning would be wrong.
    if _held is not None and _held._lease is not None:
        _held._lease.release()


class _Awaited:
    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    async def __aenter__(self) -> Claim:
        import asyncio

        stop = _gpuws.Stop()
        try:
            lease = await asyncio.to_thread(self._claim._wait, stop)
        except asyncio.CancelledError:
            # The thread withdraws the claim; a lease that was granted meanwhile is released there.
            stop.request()
            raise
        self._claim._show(lease)
        return self._claim

    async def __aexit__(self, *_: object) -> None:
        self._claim.release()


def aclaim(n: int = 1, **terms: Unpack[ClaimTerms]) -> AbstractAsyncContextManager[Claim]:
    """Like `claim`, for `async with`: other tasks run during the wait."""
    return _Awaited(claim(n, **terms))
