//! The Python package: its wheel, and its tests in a fresh virtual environment.
//!
//! pip downloads maturin and the requirements of the tests; all files are in the target directory.

use crate::cargo::target_dir;
use crate::peers::install_safe_gpu;
use crate::program::output_of;
use crate::venv::Venv;
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools that build the wheel.
const TOOLS: &str = "maturin==1.16.0\npip>=23\n";

/// The requirements of the tests.
const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// The default profile of the tests, for which `.ci/run` has already built the programs, and the
/// variable that overrides it.
const TESTED: &str = "release";
const PROFILE: &str = "GPUWS_WHEEL_PROFILE";

/// The variable that names the directory of the Node.js that pyright downloads.
const PYRIGHT_DIR: &str = "PYRIGHT_PYTHON_CACHE_DIR";

/// Builds the wheel with this cargo profile, and prints its path.
///
/// # Errors
/// If Python, pip or maturin is missing or fails, or `out` cannot be written.
pub fn wheel(root: &Path, profile: &str, out: &mut dyn Write) -> io::Result<bool> {
    let dirs = Dirs::below(&target_dir(root));
    dirs.tools().install()?;
    let wheel = dirs.build(root, profile)?;
    writeln!(out, "{}", wheel.display())?;
    Ok(true)
}

/// Builds the wheel, installs it in a fresh virtual environment, and runs the tests there; pytest
/// also gets these arguments, and names skipped tests. Without Python or its packages, prints that
/// it skips the tests.
///
/// # Errors
/// If the wheel cannot be built or installed, or `out` cannot be written.
pub fn python(root: &Path, arguments: &[&str], out: &mut dyn Write) -> io::Result<bool> {
    let dirs = Dirs::below(&target_dir(root));
    if let Err(error) = dirs.tools().install() {
        writeln!(out, "python: skipped: maturin is not available: {error}")?;
        return Ok(true);
    }
    let profile = std::env::var(PROFILE).unwrap_or_else(|_| TESTED.to_owned());
    let wheel = dirs.build(root, &profile)?;
    writeln!(out, "python: built {}", wheel.display())?;
    let fresh = Venv::new(dirs.0.join("fresh"), REQUIREMENTS);
    if let Err(error) = fresh.renew() {
        writeln!(out, "python: skipped: test dependencies are missing: {error}")?;
        return Ok(true);
    }
    // The wheel has no dependencies, so pip need not query an index.
    output_of(fresh.pip().args(["install", "--quiet", "--no-deps", "--no-index"]).arg(&wheel))?;
    for version in ["1.5.1", "2.0.0"] {
        if let Err(error) = install_safe_gpu(&dirs.0, version) {
            writeln!(out, "python: safe-gpu {version} is not installed: {error}")?;
        }
    }
    // Without Node.js, the package of pyright downloads it at its first start.
    let mut pyright = Command::new(fresh.program("python"));
    pyright.args(["-m", "pyright", "--version"]).env(PYRIGHT_DIR, dirs.0.join("pyright"));
    if let Err(error) = output_of(&mut pyright) {
        // The first lines are about the steps on the way there.
        let error = error.to_string();
        writeln!(out, "python: no pyright: {}", error.lines().last().unwrap_or_default())?;
    }
    out.flush()?;
    let mut pytest = Command::new(fresh.program("python"));
    pytest
        .args(["-m", "pytest", "-q", "-rs", "-n", "4", "python/tests"])
        .args(arguments)
        .current_dir(root);
    for name in ["PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "GPUWS_CLAIMS"] {
        pytest.env_remove(name);
    }
    pytest.env("GPUWS_SAFE_GPU", &dirs.0).env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.env(PYRIGHT_DIR, dirs.0.join("pyright"));
    Ok(pytest.status()?.success())
}

/// The directories of the Python package in the target directory.
struct Dirs(PathBuf);

impl Dirs {
    fn below(target: &Path) -> Self {
        Dirs(target.join("python"))
    }

    /// Returns the environment with maturin.
    fn tools(&self) -> Venv {
        Venv::new(self.0.join("tools"), TOOLS)
    }

    /// Builds the wheel, and returns its path.
    fn build(&self, root: &Path, profile: &str) -> io::Result<PathBuf> {
        let (wheels, tools) = (self.0.join("wheels"), self.tools());
        // The search would also find wheels of earlier versions.
        let _ = fs::remove_dir_all(&wheels);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&path);
        let path = std::env::join_paths([tools.bin()].into_iter().chain(path));
        let mut build = tools.pip();
        build.args(["wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir"]);
        build.arg(&wheels).arg(root).env(PROFILE, profile);
        build.env("PATH", path.map_err(Error::other)?);
        build.env("CARGO_TARGET_DIR", target_dir(root));
        if !build.status()?.success() {
            return Err(Error::other("failed to build the wheel; the reason is above"));
        }
        let found = fs::read_dir(&wheels)?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found = found.filter(|path| path.extension().is_some_and(|end| end == "whl"));
        found.next().ok_or_else(|| Error::other("pip built no wheel"))
    }
}
