//! A real Slurm for tests: slurmctld, slurmd and munge, unpacked from Debian's packages without
//! systemd and without installing them.
//!
//! The main decision is that a cluster runs in its own mount, PID and hostname namespaces: its
//! files are in memory, its processes do not outlive the run, and it can only affect its own
//! processes. This requires root.

mod cluster;
mod files;
mod scenarios;

use crate::{cargo, debian};
use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages with the daemons, and libraries missing from Debian's base system.
const PACKAGES: [&str; 10] = [
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "libmunge2",
    "libhwloc15",
    "libjson-c5",
    "liblua5.1-0",
    "libyaml-0-2",
];

/// The first argument of this program when it is started again inside the namespaces.
const INSIDE: &str = "slurm-inside";

/// Fetches and unpacks Slurm, builds gpuws, and runs this many jobs on a cluster.
///
/// # Errors
/// If the packages cannot be fetched, or the cluster does not start.
pub fn slurm(root: &Path, jobs: usize, out: &mut dyn Write) -> io::Result<bool> {
    let tree = tree_dir(root);
    if unpacked(root).is_none() {
        writeln!(out, "slurm: fetching {} packages with apt-get …", PACKAGES.len())?;
        install(&tree)?;
    }
    let built =
        cargo::build(root, &["build", "--quiet", "-p", "gpuws", "--bin", "gpuws", cargo::FULL])?;
    let gpuws = built.into_iter().find(|built| built.target == "gpuws" && built.kind == "bin");
    let gpuws = gpuws.ok_or_else(|| Error::other("cargo built no gpuws"))?;
    run_jobs(&tree, &gpuws.path, jobs)
}

/// Returns the unpacked Slurm of a workspace; `None` if it is missing.
pub fn unpacked(root: &Path) -> Option<PathBuf> {
    Some(tree_dir(root)).filter(|tree| tree.join("usr/sbin/slurmctld").exists())
}

/// Runs this many jobs on a cluster in separate namespaces. The calling program must call
/// [`run_if_inside`] first in `main`. Prints its progress on standard output.
///
/// # Errors
/// If the namespaces cannot be created, which requires root.
pub fn run_jobs(tree: &Path, gpuws: &Path, jobs: usize) -> io::Result<bool> {
    let status = Command::new("unshare")
        .args(["--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"])
        .arg("--propagation=private")
        // The first process of the namespace must reap orphans, which a waiting shell does.
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(std::env::current_exe()?)
        .arg(INSIDE)
        .args([tree, gpuws])
        .arg(jobs.to_string())
        .stdin(Stdio::null())
        .status()?;
    Ok(status.success())
}

/// Runs the cluster if this program was started inside its namespaces; returns whether all tests
/// passed.
pub fn run_if_inside() -> Option<bool> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [inside, tree, gpuws, jobs] = &words[..] else { return None };
    if inside != INSIDE {
        return None;
    }
    let jobs = jobs.parse().ok()?;
    let done = scenarios::run(tree.as_ref(), gpuws.as_ref(), jobs);
    Some(done.unwrap_or_else(|error| {
        // If standard error is closed, the exit code still shows the failure.
        let _ = writeln!(io::stderr(), "slurm: {error}");
        false
    }))
}

fn tree_dir(root: &Path) -> PathBuf {
    cargo::target_dir(root).join("slurm/root")
}

/// Unpacks the packages into a directory.
fn install(tree: &Path) -> io::Result<()> {
    debian::unpack(&PACKAGES, tree)?;
    // A daemon with a name other than slurmctld or slurmd ignores every Gres= of its node.
    for name in ["slurmd", "slurmstepd", "slurmctld"] {
        let link = tree.join("usr/sbin").join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("{name}-wlm"), link)?;
    }
    Ok(())
}
