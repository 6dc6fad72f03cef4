//! Builds the program for distributions older than the build machine.
//!
//! A linker binds each glibc function to the newest version that it finds, and a program that needs
//! a newer version than the machine has does not start. Zig's linker has every version of glibc's
//! functions, so the oldest supported version is an argument, and no old distribution is needed.
//! The actual requirements are then read from the program.

use super::Programs;
use crate::cargo;
use crate::program::output_of;
use crate::venv::Venv;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest supported glibc: RHEL 8, Debian 10, Ubuntu 18.10.
const OLDEST: (u32, u32) = (2, 28);

/// The packages of the build tool, with their checksums.
const REQUIREMENTS: &str = include_str!("../../portable/requirements.txt");

/// Builds the programs for old distributions; returns whether they run there, that is, need glibc
/// functions no newer than 2.28.
///
/// # Errors
/// If Zig cannot be installed, or cargo or objdump fails.
pub fn portable(root: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let programs = build(root, out)?;
    if let Some(programs) = &programs {
        writeln!(out, "portable: {}", programs.gpuws.display())?;
    }
    Ok(programs.is_some())
}

/// Builds the programs for old distributions; `None` if they do not run there.
pub(super) fn build(root: &Path, out: &mut dyn Write) -> io::Result<Option<Programs>> {
    let bin = installed(root, out)?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let (major, minor) = OLDEST;
    writeln!(out, "portable: build for glibc {major}.{minor} and newer")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin.clone()].into_iter().chain(std::env::split_paths(&path)))
        .map_err(Error::other)?;
    let status = Command::new(bin.join("cargo-zigbuild"))
        .args(["zigbuild", "--profile=dist", "--package=gpuws", "--package=gpu-nvml-sim"])
        .arg(cargo::FULL)
        .arg(format!("--target={triple}.{major}.{minor}"))
        .current_dir(root)
        .env("PATH", path)
        .status()?;
    if !status.success() {
        return Err(Error::other(format!("failed to run cargo zigbuild: {status}")));
    }
    let programs = Programs::in_dir(&cargo::target_dir(root).join(triple).join("dist"));
    let mut runs = true;
    for file in [&programs.gpuws, &programs.library, &programs.actor] {
        let text = output_of(Command::new("objdump").arg("-T").arg(file))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        for (symbol, version) in newer(&text, OLDEST) {
            writeln!(out, "portable: {name} requires {symbol} of glibc {version}")?;
            runs = false;
        }
        match needed(&text) {
            Some((major, minor)) => writeln!(out, "portable: {name}: glibc {major}.{minor}")?,
            None => {
                return Err(Error::other(format!("{name} requires no glibc version: unexpected")));
            }
        }
    }
    Ok(runs.then_some(programs))
}

/// Installs Zig and cargo-zigbuild with pip if they are missing; returns their directory.
fn installed(root: &Path, out: &mut dyn Write) -> io::Result<PathBuf> {
    let venv = Venv::new(cargo::target_dir(root).join("tools/zig"), REQUIREMENTS);
    if !venv.is_installed() {
        let bin = venv.bin();
        writeln!(out, "portable: installing Zig and cargo-zigbuild into {}", bin.display())?;
        venv.renew()?;
    }
    Ok(venv.bin())
}

/// Returns the versioned functions of glibc that a program imports, from `objdump -T`.
fn imports(text: &str) -> impl Iterator<Item = (&str, (u32, u32))> {
    text.lines().filter(|line| line.contains("*UND*")).filter_map(|line| {
        let (rest, symbol) = line.trim_end().rsplit_once(char::is_whitespace)?;
        let version = rest.rsplit_once("GLIBC_")?.1.trim_end().trim_end_matches(')');
        let mut numbers = version.split('.').map(str::parse);
        let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((symbol, version))
    })
}

/// Returns the newest version of glibc that a program needs.
fn needed(text: &str) -> Option<(u32, u32)> {
    imports(text).map(|(_, version)| version).max()
}

/// Returns the imported functions that are newer than a version of glibc.
fn newer(text: &str, than: (u32, u32)) -> Vec<(&str, String)> {
    let newer = imports(text).filter(|(_, version)| *version > than);
    newer.map(|(symbol, (major, minor))| (symbol, format!("{major}.{minor}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "
DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) write
0000000000000000      DF *UND*\t0000000000000000  GLIBC_2.34  pthread_create
0000000000000000  w   D  *UND*\t0000000000000000              __gmon_start__
0000000000000000      DF *UND*\t0000000000000000 (GCC_3.0)    _Unwind_Resume
0000000000001000 g    DF .text\t0000000000000010 (GLIBC_2.99) its_own
";

    #[test]
    fn newest_imported_version_is_found() {
        assert_eq!(needed(SYMBOLS), Some((2, 34)));
        assert_eq!(newer(SYMBOLS, (2, 28)), [("pthread_create", "2.34".to_owned())]);
        assert_eq!(newer(SYMBOLS, (2, 34)), []);
        assert_eq!(needed("not a program"), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let text = SYMBOLS.replace("2.34", "2.9");
        assert_eq!(newer(&text, (2, 28)), []);
    }
}
