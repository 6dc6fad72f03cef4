//! The Debian package, packed by cargo-deb from `[package.metadata.deb]` of the program.

use super::{CleanRoot, Programs, fill, portable};
use crate::cargo;
use crate::program::output_of;
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of cargo-deb to install if it is missing.
const VERSION: &str = "3.8.0";

/// Builds the programs for old distributions, packs them into `packages` of the build directory,
/// and installs the package into a clean directory, where the program must start. Returns whether
/// all of this succeeded.
///
/// # Errors
/// If a tool cannot be installed or fails, or if a file cannot be written.
pub fn deb(root: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let cargo_deb = CargoDeb::installed(root, out)?;
    let Some(programs) = portable::build(root, out)? else { return Ok(false) };
    let dir = cargo::target_dir(root).join("packages");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let package = cargo_deb.pack(root, &programs, "dist", &dir)?;
    writeln!(out, "deb: {}", package.display())?;
    if !nix::unistd::geteuid().is_root() {
        writeln!(out, "deb: skipped installation: it requires root")?;
        return Ok(true);
    }
    let clean = CleanRoot::install(&dir.join("clean-root"), &package)?;
    let version = output_of(&mut clean.command(&["gpuws", "--version"]))?;
    writeln!(out, "deb: installed with {}: {}", clean.packages().join(", "), version.trim())?;
    Ok(true)
}

#[derive(Clone, Debug)]
/// The program `cargo-deb`.
pub struct CargoDeb(PathBuf);

impl CargoDeb {
    /// Returns cargo-deb on the `PATH` or in `tools` of the build directory; `None` if it is not
    /// installed.
    pub fn found(root: &Path) -> Option<Self> {
        let runs = |program: &PathBuf| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let tools = cargo::target_dir(root).join("tools/bin/cargo-deb");
        ["cargo-deb".into(), tools].into_iter().find(runs).map(CargoDeb)
    }

    /// Installs cargo-deb into `tools` of the build directory if it is not installed.
    fn installed(root: &Path, out: &mut dyn Write) -> io::Result<Self> {
        if let Some(found) = CargoDeb::found(root) {
            return Ok(found);
        }
        let tools = cargo::target_dir(root).join("tools");
        writeln!(out, "deb: installing cargo-deb {VERSION} into {}", tools.display())?;
        cargo::install(root, "cargo-deb", VERSION, &tools)?;
        CargoDeb::found(root).ok_or_else(|| Error::other("failed to run cargo-deb"))
    }

    /// Packs these programs into a file in a directory, and returns its path. Creates the other
    /// files of the package in `package` of the profile's build directory.
    ///
    /// # Errors
    /// If cargo-deb fails, with its message, or a file cannot be written.
    pub fn pack(
        &self,
        root: &Path,
        programs: &Programs,
        profile: &str,
        dir: &Path,
    ) -> io::Result<PathBuf> {
        let build = if profile == "dev" { "debug" } else { profile };
        fill(&cargo::target_dir(root).join(build).join("package"), programs)?;
        fs::create_dir_all(dir)?;
        let mut pack = Command::new(&self.0);
        pack.current_dir(root).args(["--no-build", "--no-strip", "--quiet", "--package=gpuws"]);
        if profile == "dev" {
            pack.arg("--fast");
        }
        pack.args(["--profile", profile, "--output"]).arg(dir.join(""));
        let printed = output_of(&mut pack)?;
        let path = printed.lines().last().unwrap_or_default();
        if path.ends_with(".deb") {
            Ok(PathBuf::from(path))
        } else {
            Err(Error::other(format!("cargo-deb printed no path: '{printed}'")))
        }
    }
}
