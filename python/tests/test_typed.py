"""The stubs: they have what the modules have, and the fields of docs/schema."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpuws

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(gpuws.__file__).parent


def test_types_of_records_are_those_of_the_schemas():
    check = [sys.executable, ROOT / "packaging" / "python" / "records.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["__init__", "_gpuws", "mem", "notebook", "callbacks"])
def test_stub_names_what_the_module_has(name):
    import importlib

    module = importlib.import_module("gpuws" if name == "__init__" else f"gpuws.{name}")
    tree = ast.parse((PACKAGE / f"{name}.pyi").read_text())
    stubbed = {each.name for each in tree.body if hasattr(each, "name")}
    public = {each for each in stubbed if not each.startswith("_")}
    lazy = {"LightningGpus", "KerasGpus"} if name == "callbacks" else set()
    assert all(hasattr(module, each) for each in public - lazy)
    if name == "_gpuws":
        assert public == {each for each in dir(module) if not each.startswith("_")}
    elif name == "__init__":
        listed = set(gpuws.__all__) - {"callbacks", "compat", "mem", "notebook"}
        assert listed <= stubbed


PROGRAM = """
import gpuws

@gpuws.isolated(mem="6GiB", timeout=3)
def words(count: int) -> str:
    return str(count)

text: str = words(3)
with gpuws.claim(2) as claim:
    index: int = claim.gpus[0].index
for gpu in gpuws.status().gpus:
    used: int | None = gpu.memory_used_bytes
words("3")
gpuws.status().gpus[0].memry
"""


def test_type_checker_sees_the_types_and_finds_mistakes(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in found] == ["13", "14"], done.stdout + done.stderr
