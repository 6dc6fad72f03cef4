"""The pytest plugin, in pytest runs of its own."""

import pytest

SIM = ("--gpuws-sim", "rtx8000-x4", "-p", "no:cacheprovider")


def outcomes(pytester, *arguments):
    result = pytester.runpytest_subprocess(*SIM, *arguments)
    return result, result.parseoutcomes()


def test_each_xdist_worker_has_a_lease_of_its_own(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import os, time, gpuws, pathlib, pytest

        @pytest.mark.parametrize("n", range(16))
        def test_gpu(gpu, n):
            # The GPU is this worker's alone while the others run.
            (mine,) = [each.index for each in gpu.gpus]
            path = pathlib.Path(os.environ["GPUWS_SIM_SESSION"], f"in-use-{mine}")
            held = path.exists() and path.read_text()
            assert not held or held == os.environ["PYTEST_XDIST_WORKER"]
            path.write_text(os.environ["PYTEST_XDIST_WORKER"])
            time.sleep(0.05)
            assert len(gpuws.leases().leases) <= 4
            assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu.gpus[0].uuid
        """
    )
    _, done = outcomes(pytester, "-n", "4")
    assert done == {"passed": 16}


def test_workers_stay_within_the_outer_list(pytester, monkeypatch):
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("n", range(4))
        def test_gpu(gpu, n):
            assert gpu.gpus[0].index in (1, 3)
        """
    )
    pytester.makeconftest(
        """
        import os
        def pytest_sessionstart(session):
            os.environ["CUDA_VISIBLE_DEVICES"] = "1,3"
        """
    )
    _, done = outcomes(pytester, "-n", "2")
    assert done == {"passed": 4}


def test_more_workers_than_gpus_fail_by_name_and_wait_once(pytester):
    pytest.importorskip("xdist")
    # The workers with a GPU keep it until the others have failed.
    pytester.makepyfile(
        """
        import os, pytest, time
        @pytest.mark.parametrize("n", range(6))
        def test_gpu(gpu, n):
            end = time.monotonic() + 60
            while n == 5 and time.monotonic() < end and os.stat("ended").st_size < 2:
                time.sleep(0.05)
        """
    )
    pytester.makeconftest(
        """
        from gpuws import _claim
        def note(name):
            with open(name, "a") as noted:
                noted.write("x")
        def pytest_runtest_logreport(report):
            # Only the reports that the controller receives have a node.
            if report.failed and report.nodeid.endswith("[5]") and not hasattr(report, "node"):
                note("ended")
        wait = _claim.Claim._wait
        def counted(*arguments):
            note("waits")
            return wait(*arguments)
        _claim.Claim._wait = counted
        """
    )
    (pytester.path / "ended").touch()
    # A machine of four GPUs, and two workers too many.
    result, done = outcomes(pytester, "-n", "6", "--gpuws-timeout", "1", "--dist", "each")
    assert done == {"passed": 24, "errors": 12}
    result.stdout.fnmatch_lines(["*4 other workers of pytest-xdist keep GPUs: use at most -n 4*"])
    assert (pytester.path / "waits").read_text() == "x" * 6
    assert (pytester.path / "ended").read_text() == "xx"


OWN = """
    import os, pytest
    @pytest.fixture
    def gpu():
        return "mine"
    @pytest.mark.gpu(device="any")
    def test_own(gpu):
        assert gpu == "mine" and "GPUWS_LEASE" not in os.environ
"""


def test_suite_with_a_fixture_and_a_mark_of_its_own_is_untouched(pytester):
    pytester.makepyfile(OWN)
    pytester.makeini("[pytest]\nmarkers = gpu: needs a GPU\naddopts = --strict-markers")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error").parseoutcomes()
    assert done == {"passed": 1}


def test_setting_claims_without_an_option(pytester, machine):
    pytester.makepyfile(
        """
        import os, pytest
        @pytest.mark.gpu
        def test_gpu(): assert "GPUWS_LEASE" in os.environ
        """
    )
    pytester.makeini("[pytest]\ngpuws = true\naddopts = --strict-markers")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider").parseoutcomes()
    assert done == {"passed": 1}


def test_fixtures_of_a_test_see_its_gpus(pytester):
    pytester.makepyfile(
        """
        import gpuws, os, pytest

        @pytest.fixture(scope="module")
        def model():
            return os.environ.get("CUDA_VISIBLE_DEVICES")

        @pytest.mark.skip
        @pytest.mark.gpu(n=4)
        def test_skipped(): pass

        @pytest.mark.gpu
        def test_mark(model):
            (lease,) = gpuws.leases().leases
            assert [gpu.uuid for gpu in lease.gpus] == [model]

        def test_fixture(model, gpu):
            assert model == gpu.gpus[0].uuid
        """
    )
    assert outcomes(pytester)[1] == {"passed": 2, "skipped": 1}


def test_lease_stays_with_a_context_of_cuda(pytester):
    pytester.makepyfile(
        """
        import gpuws, os, pytest

        @pytest.mark.gpu
        def test_first():
            path = os.path.join(os.environ["GPUWS_SIM_SESSION"], "dev", "nvidia-uvm")
            os.open(path, os.O_RDWR)

        @pytest.mark.gpu(n=2)
        def test_more(): raise AssertionError("it ran")

        def test_after():
            assert [len(lease.gpus) for lease in gpuws.leases().leases] == [1]
        """
    )
    result, done = outcomes(pytester, "-W", "ignore")
    assert done == {"passed": 2, "errors": 1}
    result.stdout.fnmatch_lines(["*CudaInitialized: *"])


def test_mark_says_how_many_gpus_and_how_much_memory(pytester):
    pytester.makepyfile(
        """
        import gpuws, os, pytest
        @pytest.mark.gpu(n=2)
        def test_two():
            assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2
        @pytest.mark.gpu(mem="6GiB")
        def test_share(gpu):
            assert gpuws.leases().leases[0].share_bytes == 6 << 30
        def test_none():
            pass
        """
    )
    _, done = outcomes(pytester)
    assert done == {"passed": 3}


def test_test_without_enough_gpus_is_skipped_or_fails_on_request(pytester):
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.gpu(n=9)
        def test_nine(): raise AssertionError("it ran")
        """
    )
    result, done = outcomes(pytester, "-rs")
    assert done == {"skipped": 1}
    result.stdout.fnmatch_lines(["*only 4 can match*"])
    assert outcomes(pytester, "--gpuws-require")[1] == {"errors": 1}


def test_leaked_process_and_memory_fail_the_test(pytester):
    pytester.makepyfile(
        """
        import os, pytest, subprocess, time

        def use(*, detached=False):
            actor = os.path.join(os.environ["GPUWS_SIM_SESSION"], "nvml-sim-process")
            process = subprocess.Popen([actor, "--use", "visible:700"], start_new_session=detached)
            registered = os.path.join(os.environ["GPUWS_SIM_SESSION"], "walk-ons")
            while not any(n.startswith(f"{process.pid}-") for n in os.listdir(registered)):
                time.sleep(0.01)
            return process

        @pytest.mark.gpu
        def test_clean():
            process = use()
            process.kill()
            process.wait()

        @pytest.mark.gpu
        def test_leak():
            use()

        @pytest.mark.gpu
        def test_clean_after_leak():
            pass
        """
    )
    result, done = outcomes(pytester, "--gpuws-no-leak")
    assert done == {"passed": 2, "failed": 1}
    result.stdout.fnmatch_lines(["*Leaked: *left behind on its GPUs: process * 700 MiB of GPU*"])
    # Without the option nobody looks.
    assert outcomes(pytester)[1] == {"passed": 3}


def test_plugin_without_a_driver_skips(pytester):
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_gpu(): pass")
    result = pytester.runpytest_subprocess("-rs", "-o", "gpuws=true", "-p", "no:cacheprovider")
    done = result.parseoutcomes()
    # On a machine with a free GPU it runs.
    assert done in ({"skipped": 1}, {"passed": 1})
