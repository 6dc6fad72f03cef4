//! What several benches run, and where they find it.

use gpu_sim::Session;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// Returns a file next to this program or in the parent directory, where cargo puts programs.
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
