"""Claims for this process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

import gpuws
from observed import another_holder, memory_mib, until


def visible():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_claim_shows_only_its_gpus_and_restores_the_environment(machine):
    os.environ.pop("CUDA_DEVICE_ORDER", None)
    with gpuws.claim(2, visible="index") as claim:
        # The two that NVLink connects.
        assert visible() == "0,3" and os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert [gpu.index for gpu in claim.gpus] == [0, 3]
        (lease,) = gpuws.leases().leases
        assert (lease.id, lease.pid) == (claim.lease, os.getpid())
        assert claim.environment["GPUWS_LEASE"] == claim.lease
    assert visible() is None and "CUDA_DEVICE_ORDER" not in os.environ
    assert gpuws.leases().leases == () and not claim.is_held


def test_claims_of_one_process_get_different_gpus(machine):
    with gpuws.claim(visible="index") as first, gpuws.claim(2, visible="index") as second:
        assert {gpu.index for gpu in first.gpus}.isdisjoint(gpu.index for gpu in second.gpus)
        with pytest.raises(gpuws.NotAvailable) as raised:
            gpuws.claim(2, wait=False).__enter__()
        assert raised.value.kind == "not-available" and "leased by" in str(raised.value)


def test_claim_stays_within_the_outer_list(machine):
    os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"
    with gpuws.claim(1, visible="index") as first, gpuws.claim(1, visible="index") as second:
        assert sorted(gpu.index for claim in (first, second) for gpu in claim.gpus) == [2, 3]
    assert visible() == "2,3"
    with pytest.raises(gpuws.NeverAvailable, match="CUDA_VISIBLE_DEVICES"):
        gpuws.claim(3, wait=False).__enter__()
    with pytest.raises(gpuws.NeverAvailable, match="CUDA_VISIBLE_DEVICES"):
        gpuws.claim(gpu=0).__enter__()


def test_shares_of_one_gpu_add_up(machine):
    with gpuws.claim(mem="20GiB", gpu=1) as one, gpuws.claim(mem=20 << 30, gpu="1") as two:
        assert [gpu.index for gpu in (*one.gpus, *two.gpus)] == [1, 1]
        with pytest.raises(gpuws.NotAvailable):
            gpuws.claim(mem="20GiB", gpu=1, wait=False).__enter__()


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        ({"n": 0}, gpuws.InvalidRequest),
        ({"n": 5}, gpuws.NeverAvailable),
        ({"gpu": "9"}, gpuws.InvalidRequest),
        ({"mem": "lots"}, gpuws.InvalidRequest),
        ({"mem": -1}, gpuws.InvalidRequest),
        ({"mem": "200GiB"}, gpuws.NeverAvailable),
        ({"visible": "name"}, gpuws.InvalidRequest),
        ({"n": "two"}, gpuws.InvalidRequest),
        ({"n": -1}, gpuws.InvalidRequest),
        ({"n": 1.9}, gpuws.InvalidRequest),
        ({"n": 1 << 40}, gpuws.InvalidRequest),
        ({"gpu": []}, gpuws.InvalidRequest),
        ({"gpu": ""}, gpuws.InvalidRequest),
        ({"gpu": 1.5}, gpuws.InvalidRequest),
        ({"mem": 1 << 70}, gpuws.InvalidRequest),
        ({"mem": [1]}, gpuws.InvalidRequest),
        ({"timeout": float("nan")}, gpuws.InvalidRequest),
        ({"timeout": "soon"}, gpuws.InvalidRequest),
        ({"mig": True}, gpuws.InvalidRequest),
        ({"capability": "7.6"}, gpuws.NeverAvailable),
        ({"capability": (8, 0)}, gpuws.NeverAvailable),
        *(({"capability": odd}, gpuws.InvalidRequest) for odd in (7.5, "7", "7.x", (7, -5), (7, 5, 0))),
        ({"with_": "9"}, gpuws.InvalidRequest),
        ({"with_": 1, "exclude": 1}, gpuws.NeverAvailable),
        ({"with_": [0, 1]}, gpuws.NeverAvailable),
    ],
)
def test_impossible_claim_is_an_error_by_name(machine, terms, kind):
    with pytest.raises(kind):
        gpuws.claim(**{"timeout": 60, **terms}).__enter__()
    assert gpuws.leases().queue == () and gpuws.leases().leases == ()


def test_claim_has_the_gpus_that_it_requires(machine):
    with gpuws.claim(2, with_="1", exclude=0, capability="7.5", topology=True) as claim:
        # NVLink connects it with another one.
        assert [gpu.index for gpu in claim.gpus] == [1, 2]
    with pytest.raises(gpuws.NeverAvailable, match="with_ names more GPUs than n"):
        gpuws.hold(1, with_=[1, 2])
    with pytest.raises(gpuws.NeverAvailable, match="named by with_ .* GPU 1: excluded"):
        gpuws.hold(1, with_=1, exclude=1)


def test_mig_devices_are_claimed_on_request():
    with gpuws.sim("mig-a100"):
        with pytest.raises(gpuws.NeverAvailable, match="MIG"):
            gpuws.hold()
        with gpuws.claim(mig=True, gpu=0, wait=False) as claim:
            assert visible().startswith("MIG-") and len(claim.gpus) == 1


@pytest.mark.parametrize("topology", [False, True])
def test_topology_is_queried_on_request(tmp_path, topology):
    text = f"import gpuws; print(gpuws.hold(topology={topology}, quiet=True).is_held)"
    calls = tmp_path / "calls"
    command = [gpuws.find_gpuws_bin(), "sim", "rtx8000-x4", "--live", "--count-calls", calls, "--"]
    done = subprocess.run([*command, sys.executable, "-c", text], capture_output=True, text=True)
    assert done.stdout == "True\n", done
    assert ("nvmlDeviceGetTopologyCommonAncestor" in calls.read_text()) == topology


def test_numbers_of_other_types_are_taken(machine):
    class Index:
        """As numpy.int64: no int, and no iterable."""

        def __index__(self):
            return 1

        def __str__(self):
            return "1"

    with gpuws.claim(Index(), gpu=Index(), exclude=[], timeout=float("inf")) as claim:
        assert [gpu.index for gpu in claim.gpus] == [1]


def test_invalid_samples_are_errors_by_name():
    for terms in ({"samples": 70000}, {"samples": 0}, {"every": -1}, {"deadline": "x"}):
        with pytest.raises(gpuws.InvalidRequest):
            gpuws.doctor(sim="labbox", **terms)


def test_former_name_of_samples_is_accepted_with_a_warning():
    with pytest.warns(DeprecationWarning, match="samples"):
        former = gpuws.doctor(sim="labbox", looks=2, every=0)
    assert former.to_dict().keys() == gpuws.doctor(sim="labbox", samples=2, every=0).to_dict().keys()
    with pytest.warns(DeprecationWarning), pytest.raises(gpuws.InvalidRequest):
        gpuws.doctor(sim="labbox", looks=0)


def test_command_that_is_not_utf8_is_shown_with_replacements(machine, run):
    text = """
        import gpuws
        with gpuws.claim():
            print(gpuws.leases().leases[0].command)
    """
    assert "\ufffd" in run(text, b"\xff").stdout


def test_hold_lasts_until_release_or_the_end_of_the_process(machine, run):
    held = gpuws.hold(1, quiet=True)
    with pytest.raises(gpuws.GpuwsError, match="holds lease"):
        gpuws.hold(1)
    gpuws.release()
    gpuws.release()
    assert not held.is_held and gpuws.leases().leases == ()
    for end in ("", "os._exit(3)", "os.kill(os.getpid(), 9)"):
        text = f"import gpuws, os\nprint(gpuws.hold(2).lease, flush=True)\n{end}"
        assert run(text, check=False).stdout.strip()
        assert gpuws.leases().leases == ()


def test_claim_waits_for_its_turn_and_says_what_for(machine, capfd):
    granted, said = [], []

    def reported():
        said.append(capfd.readouterr().err)
        return "waiting for 1 GPU" in "".join(said)

    def wait():
        with gpuws.claim(1, timeout=60) as claim:
            granted.append(claim.is_held)

    with another_holder(4):
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: gpuws.leases().queue and reported())
    thread.join(60)
    assert granted == [True]


def test_timeout_ends_a_wait(machine):
    with another_holder(4):
        with pytest.raises(gpuws.NotAvailable, match="within the timeout"):
            gpuws.hold(1, timeout=0.3, quiet=True)
        assert gpuws.leases().queue == ()


WAITS = """
import gpuws, signal
# A shell starts what runs in the background with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
@gpuws.isolated
def work(): pass
try:
    WHAT
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("what", ["gpuws.hold(1)", "work()"])
def test_ctrl_c_ends_a_wait_and_withdraws_the_claim(machine, tmp_path, what):
    path = tmp_path / "gpuws_test_waits.py"
    path.write_text(WAITS.replace("WHAT", what))
    with another_holder(4):
        command = [sys.executable, "-c", "import gpuws_test_waits"]
        pipes = {"stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=tmp_path, **pipes)
        until(lambda: gpuws.leases().queue, process)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0].strip() == "interrupted"
        assert gpuws.leases().queue == ()


def test_claim_after_cuda_was_initialised_fails_by_name(machine):
    # What a context of CUDA opens.
    descriptor = os.open(os.path.join(machine.path, "dev", "nvidia-uvm"), os.O_RDWR)
    try:
        with pytest.raises(gpuws.CudaInitialized, match="already initialised here by") as raised:
            gpuws.claim().__enter__()
        assert "/dev/nvidia-uvm" in str(raised.value) and "first CUDA call" in raised.value.hint
    finally:
        os.close(descriptor)
    with gpuws.claim(quiet=True):
        pass


def test_claim_names_the_framework_that_has_initialised_cuda(machine, monkeypatch):
    import types

    cuda = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with pytest.raises(gpuws.CudaInitialized, match="by torch"):
        gpuws.hold()


def test_release_with_a_context_warns(machine):
    claim = gpuws.claim(quiet=True)
    claim.__enter__()
    descriptor = os.open(os.path.join(machine.path, "dev", "nvidia-uvm"), os.O_RDWR)
    try:
        with pytest.warns(ResourceWarning, match="still has a CUDA context"):
            claim.release()
    finally:
        os.close(descriptor)


def test_forked_child_neither_holds_nor_releases(machine):
    with gpuws.claim(quiet=True) as claim:
        pid = os.fork()
        if pid == 0:
            claim.release()
            os._exit(0 if not claim.is_held else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert claim.is_held and len(gpuws.leases().leases) == 1


FORKS = """
import gpuws, os, time
gpuws.hold(4, quiet=True)
pid = os.fork()
if pid == 0:
    time.sleep(600)
print(pid, flush=True)
time.sleep(600)
"""


def test_gpus_are_free_when_the_last_forked_process_has_ended(machine):
    process = subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.stdout.close()
    process.kill()
    process.wait()
    with pytest.raises(gpuws.NotAvailable):
        gpuws.claim(wait=False).__enter__()
    os.kill(child, signal.SIGKILL)
    with gpuws.claim(4, timeout=60, quiet=True):
        pass


def test_child_of_a_claim_may_use_its_gpus(machine, run):
    with gpuws.claim(1, visible="index", quiet=True):
        text = "import gpuws\nprint(gpuws.hold(1, wait=False, visible='index').gpus[0].index)"
        assert run(text).stdout.strip() == visible()
        process = machine.use(mib=700)
        assert memory_mib()[int(visible())] >= 700
        (lease,) = gpuws.leases().leases
        assert [user.pid for user in lease.users] == [process.pid]
        process.kill()
        process.wait()


def test_async_claim_lets_other_tasks_run(machine):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        task = asyncio.create_task(tick())
        async with gpuws.aclaim(1, quiet=True) as claim:
            assert claim.is_held
        task.cancel()
        return ticks, claim

    ticks, claim = asyncio.run(main())
    assert ticks > 0 and not claim.is_held


def test_claims_that_overlap_leave_the_visible_gpus_of_the_one_that_is_held(machine):
    os.environ["CUDA_VISIBLE_DEVICES"] = "1,2,3"
    first, second = (gpuws.claim(visible="index", quiet=True) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.release()
    assert visible() == str(second.gpus[0].index)
    assert os.environ["GPUWS_LEASE"] == second.lease
    # Within the outer list, not within the lease that is gone.
    with gpuws.claim(2, wait=False, visible="index") as both:
        assert {gpu.index for gpu in (*both.gpus, *second.gpus)} == {1, 2, 3}
    second.release()
    assert visible() == "1,2,3" and "GPUWS_LEASE" not in os.environ


def test_hold_within_a_claim_stays_visible_after_it(machine):
    with gpuws.claim(quiet=True):
        held = gpuws.hold(visible="index", quiet=True)
    assert held.is_held and visible() == str(held.gpus[0].index)
    gpuws.release()
    assert visible() is None


def test_claims_of_threads_keep_the_environment(machine):
    wrong = []

    def work():
        for _ in range(5):
            with gpuws.claim(quiet=True, timeout=60) as claim:
                if os.environ.get("GPUWS_LEASE") is None or not claim.is_held:
                    wrong.append(claim)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and visible() is None and "GPUWS_LEASE" not in os.environ
    assert gpuws.leases().leases == ()


def test_claim_is_used_once(machine):
    claim = gpuws.claim(quiet=True)
    with claim, pytest.raises(gpuws.GpuwsError, match="that is held"):
        claim.__enter__()
    with pytest.raises(gpuws.GpuwsError, match="that is released"):
        claim.__enter__()


def test_async_claims_that_overlap_restore_the_environment(machine):
    async def work(seconds):
        async with gpuws.aclaim(quiet=True) as claim:
            await asyncio.sleep(seconds)
            assert os.environ["GPUWS_LEASE"] in [each.id for each in gpuws.leases().leases]
            assert claim.is_held

    async def main():
        await asyncio.gather(work(0.3), work(0.6), work(0.1))

    asyncio.run(main())
    assert visible() is None and gpuws.leases().leases == ()


def test_cancelled_async_claim_is_withdrawn(machine):
    async def main():
        task = asyncio.create_task(gpuws.aclaim(1, quiet=True).__aenter__())
        while not gpuws.leases().queue:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with another_holder(4) as holder:
        asyncio.run(main())
        assert [lease.pid for lease in gpuws.leases().leases] == [holder.pid]
        assert gpuws.leases().queue == ()
    assert visible() is None
    with gpuws.claim(wait=False, quiet=True):
        pass
