"""Memory: explanations, needs and limits."""

import os
import sys
import types

import pytest

import gpuws

MESSAGE = (
    "CUDA out of memory. Tried to allocate 5.96 GiB. GPU 0 has a total capacity of 23.69 GiB of which "
    "5.25 GiB is free. Including non-PyTorch memory, this process has 18.17 GiB memory in use. Of the "
    "allocated memory 17.88 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
    "unallocated."
)


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


OutOfMemoryError.__module__ = "torch"


def caught(error, cause=None):
    try:
        raise error from cause
    except Exception as raised:
        return raised


def test_caught_exception_is_explained_with_the_machine():
    told = gpuws.mem.explain(caught(OutOfMemoryError(MESSAGE)), sim="labbox")
    (event,) = told.events
    assert (event.framework, event.diagnosis.cause) == ("pytorch", "too-big")
    assert told.looked_at.machine == "labbox"
    assert "too big" in str(told) and "try gpuws run --mem" in str(told)


def test_cause_of_an_exception_is_explained():
    error = caught(ValueError("the step failed"), caught(OutOfMemoryError(MESSAGE)))
    assert len(gpuws.mem.explain(error, live=False).events) == 1


def test_other_exception_has_no_events():
    told = gpuws.mem.explain(caught(ValueError("\udcff odd")), live=False)
    assert told.events == () and "no out-of-memory message" in str(told)


def test_fit_reads_a_recording(tmp_path):
    lines = [
        '{"kind": "memory-trace", "version": 1}',
        '{"alloc": 1, "bytes": 1048576}',
    ]
    (tmp_path / "job.jsonl").write_text("\n".join(lines))
    with pytest.raises(gpuws.GpuwsError) as raised:
        gpuws.mem.fit(tmp_path / "missing")
    assert "missing" in str(raised.value)
    with pytest.raises(gpuws.GpuwsError):
        gpuws.mem.fit(__file__)


def test_limit_sets_the_variables_of_frameworks(machine, monkeypatch):
    before = dict(os.environ)
    variables = gpuws.mem.limit("6GiB")
    assert all(os.environ[name] == value for name, value in variables.items())
    for name in variables:
        monkeypatch.delenv(name)
    assert {n: v for n, v in before.items() if n not in variables}.items() <= os.environ.items()
    with pytest.raises(gpuws.GpuwsError, match="limit"):
        gpuws.mem.limit("100MiB")
    cuda = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with pytest.raises(gpuws.CudaInitialized):
        gpuws.mem.limit("6GiB")
