//! One claim without waiting, from start to exit of a process: gpuws compared with safe-gpu 2.0.0.
//!
//! Both take and release a device of a simulated machine of twelve idle GPUs, on an NVML without
//! latency. safe-gpu queries an nvidia-smi that is a shell script around `gpuws query`, three
//! times, and starts no placeholder. The peer must be installed by `cargo xtask peers
//! --install-only`.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use gpu_sim::Session;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program that uses safe-gpu.
const USER: &str = "import os, safe_gpu\n\
                    safe_gpu.claim_gpus(1, lambda number: None)\n\
                    print(os.environ['CUDA_VISIBLE_DEVICES'])";

const NVIDIA_SMI: &str = "#!/bin/sh\n\
    case $1 in -q) echo 'Attached GPUs : 12'; echo 'Display Mode : Disabled'; exit;; esac\n\
    exec \"$GPUWS\" query \"$@\" 2>/dev/null\n";

fn built(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().expect("a running program has a path");
    let dir = own.parent().unwrap_or(Path::new("/")).to_owned();
    let above = dir.parent().unwrap_or(&dir).to_owned();
    [dir.join(name), above.join(name)].into_iter().find(|path| path.is_file())
}

fn peers() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.ancestors().nth(3)?.join("peers"))
}

/// A session with real processes, of a machine that has none of its own.
fn session(library: &Path) -> tempfile::TempDir {
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
    dir
}

/// Runs a program until it exits, with a pipe as standard input that is closed at once; returns its
/// output.
fn run(command: &mut Command) -> String {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("an installed program runs");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("the program exits");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn jobs(criterion: &mut Criterion) {
    let (Some(gpuws), Some(library)) = (built("gpuws"), built("libnvml_sim.so")) else {
        eprintln!("skipped: there is no gpuws: cargo build --release -p gpuws -p gpu-nvml-sim");
        return;
    };
    let dir = session(&library);
    let within = |program: &Path, arguments: &[&str]| {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments).env(Session::VARIABLE, dir.path()).env("GPUWS", &gpuws);
        command.env("LD_LIBRARY_PATH", dir.path()).env_remove("CUDA_VISIBLE_DEVICES");
        command.env("PATH", format!("{}/bin:{path}", dir.path().display()));
        command
    };
    let claim = || run(&mut within(&gpuws, &["claim", "--hold"]));
    let job = || run(&mut within(&gpuws, &["run", "--", "true"]));
    assert!(claim().contains("CUDA_VISIBLE_DEVICES=GPU-"));
    let mut group = criterion.benchmark_group("job");
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.measurement_time(Duration::from_secs(4)).warm_up_time(Duration::from_millis(500));
    group.bench_function("gpuws claim", |bencher| bencher.iter(claim));
    group.bench_function("gpuws run", |bencher| bencher.iter(job));
    let python = peers().map(|peers| peers.join("venv/bin/python"));
    let package = peers().map(|peers| peers.join("safe-gpu-2.0.0"));
    match (python.filter(|path| path.exists()), package.filter(|path| path.exists())) {
        (Some(python), Some(package)) => {
            let safe_gpu = || run(within(&python, &["-c", USER]).env("PYTHONPATH", &package));
            assert_eq!(safe_gpu().trim(), "0");
            group.bench_function("safe-gpu", |bencher| bencher.iter(safe_gpu));
        }
        _ => eprintln!("skipped: safe-gpu 2.0.0 is not there: cargo xtask peers --install-only"),
    }
    group.finish();
}

criterion_group!(benches, jobs);
criterion_main!(benches);
