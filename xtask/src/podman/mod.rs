//! A real podman for tests: it gets claimed devices by their CDI names, from Debian's packages and
//! without installing them.
//!
//! It runs in namespaces of its own (mounts, processes), so that nothing of it is left on the
//! machine. That needs root. The devices are those of a simulated machine: files that a
//! specification like that of `nvidia-ctk cdi generate` mounts into the container.

use crate::{cargo, debian};
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages with podman and what it starts, the libraries that Debian's base system lacks, and a
/// program that needs none, for the container.
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

/// What happens, as a script; its arguments are the directory with the packages and gpuws.
const SCENE: &str = include_str!("scene.sh");

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
    let built = cargo::build(root, &["build", "--quiet", "-p", "gpuws", "-p", "gpu-nvml-sim"])?;
    let gpuws = built.into_iter().find(|built| built.target == "gpuws" && built.kind == "bin");
    let gpuws = gpuws.ok_or_else(|| Error::other("cargo built no gpuws"))?;
    run_containers(&tree, &gpuws.path)
}

/// Returns the unpacked podman of a workspace, if it is there.
pub fn unpacked_podman(root: &Path) -> Option<PathBuf> {
    Some(tree_dir(root)).filter(|tree| tree.join("usr/bin/podman").exists())
}

/// Runs containers on claimed devices, in namespaces of their own, and returns whether all went
/// well. Prints on standard output what it does. The simulated NVML must be beside gpuws.
///
/// # Errors
/// If the namespaces cannot be made, which needs root.
pub fn run_containers(tree: &Path, gpuws: &Path) -> io::Result<bool> {
    let status = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation=private", "sh", "-c", SCENE, "sh"])
        .args([tree, gpuws])
        .stdin(Stdio::null())
        .status()?;
    Ok(status.success())
}

fn tree_dir(root: &Path) -> PathBuf {
    cargo::target_dir(root).join("podman/root")
}
