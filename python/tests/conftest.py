"""What the tests of the package share. They run on the installed wheel."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import gpuws

pytest_plugins = ["pytester"]

# Nothing of the machine that the tests run on decides what they see.
for _name in ("CUDA_VISIBLE_DEVICES", "GPUWS_CLAIMS", "GPUWS_SIM_SESSION", "LD_LIBRARY_PATH"):
    os.environ.pop(_name, None)


# No test takes this long, not even on a machine that does other work.
LIMIT_S = 300


@pytest.fixture(autouse=True)
def limit():
    """Fails a test that would wait for ever."""

    def over(*_):
        raise TimeoutError(f"the test has not ended after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def machine():
    """A simulated machine with four free GPUs."""
    with gpuws.sim("rtx8000-x4") as simulated:
        yield simulated


@pytest.fixture
def run(tmp_path):
    """Runs a program of Python to its end, and returns what it did."""

    def run(text, *arguments, check=True, **more):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, path, *arguments], capture_output=True, text=True, timeout=120, **more
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run



@pytest.fixture
def callbacks():
    """The module of the callbacks, whose classes are those of the frameworks of one test."""
    names = ("LightningGpus", "KerasGpus")
    for name in names:
        gpuws.callbacks.__dict__.pop(name, None)
    yield gpuws.callbacks
    for name in names:
        gpuws.callbacks.__dict__.pop(name, None)
