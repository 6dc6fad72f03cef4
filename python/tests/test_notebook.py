"""The leak of notebooks, in a real IPython."""

import pytest

pytest.importorskip("IPython")

# torch, as far as the leak concerns it: a tensor is real memory of a simulated GPU, and a freed one
# stays in the cache of the allocator until that is emptied.
TORCH = '''
import os, subprocess, sys, time, types

class OutOfMemoryError(RuntimeError): pass
cached = []

class Tensor:
    def __init__(self, mib):
        actor = os.path.join(os.environ["GPUWS_SIM_SESSION"], "nvml-sim-process")
        self.process = subprocess.Popen([actor, "--use", f"0:{mib}"], stdin=subprocess.DEVNULL)
        registered = os.path.join(os.environ["GPUWS_SIM_SESSION"], "walk-ons")
        while not any(n.startswith(f"{self.process.pid}-") for n in os.listdir(registered)):
            time.sleep(0.01)
        self.mib = mib
    def __del__(self):
        cached.append((self.process, self.mib))

def empty_cache():
    while cached:
        process, _ = cached.pop()
        process.kill()
        process.wait()

torch = types.ModuleType("torch")
torch.OutOfMemoryError = OutOfMemoryError
torch.cuda = types.SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError, is_initialized=lambda: True, device_count=lambda: 1,
    memory_reserved=lambda device: sum(mib for _, mib in cached) << 20, empty_cache=empty_cache,
)
sys.modules["torch"] = torch
'''

PROGRAM = TORCH + '''
import gpuws, gc
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config, colors="NoColor")

def used():
    return gpuws.status().gpus[0].memory_used_bytes >> 20

def cell(text):
    return shell.run_cell(text)

with gpuws.sim("rtx8000-x4"):
    idle = used()
    shell.user_ns["Tensor"] = Tensor
    MORE
    print("end", used() - idle)
    sys.stdout.flush()
    torch.cuda.empty_cache()
'''

FAILS = '''
cell("def work():\\n    tensor = Tensor(900)\\n    raise ERROR\\nwork()")
    cell("1 + 1")
    cell("2 + 2")
    torch.cuda.empty_cache()
    gc.collect()
    print("kept", used() - idle)
'''


def reported(out, word):
    return [int(line.split()[1]) for line in out.splitlines() if line.startswith(f"{word} ")]


def test_free_lets_go_of_the_last_exception(run):
    more = FAILS.replace("ERROR", "ValueError('x')") + '''
    freed = gpuws.notebook.free()
    print("freed", freed >> 20)
'''
    out = run(PROGRAM.replace("MORE", more.strip())).stdout
    # Good cells and a collection do not free it; we do.
    assert reported(out, "kept") == [900], out
    assert reported(out, "freed") == [900] and reported(out, "end") == [0]


@pytest.mark.parametrize("raised", ["ERROR", "ValueError('the step') from ERROR"])
def test_extension_explains_an_out_of_memory_error_and_lets_go(run, raised):
    message = (
        "CUDA out of memory. Tried to allocate 50.00 GiB. GPU 0 has a total capacity of 47.99 GiB of "
        "which 40.00 GiB is free. Including non-PyTorch memory, this process has 7.00 GiB memory in "
        "use. Of the allocated memory 6.00 GiB is allocated by PyTorch, and 0 bytes is reserved by "
        "PyTorch but unallocated."
    )
    more = 'cell("%load_ext gpuws")\n    import torch as fake\n    '
    more += 'shell.user_ns["torch"] = fake\n    '
    fails = FAILS.replace("ERROR", raised)
    more += fails.replace("ERROR", f"torch.OutOfMemoryError({message!r})").strip()
    more += '\n    cell("%gpuws")\n    cell("%gpuws free")\n    cell("%unload_ext gpuws")'
    more += '\n    cell("%gpuws")'
    done = run(PROGRAM.replace("MORE", more))
    out = done.stdout
    assert "gpuws: One request is larger than the GPU." in out, out
    assert "gpuws: GPU 0 " in out and "let go of the exception" in out
    assert reported(out, "kept") == [0] and reported(out, "end") == [0]
    assert "Quadro RTX 8000" in out and "0 MiB returned to the driver" in out
    assert "%gpuws` not found" in out + done.stderr


def test_extension_leaves_other_exceptions_for_the_debugger(run):
    more = 'cell("%load_ext gpuws")\n    ' + FAILS.replace("ERROR", "ValueError('x')").strip()
    out = run(PROGRAM.replace("MORE", more + "\n    gpuws.notebook.free()")).stdout
    assert "explain" not in out and reported(out, "kept") == [900] and reported(out, "end") == [0]


def test_free_without_ipython_and_torch_does_nothing(run):
    text = """
        import gpuws, sys
        print(gpuws.notebook.free(), hasattr(sys, "last_value"))
    """
    assert run(text).stdout.split() == ["0", "False"]
