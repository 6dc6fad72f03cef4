//! Code and paths that several benches share.

use gpu_sim::Session;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A Python program that claims a device with safe-gpu and prints its index.
pub const SAFE_GPU_USER: &str = "import os, safe_gpu\n\
                                 safe_gpu.claim_gpus(1, lambda number: None)\n\
                                 print(os.environ['CUDA_VISIBLE_DEVICES'])";

const NVIDIA_SMI: &str = "#!/bin/sh\n\
    case $1 in -q) echo 'Attached GPUs : 12'; echo 'Display Mode : Disabled'; exit;; esac\n\
    exec \"$GPUWS\" query \"$@\" 2>/dev/null\n";

/// Returns the directory of the running program.
fn own_dir() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    own.parent().unwrap_or(Path::new("/")).to_owned()
}

/// Returns a file next to this program or in the parent directory, where cargo places programs.
pub fn built(name: &str) -> Option<PathBuf> {
    let dir = own_dir();
    let above = dir.parent().unwrap_or(&dir);
    [dir.join(name), above.join(name)].into_iter().find(|path| path.is_file())
}

/// Returns a program or package that `cargo xtask peers --install-only` installed.
pub fn peer(path: &str) -> Option<PathBuf> {
    Some(own_dir().ancestors().nth(2)?.join("peers").join(path)).filter(|path| path.exists())
}

/// A session of a simulated machine of twelve idle GPUs for real processes, with an `nvidia-smi`
/// for safe-gpu.
pub struct IdleMachine {
    dir: TempDir,
    gpuws: PathBuf,
}

impl IdleMachine {
    /// Creates the session with this NVML and this gpuws.
    ///
    /// # Panics
    /// If the files cannot be written.
    pub fn new(library: &Path, gpuws: PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let session = Session {
            machine: "twelve-gpus".into(),
            frozen_at_ms: Some(0),
            live: true,
            ..Session::default()
        };
        session.write(dir.path()).expect("the session is writable");
        symlink(library, dir.path().join("libnvidia-ml.so.1")).expect("symlink");
        for name in ["dev", "walk-ons", "bin"] {
            fs::create_dir(dir.path().join(name)).expect("temporary directory");
        }
        let smi = dir.path().join("bin/nvidia-smi");
        fs::write(&smi, NVIDIA_SMI).expect("the script is writable");
        fs::set_permissions(&smi, Permissions::from_mode(0o755)).expect("chmod");
        IdleMachine { dir, gpuws }
    }

    /// Makes a command run on this machine.
    pub fn on<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env(Session::VARIABLE, self.dir.path()).env("GPUWS", &self.gpuws);
        command.env("LD_LIBRARY_PATH", self.dir.path()).env_remove("CUDA_VISIBLE_DEVICES");
        command.env("PATH", format!("{}/bin:{path}", self.dir.path().display()))
    }
}

/// Sleeping processes, which end when this is dropped.
#[derive(Default)]
pub struct Crowd(Vec<Child>);

impl Crowd {
    /// Adds processes until the host has this many.
    ///
    /// # Panics
    /// If one does not start.
    pub fn grow(&mut self, processes: usize) {
        for _ in on_host()..processes {
            let mut command = Command::new("sleep");
            command.arg("100000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.0.push(command.spawn().expect("a process starts"));
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The process may have exited by itself.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Returns the number of processes that /proc shows.
///
/// # Panics
/// Without /proc.
pub fn on_host() -> usize {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let names = entries.map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().parse::<u32>().is_ok()).count()
}

/// Returns a process and its descendants, with their depth.
pub fn descendants(pid: u32, depth: u32) -> Vec<(u32, u32)> {
    let mut all = vec![(depth, pid)];
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        all.extend(child.parse().map(|child| descendants(child, depth + 1)).unwrap_or_default());
    }
    all
}

/// Returns the private memory of a process in KiB, excluding pages that it shares with files or with
/// its parent.
pub fn private_of(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Some(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

/// Returns the peak resident memory of a process in KiB, from /proc.
pub fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
