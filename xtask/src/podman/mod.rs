//! A real podman for tests, unpacked from Debian's packages without installing them. It receives
//! claimed devices by their CDI names.
//!
//! It runs in its own mount and PID namespaces, so that nothing remains on the machine; this
//! requires root. The devices are those of a simulated machine: files that a specification like
//! that of `nvidia-ctk cdi generate` mounts into the container.

use crate::{cargo, debian};
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages: podman and the programs that it starts, libraries missing from Debian's base
/// system, and a statically linked program for the container.
const PACKAGES: [&str; 11] = [
    "podman",
    "conmon",
    "crun",
    "libassuan0",
    "libdevmapper1.02.1",
    "libgpgme11",
    "libjson-glib-1.0-0",
    "libseccomp2",
    "libsubid4",
    "libyajl2",
    "busybox-static",
];

/// The test script; its arguments are the directory with the packages, and gpuws.
const SCENARIO: &str = include_str!("scenario.sh");

/// Fetches and unpacks podman, builds gpuws, and runs containers on claimed devices.
///
/// # Errors
/// If the packages cannot be fetched, or gpuws cannot be built.
pub fn podman(root: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let tree = tree_dir(root);
    if unpacked_podman(root).is_none() {
        writeln!(out, "podman: fetching {} packages with apt-get …", PACKAGES.len())?;
        debian::unpack(&PACKAGES, &tree)?;
    }
    let built = cargo::build(
        root,
        &["build", "--quiet", "-p", "gpuws", "-p", "gpu-nvml-sim", cargo::FULL],
    )?;
    let gpuws = built.into_iter().find(|built| built.target == "gpuws" && built.kind == "bin");
    let gpuws = gpuws.ok_or_else(|| Error::other("cargo built no gpuws"))?;
    run_containers(&tree, &gpuws.path)
}

/// Returns the unpacked podman of a workspace; `None` if it is missing.
pub fn unpacked_podman(root: &Path) -> Option<PathBuf> {
    Some(tree_dir(root)).filter(|tree| tree.join("usr/bin/podman").exists())
}

/// Runs containers on claimed devices in separate namespaces; returns whether the test passed.
/// Prints its progress on standard output. The simulated NVML must be next to gpuws.
///
/// # Errors
/// If the namespaces cannot be created, which requires root.
pub fn run_containers(tree: &Path, gpuws: &Path) -> io::Result<bool> {
    let status = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation=private", "sh", "-c", SCENARIO, "sh"])
        .args([tree, gpuws])
        .stdin(Stdio::null())
        .status()?;
    Ok(status.success())
}

fn tree_dir(root: &Path) -> PathBuf {
    cargo::target_dir(root).join("podman/root")
}
