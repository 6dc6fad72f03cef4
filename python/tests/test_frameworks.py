"""The real frameworks, where they are installed. They run on the CPU beside a simulated machine."""

import csv
import importlib.util
import os
import pickle
import sys
import weakref

import pytest

import gpuws
from observed import OUT_OF_MEMORY, alive, memory_mib

JOBS = '''
import os, signal
import torch
from torch.utils.data import DataLoader, TensorDataset
import gpuws

@gpuws.isolated(mem="6GiB")
def square(matrix):
    assert not torch.cuda.is_initialized()
    return matrix @ matrix, os.environ["PYTORCH_ALLOC_CONF"]

@gpuws.isolated
def apply(module, batch):
    return module(batch)

@gpuws.isolated
def fails(message):
    raise torch.OutOfMemoryError(message)

kept = []

@gpuws.isolated(timeout=120, grace=1)
def load(path, method, how):
    data = TensorDataset(torch.arange(64.0))
    terms = {"multiprocessing_context": method, "persistent_workers": True}
    batches = iter(DataLoader(data, batch_size=8, num_workers=2, **terms))
    total = sum(float(batch.sum()) for (batch,) in batches)
    # The workers of this loader outlive the function.
    kept.append(batches)
    with open(path, "w") as pids:
        pids.write(" ".join(str(worker.pid) for worker in batches._workers))
    if how == "raise":
        raise LookupError("no luck")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return total
'''


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jobs(machine, torch, tmp_path, monkeypatch):
    (tmp_path / "gpuws_torch_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import gpuws_torch_jobs

    yield gpuws_torch_jobs
    sys.modules.pop("gpuws_torch_jobs", None)


@pytest.fixture
def cuda_check(monkeypatch):
    """Undoes what the import of Lightning sets: with it, torch takes the GPUs of NVML for those of
    CUDA, which has no driver here."""
    return lambda: monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")


def test_lightning_logs_the_figures_beside_its_own(machine, torch, callbacks, cuda_check, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    cuda_check()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.parts = torch.nn.ModuleList([torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)])

        def training_step(self, batch, index):
            for optimizer, part in zip(self.optimizers(), self.parts):
                loss = part(batch[0]).pow(2).mean()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
                self.log("loss", loss)

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in self.parts]

    data = torch.utils.data.TensorDataset(torch.randn(24, 4))
    logger = lightning.loggers.CSVLogger(tmp_path)
    # As a strategy that spawns sends it.
    callback = pickle.loads(pickle.dumps(callbacks.LightningGpus(every=0)))
    with gpuws.claim(1, gpu=2, quiet=True):
        process = machine.use(2, mib=700)
        lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=logger,
            callbacks=[callback],
            log_every_n_steps=1,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        ).fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))
        process.kill()
        process.wait()
    with open(os.path.join(logger.log_dir, "metrics.csv")) as file:
        rows = list(csv.DictReader(file))
    figures = [row for row in rows if row["gpuws/gpu2/memory_own_mib"]]
    assert {float(row["gpuws/gpu2/memory_own_mib"]) for row in figures} == {700.0}
    steps = {row["step"] for row in rows if row["loss"]}
    assert steps == {"0", "1", "2"} and {row["step"] for row in figures} == {*steps, "3"}


def test_keras_has_the_figures_in_its_history(machine, callbacks, cuda_check, tmp_path):
    # Keras chooses its device at its import.
    cuda_check()
    if "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ:
        backends = ("tensorflow", "torch", "jax")
        found = [name for name in backends if importlib.util.find_spec(name) is not None]
        os.environ["KERAS_BACKEND"] = (found or backends)[0]
    keras = pytest.importorskip("keras", exc_type=ImportError)
    numpy = pytest.importorskip("numpy")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback, path = pickle.loads(pickle.dumps(callbacks.KerasGpus())), tmp_path / "log.csv"
    data = numpy.ones((16, 4))
    fitted = model.fit(
        data, data[:, :1], epochs=2, verbose=0, callbacks=[callback, keras.callbacks.CSVLogger(path)]
    )
    assert len(fitted.history["gpuws/gpu3/memory_used_mib"]) == len(fitted.history["loss"]) == 2
    assert "gpuws/gpu0/power_w" in path.read_text()


def test_isolated_function_takes_and_returns_tensors(jobs, torch):
    matrix = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    squared, setting = jobs.square(matrix)
    assert torch.equal(squared, matrix @ matrix) and "per_process_memory_fraction" in setting
    module = torch.nn.Linear(2, 1)
    assert torch.equal(jobs.apply(module, matrix), module(matrix))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("how", ["return", "raise", "kill"])
def test_workers_of_a_data_loader_end_with_the_function(jobs, tmp_path, method, how):
    before, path = memory_mib(), tmp_path / "pids"
    if how == "return":
        assert jobs.load(str(path), method, how) == 2016.0
    else:
        with pytest.raises(LookupError if how == "raise" else gpuws.IsolatedDied):
            jobs.load(str(path), method, how)
    pids = path.read_text().split()
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)
    assert memory_mib() == before and gpuws.leases().leases == ()


def test_real_out_of_memory_error_keeps_its_class_and_is_explained(jobs, torch):
    with pytest.raises(torch.OutOfMemoryError) as raised:
        jobs.fails(OUT_OF_MEMORY)
    (event,) = gpuws.mem.explain(raised.value).events
    assert (event.framework, event.diagnosis.cause) == ("pytorch", "too-big")


def test_notebook_explains_a_real_out_of_memory_error_and_lets_go_of_it(machine, torch, capsys):
    shell = pytest.importorskip("IPython.testing.globalipapp").start_ipython()
    gpuws.load_ipython_extension(shell)
    try:
        shell.user_ns["message"] = OUT_OF_MEMORY
        shell.user_ns["weakref"] = weakref
        shell.run_cell(
            "def step():\n"
            "    global seen\n"
            "    import torch\n"
            "    batch = torch.ones(8)\n"
            "    seen = weakref.ref(batch)\n"
            "    raise torch.OutOfMemoryError(message)\n"
            "step()"
        )
        assert shell.user_ns["seen"]() is None
    finally:
        gpuws.unload_ipython_extension(shell)
    assert "too big for this GPU" in capsys.readouterr().out


def test_claim_after_the_import_of_torch_selects_its_gpus(machine, torch):
    assert not torch.cuda.is_initialized()
    with gpuws.claim(2, quiet=True):
        if torch.version.cuda is not None:
            # It counts by NVML and CUDA_VISIBLE_DEVICES.
            assert torch.cuda.device_count() == 2
    assert not torch.cuda.is_initialized()


def test_claim_after_torch_has_initialised_cuda_is_an_error_by_name(machine, torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "_initialized", True)
    with pytest.raises(gpuws.CudaInitialized, match="already initialised here by torch"):
        gpuws.claim(1).__enter__()
    with pytest.raises(gpuws.CudaInitialized, match="by torch"):
        gpuws.mem.limit("6GiB")
    assert gpuws.leases().leases == ()
