"""The callbacks, with stand-ins for the frameworks' base classes."""

import os
import sys
import types

import pytest

import gpuws


@pytest.fixture
def frameworks(monkeypatch, callbacks):
    """Modules that have the base classes, as the frameworks name them."""
    callback = type("Callback", (), {})
    lightning = types.ModuleType("lightning")
    lightning.__path__ = []
    pytorch = types.ModuleType("lightning.pytorch")
    pytorch.Callback = lightning.pytorch = callback
    keras = types.ModuleType("keras")
    keras.callbacks = types.SimpleNamespace(Callback=callback)
    modules = {"lightning": lightning, "lightning.pytorch": pytorch, "keras": keras}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return callback


def test_figures_are_those_of_the_visible_gpus(machine):
    with gpuws.claim(1, gpu=2, quiet=True):
        process = machine.use(2, mib=700)
        found = gpuws.callbacks.figures()
        assert found["gpuws/gpu2/memory_own_mib"] == 700
        assert found["gpuws/gpu2/memory_others_mib"] == 0
        assert {name.split("/")[1] for name in found} == {"gpu2"}
        process.kill()
        process.wait()


def test_memory_of_other_ranks_is_that_of_the_job(machine, run):
    process = machine.use(2, mib=700)
    text = """
        import gpuws
        found = gpuws.callbacks.figures()
        print(*(found[f"gpuws/gpu2/memory_{whose}_mib"] for whose in ("own", "others")))
    """
    # A child of the process that has started the other one, as its ranks are of torchrun.
    assert run(text).stdout == "0.0 700.0\n"
    assert run(text, env={**os.environ, "TORCHELASTIC_RUN_ID": "none"}).stdout == "700.0 0.0\n"
    process.kill()
    process.wait()


def test_lightning_logs_at_start_and_at_its_pace(machine, frameworks):
    logged = []
    logger = types.SimpleNamespace(log_metrics=lambda found, step: logged.append((step, found)))
    trainer = types.SimpleNamespace(loggers=[logger], global_step=7)
    callback = gpuws.callbacks.LightningGpus(every=3600)
    assert isinstance(callback, frameworks)
    callback.on_train_start(trainer, None)
    for index in range(5):
        callback.on_train_batch_end(trainer, None, None, None, index)
    callback.on_train_end(trainer, None)
    assert [step for step, _ in logged] == [7, 7]
    assert "gpuws/gpu0/memory_used_mib" in logged[0][1]


def test_keras_adds_to_the_logs_and_never_fails(machine, frameworks):
    callback = gpuws.callbacks.KerasGpus()
    logs = {"loss": 1.0}
    callback.on_epoch_end(0, logs)
    assert logs["loss"] == 1.0 and "gpuws/gpu3/power_w" in logs
    machine.stop()
    os.environ["GPUWS_SIM_SESSION"] = "/no/such/session"
    logs = {"loss": 1.0}
    callback.on_epoch_end(1, logs)
    assert logs == {"loss": 1.0}
    os.environ.pop("GPUWS_SIM_SESSION")
