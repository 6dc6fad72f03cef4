"""Isolated functions: nothing of them is left, and their memory is back."""

import os
import signal
import subprocess
import sys

import pytest

import gpuws
from observed import alive, another_holder, memory_mib, until

# What runs in isolation is a module of its own, as it would be.
JOBS = '''
import os, signal, subprocess, sys, time
import gpuws

def use(path, detached=True):
    """Uses memory of the GPUs by a process that has left its session, as a data loader's."""
    actor = os.path.join(os.environ["GPUWS_SIM_SESSION"], "nvml-sim-process")
    process = subprocess.Popen([actor, "--use", "visible:1000"], start_new_session=detached)
    with open(path, "a") as pids:
        pids.write(f"{process.pid}\\n")
    registered = os.path.join(os.environ["GPUWS_SIM_SESSION"], "walk-ons")
    while not any(name.startswith(f"{process.pid}-") for name in os.listdir(registered)):
        time.sleep(0.01)

@gpuws.isolated(grace=1)
def work(path, how, value=None):
    use(path)
    if how == "raise":
        raise LookupError("no luck", value)
    if how == "exit":
        os._exit(3)
    if how == "sys.exit":
        sys.exit("bye")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fork":
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if os.fork() == 0:
                    time.sleep(600)
                time.sleep(600)
    return os.environ["CUDA_VISIBLE_DEVICES"], value

@gpuws.isolated(timeout=1.5, grace=0.5)
def hang(path):
    use(path)
    time.sleep(600)

@gpuws.isolated
def add(a, b=1):
    return a + b

@gpuws.isolated
def lock():
    import threading
    return threading.Lock()

@gpuws.isolated(timeout=60)
def forks(how):
    pid = os.fork()
    if pid == 0:
        if how == "raise":
            raise LookupError("in the child")
        if how == "exit":
            sys.exit(5)
        return "child"
    return "parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@gpuws.isolated(timeout=30, grace=1)
def leaves(what):
    import multiprocessing, threading
    kind = threading.Thread if what == "thread" else multiprocessing.Process
    kind(target=time.sleep, args=(600,)).start()
    print("unflushed")
    return "done"

@gpuws.isolated
def fails(kind):
    raise kind("no GPU left", hint="wait")

@gpuws.isolated
def command():
    return [lease.command for lease in gpuws.leases().leases]

@gpuws.isolated(9)
def nine(): pass

@gpuws.isolated(2, wait=False)
def two():
    return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
'''


@pytest.fixture
def jobs(machine, tmp_path, monkeypatch):
    (tmp_path / "gpuws_test_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("gpuws_test_jobs", None)
    import gpuws_test_jobs

    yield gpuws_test_jobs
    sys.modules.pop("gpuws_test_jobs", None)


@pytest.mark.parametrize("how", ["return", "raise", "exit", "sys.exit", "kill", "fork"])
def test_memory_and_processes_are_gone_at_return(jobs, tmp_path, how):
    before, path = memory_mib(), tmp_path / "pids"
    if how in ("return", "fork"):
        outcome = jobs.work.outcome(str(path), how, {"a": [1]})
        assert outcome.value[1] == {"a": [1]}
        report = outcome.report
        assert report.gpus[0].peak_memory_bytes is None or report.gpus[0].peak_memory_bytes >= 0
    elif how == "raise":
        with pytest.raises(LookupError, match="no luck") as raised:
            jobs.work(str(path), how, 7)
        assert raised.value.args == ("no luck", 7)
        assert "in work" in str(raised.value.__cause__)
        assert isinstance(raised.value.__cause__, gpuws.RemoteTraceback)
        report = None
    else:
        with pytest.raises(gpuws.IsolatedDied) as raised:
            jobs.work(str(path), how)
        reported = {"exit": "code 3", "sys.exit": "sys.exit('bye')", "kill": "SIGKILL"}[how]
        assert reported in str(raised.value)
        report = raised.value.report
    assert memory_mib() == before
    assert not any(alive(pid) for pid in path.read_text().split())
    assert gpuws.leases().leases == ()
    if report is not None:
        assert report.memory_back is True and report.left_pids == () and report.ended_pids


def test_time_limit_ends_the_whole_tree(jobs, tmp_path):
    before, path = memory_mib(), tmp_path / "pids"
    with pytest.raises(gpuws.IsolatedTimeout, match="within 1.5 s") as raised:
        jobs.hang(str(path))
    assert isinstance(raised.value, TimeoutError) and raised.value.report.limit_hit
    assert memory_mib() == before
    assert not any(alive(pid) for pid in path.read_text().split())


def test_ctrl_c_ends_the_whole_tree(jobs, tmp_path):
    before, path = memory_mib(), tmp_path / "pids"
    text = f"""
import signal, sys; sys.path.insert(0, {str(tmp_path)!r})
# A shell starts what runs in the background with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
import gpuws_test_jobs as jobs
try:
    jobs.hang.__wrapped__ and jobs.gpuws.isolated(grace=0.5)(jobs.hang.__wrapped__)({str(path)!r})
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    until(lambda: path.exists() and memory_mib() != before, process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0].strip() == "interrupted"
    assert memory_mib() == before
    assert not any(alive(pid) for pid in path.read_text().split())


def test_killed_caller_takes_the_tree_along(jobs, tmp_path):
    before, path = memory_mib(), tmp_path / "pids"
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    text += f"import gpuws_test_jobs as jobs\njobs.hang({str(path)!r})"
    process = subprocess.Popen([sys.executable, "-c", text])
    until(lambda: path.exists() and memory_mib() != before, process)
    process.kill()
    process.wait()
    until(lambda: memory_mib() == before and gpuws.leases().leases == ())
    assert not any(alive(pid) for pid in path.read_text().split())


def test_job_imports_nothing_from_the_current_directory(jobs, tmp_path, monkeypatch):
    there = tmp_path / "writable by others"
    there.mkdir()
    for name in ("pickle", "os", "gpuws", "traceback"):
        (there / f"{name}.py").write_text("open('ran', 'w'); raise ImportError")
    monkeypatch.chdir(there)
    assert jobs.add(1) == 2
    assert not (there / "ran").exists()


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 1), ("exit", 5)])
def test_forked_child_sends_no_result(jobs, how, code):
    assert jobs.forks(how) == ("parent", code)


@pytest.mark.parametrize("what", ["thread", "process"])
def test_result_does_not_wait_for_what_the_function_left(jobs, what, capfd):
    outcome = jobs.leaves.outcome(what)
    assert outcome.value == "done" and not outcome.report.limit_hit
    assert capfd.readouterr().out == "unflushed\n"


def test_function_runs_although_standard_error_is_closed(jobs, tmp_path, run):
    text = f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        sys.stderr = None
        import gpuws_test_jobs
        print(gpuws_test_jobs.add(1))
    """
    assert run(text).stdout == "2\n"


@pytest.mark.parametrize("kind", [gpuws.NotAvailable, gpuws.NotPermitted, gpuws.IsolatedTimeout])
def test_own_exceptions_of_the_function_keep_their_class(jobs, kind):
    with pytest.raises(kind) as raised:
        jobs.fails(kind)
    error = raised.value
    assert type(error) is kind and (error.kind, error.hint) == (kind.kind, "wait")
    assert "no GPU left" in str(error) and "in fails" in str(error.__cause__)


def test_claim_of_an_isolated_function_fails_as_any_claim(jobs):
    with pytest.raises(gpuws.NeverAvailable):
        jobs.nine()
    with another_holder(3):
        with pytest.raises(gpuws.NotAvailable, match="isolated job"):
            jobs.two()
    assert jobs.command() == ["isolated command"]


def test_isolated_function_without_a_driver(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if gpuws.status().driver_error is None:
        pytest.skip("this machine has a driver")
    with pytest.raises(gpuws.DriverError):
        gpuws.isolated(test_isolated_function_without_a_driver)()


def test_lambda_and_closure_run_with_cloudpickle(machine):
    pytest.importorskip("cloudpickle")
    base = 40
    assert gpuws.isolated(lambda extra: base + extra)(2) == 42


def test_arguments_and_results_of_any_size_pass(jobs):
    big = os.urandom(3 << 20)
    assert jobs.add(big, b=big) == big + big
    assert jobs.add.__name__ == "add" and jobs.two() == 2


def test_result_that_cannot_be_sent_is_an_error_with_its_text(jobs):
    with pytest.raises(TypeError, match="cannot pickle"):
        jobs.lock()


def test_isolated_within_a_claim_uses_its_gpus(jobs):
    with gpuws.claim(2, visible="index", gpu="2,3", quiet=True):
        assert jobs.two() == 2
        with pytest.raises(gpuws.GpuwsError):
            gpuws.isolated(3, wait=False)(jobs.add.__wrapped__)(1)


def test_function_that_would_return_before_it_has_run_is_refused():
    async def later(): ...

    def steps():
        yield

    for function in (later, steps):
        with pytest.raises(gpuws.InvalidRequest, match="before it has run"):
            gpuws.isolated(function)


def test_caller_that_ignores_its_children_is_told(jobs):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(gpuws.GpuwsError, match="ignores SIGCHLD"):
            jobs.add(1)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_bad_terms_are_reported_at_the_decorator():
    with pytest.raises(gpuws.InvalidRequest, match="lots"):
        gpuws.isolated(mem="lots")
    for terms in ({"grace": -1}, {"grace": None}, {"timeout": float("nan")}, {"timeout": "1 h"}):
        with pytest.raises(gpuws.InvalidRequest):
            gpuws.isolated(**terms)


# A script as people write it: no cloudpickle, and its functions and classes in the script itself.
SCRIPT = """
import sys
sys.modules["cloudpickle"] = None
import gpuws

class Sum:
    def __init__(self, value):
        self.value = value

@gpuws.isolated
def add(left, right):
    return Sum(left.value + right.value)

def count(names):
    return len(names)

class Trainer:
    @staticmethod
    @gpuws.isolated
    def train():
        return sys.argv[1:], __name__

if __name__ == "__main__":
    with gpuws.sim("rtx8000-x4"):
        total = add(Sum(40), Sum(2))
        print(isinstance(total, Sum), total.value, gpuws.isolated(count)("abc"), Trainer.train())
"""


@pytest.mark.parametrize("start", [["program.py"], ["-m", "program"]])
def test_functions_of_the_main_script_are_isolated(tmp_path, start):
    (tmp_path / "program.py").write_text(SCRIPT)
    words = [sys.executable, *start, "--epochs"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True 42 3 (['--epochs'], '__mp_main__')\n", done.stderr


def test_isolated_call_during_import_of_the_main_script_is_refused(run):
    done = run(
        """
        import sys
        sys.modules["cloudpickle"] = None
        import gpuws

        @gpuws.isolated
        def one():
            return 1

        with gpuws.sim("rtx8000-x4"):
            try:
                one()
            except gpuws.InvalidRequest as error:
                print(error, error.hint)
        """
    )
    want = "failed to run one: the main script calls it when it is imported\nhint: call it below: if"
    assert want in done.stdout, done.stdout
