"""The build backend of the Python package: builds what the package carries, then calls maturin.

The package carries the program `gpuws` and the simulated NVML, which cargo builds from this
repository, or from the source distribution, which has the same files. They go to the data folder of
pyproject.toml: `scripts/` is installed as the folder of programs, `platlib/` as that of packages.

GPUWS_WHEEL_PROFILE names the profile of cargo; default: dist, the profile for distribution.
"""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import maturin
from maturin import (  # noqa: F401, the hooks that need nothing more
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "python" / "data"
# Programs beside the package, and libraries within it, by the names of cargo.
PLACES = {
    "gpuws": "scripts/gpuws",
    "nvml-sim-process": "platlib/gpuws/_sim/nvml-sim-process",
    "nvml_sim": "platlib/gpuws/_sim/libnvidia-ml.so.1",
}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_sdist(sdist_directory, config_settings=None):
    """Packs the files of the repository, because the program is made of most of them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE)
    if listed.returncode != 0:
        raise SystemExit("failed to list the files: a source distribution needs the git repository")
    with tempfile.TemporaryDirectory() as metadata:
        info = Path(metadata) / prepare_metadata_for_build_wheel(metadata) / "METADATA"
        # NAME-VERSION.dist-info
        stem = info.parent.name.removesuffix(".dist-info")
        archive = f"{stem}.tar.gz"
        with tarfile.open(Path(sdist_directory) / archive, "w:gz") as packed:
            packed.add(info, f"{stem}/PKG-INFO")
            for name in filter(None, listed.stdout.decode().split("\0")):
                # A file that is listed may be deleted in the working tree.
                if os.path.lexists(ROOT / name):
                    packed.add(ROOT / name, f"{stem}/{name}", recursive=False)
    return archive


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    profile = os.environ.get("GPUWS_WHEEL_PROFILE", "dist")
    _build_programs(profile)
    arguments = os.environ.get("MATURIN_PEP517_ARGS", "")
    os.environ["MATURIN_PEP517_ARGS"] = f"{arguments} --profile {profile}".strip()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_programs(os.environ.get("GPUWS_WHEEL_PROFILE", "dev"))
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _build_programs(profile):
    command = ["cargo", "build", "--locked", "--profile", profile, "--features", "full"]
    command += ["--package", "gpuws", "--package", "gpu-nvml-sim", "--message-format", "json"]
    print("building the programs:", *command, flush=True)
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        raise SystemExit("failed to build the programs; cargo's messages are above")
    shutil.rmtree(DATA, ignore_errors=True)
    for line in built.stdout.splitlines():
        artifact = json.loads(line)
        if artifact["reason"] != "compiler-artifact":
            continue
        place = PLACES.get(artifact["target"]["name"])
        is_program = "bin" in artifact["target"]["kind"]
        for file in artifact["filenames"]:
            if place and (is_program or file.endswith(".so")):
                _put(Path(file), DATA / place)
    missing = [place for place in PLACES.values() if not (DATA / place).is_file()]
    if missing:
        raise SystemExit(f"failed to build {', '.join(missing)}")


def _put(file, place):
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, place)
    subprocess.run(["strip", "--strip-debug", place], check=False)
    place.chmod(0o755)
