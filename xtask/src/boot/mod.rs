//! Tests the package on a machine with systemd: its services run with the restrictions of their
//! units, and after a restart the leases have their own file system.
//!
//! The machine is Debian's base system in its own namespaces, with its own network, which requires
//! root.

use crate::program::output_of;
use crate::{cargo, debian};
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The test script; its arguments are the directory of the machine and the package.
const SCENARIO: &str = include_str!("scenario.sh");

/// Starts the machine, installs the package of `cargo xtask deb`, and returns whether the test
/// passed. Prints its progress on standard output.
///
/// # Errors
/// If there is no package, the base system cannot be fetched, or the namespaces cannot be created.
pub fn boot(root: &Path, out: &mut dyn Write) -> io::Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::other("starting a machine in new namespaces requires root"));
    }
    let package = package(&cargo::target_dir(root).join("packages"))?;
    let dir = cargo::target_dir(root).join("boot");
    let base = dir.join("base");
    if !base.exists() {
        writeln!(out, "boot: fetching Debian's base system …")?;
        fetch(&dir, &base)?;
    }
    let machine = dir.join("machine");
    if machine.exists() {
        fs::remove_dir_all(&machine)?;
    }
    output_of(Command::new("cp").args(["--archive", "--reflink=auto"]).args([&base, &machine]))?;
    writeln!(out, "boot: {}", package.display())?;
    let mut scenario = Command::new("sh");
    scenario.args(["-c", SCENARIO, "sh"]).args([machine, package]).stdin(Stdio::null());
    Ok(scenario.status()?.success())
}

/// Returns the package file in a directory.
fn package(dir: &Path) -> io::Result<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut packages = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "deb"));
    let none = || Error::other(format!("no package in {}: run cargo xtask deb", dir.display()));
    packages.next().ok_or_else(none)
}

/// Creates Debian's base system with systemd, in the release of this machine.
fn fetch(dir: &Path, base: &Path) -> io::Result<()> {
    let tools = dir.join("tools");
    debian::unpack(&["debootstrap"], &tools)?;
    let release = fs::read_to_string("/etc/os-release")?;
    let release = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let release = release.ok_or_else(|| Error::other("/etc/os-release has no VERSION_CODENAME"))?;
    let unfinished = dir.join("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    // Its mounts disappear when it exits, however it exits.
    let mut debootstrap = Command::new("unshare");
    debootstrap
        .env("DEBOOTSTRAP_DIR", tools.join("usr/share/debootstrap"))
        .args(["--mount", "--propagation=private", "sh"])
        .arg(tools.join("usr/sbin/debootstrap"))
        .args(["--variant=minbase", "--include=systemd,systemd-sysv,dbus", release])
        .arg(&unfinished);
    output_of(&mut debootstrap)?;
    fs::rename(unfinished, base)
}
