"""The installed wheel: the program, the import, the sources."""

import os
import subprocess
import sys

import gpuws


def test_program_of_the_wheel_is_found_and_runs():
    program = gpuws.find_gpuws_bin()
    assert program.startswith(sys.prefix)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    module = [sys.executable, "-m", "gpuws", "--version"]
    assert subprocess.run(module, capture_output=True, text=True, check=True).stdout == said
    assert said.split() == ["gpuws", gpuws.__version__]


def test_program_beside_the_package_is_preferred(tmp_path):
    """As on Debian: the package is below /usr/local, and another gpuws in the prefix of Python."""
    package = os.path.dirname(gpuws.__file__)
    for site, program in [
        ("local/lib/python3.11/dist-packages", "local/bin/gpuws"),
        ("target", "target/bin/gpuws"),
    ]:
        (tmp_path / site).mkdir(parents=True)
        (tmp_path / site / "gpuws").symlink_to(package)
        path = tmp_path / program
        path.parent.mkdir()
        path.write_text("#!/bin/sh")
        path.chmod(0o755)
        text = f"import sys; sys.path.insert(0, {str(tmp_path / site)!r}); import gpuws; "
        text += "print(gpuws.find_gpuws_bin())"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        assert done.stdout == f"{path}\n", done.stderr


def test_installed_program_finds_the_simulated_nvml():
    command = [gpuws.find_gpuws_bin(), "sim", "labbox", "--", gpuws.find_gpuws_bin(), "status"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "simulated machine labbox" in done.stdout


def test_import_loads_only_what_every_program_needs():
    loaded = "import sys; before = set(sys.modules); import gpuws; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-I", "-c", loaded], capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "gpuws._gpuws" in modules
    slow = {"json", "subprocess", "typing", "asyncio", "ctypes", "sysconfig", "pickle", "logging"}
    assert not modules & slow, sorted(modules & slow)


def test_package_needs_no_other():
    """The types need typing_extensions on Python 3.10, but only type checkers read them."""
    text = """
        import sys
        sys.modules.update(dict.fromkeys(["typing_extensions", "cloudpickle", "pynvml"]))
        import gpuws
        assert all(getattr(gpuws, name) for name in gpuws.__all__)
        from gpuws.compat import GPUtil, gpustat, nvitop, py3nvml, safe_gpu
        assert gpuws.ClaimTerms.__annotations__
    """
    text = "\n".join(line.strip() for line in text.splitlines())
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names_are_all_there():
    for name in gpuws.__all__:
        assert getattr(gpuws, name) is not None
    assert set(gpuws.__all__) <= set(dir(gpuws))


def test_package_says_that_it_is_typed():
    assert os.path.isfile(os.path.join(os.path.dirname(gpuws.__file__), "py.typed"))
