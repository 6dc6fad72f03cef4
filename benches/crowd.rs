//! The cost that many other processes on the host add to a snapshot, a claim and a run: real
//! processes on a real /proc, compared with a plain loop over NVML and with common tools.
//!
//! The host has 100, 2,000 and 5,000 processes (50 more than before in test mode). Snapshots cover
//! eight simulated GPUs with four real processes each, whose memory is fully listed, and 64 GPUs
//! with 32 each (two with two in test mode) without further processes. Claims and runs use a
//! simulated machine of twelve idle GPUs. The NVML has no latency. The peers must be installed by
//! `cargo xtask peers --install-only`; `fuser` is the one in PATH.
//!
//! The bench starts itself again in a live session of each machine, which starts the real processes.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]

use criterion::{BenchmarkGroup, Criterion, SamplingMode, criterion_group, measurement::WallTime};
use gpu_sim::Session;
use gpuws_benches::{Crowd, IdleMachine, SAFE_GPU_USER, built, on_host, peer};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Set in the live session to the number of GPUs.
const INSIDE: &str = "GPUWS_BENCH_CROWD";

/// The number of GPUs on the machine with many other processes.
const EIGHT: u32 = 8;

/// Times a program from start to exit, reading its output through a pipe; skips a program that is
/// not installed.
fn time(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    program: Option<PathBuf>,
    with: impl Fn(&mut Command),
) {
    let Some(program) = program else {
        eprintln!("skipped: {name} is not installed");
        return;
    };
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let mut command = Command::new(&program);
            with(&mut command);
            // A pipe that is closed at once ends `gpuws claim --hold`.
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("an installed program runs");
            drop(child.stdin.take());
            let ended = child.wait_with_output().expect("it is a child");
            assert!(ended.status.success(), "{name}");
        });
    });
}

/// Returns the group of benches on a host with this many processes.
fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(format!("crowd/{name}"));
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    group
}

/// Times snapshots of the session's devices, by gpuws and its peers.
fn snapshots(group: &mut BenchmarkGroup<'_, WallTime>, gpus: u32) {
    let session = std::env::var(Session::VARIABLE).expect("the session sets it");
    let devices: Vec<String> = (0..gpus).map(|at| format!("{session}/dev/nvidia{at}")).collect();
    let in_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
    };
    time(group, "plain loop", built("plain-loop"), |_| {});
    time(group, "gpuws", built("gpuws"), |command| {
        command.arg("status");
    });
    time(group, "gpuws --holders", built("gpuws"), |command| {
        command.args(["status", "--holders"]);
    });
    time(group, "gpuws query", built("gpuws"), |command| {
        command.args(["query", "--query-gpu=index,memory.used", "--format=csv"]);
    });
    let smi = peer("root/usr/lib/nvidia/current/nvidia-smi");
    time(group, "nvidia-smi", smi, |_| {});
    time(group, "fuser", in_path("fuser"), |command| {
        command.arg("-v").args(&devices);
    });
}

/// Times claims and runs on an idle machine.
fn claims(group: &mut BenchmarkGroup<'_, WallTime>, idle: &IdleMachine) {
    time(group, "gpuws claim", built("gpuws"), |command| {
        idle.on(command.args(["claim", "--hold"]));
    });
    time(group, "gpuws run", built("gpuws"), |command| {
        idle.on(command.args(["run", "--", "true"]));
    });
    let package = peer("safe-gpu-2.0.0");
    let python = peer("venv/bin/python").filter(|_| package.is_some());
    time(group, "safe-gpu", python, |command| {
        let package = package.iter().collect::<PathBuf>();
        idle.on(command.args(["-c", SAFE_GPU_USER]).env("PYTHONPATH", package));
    });
}

fn is_test() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

fn crowds(criterion: &mut Criterion) {
    let gpus = std::env::var(INSIDE).ok().and_then(|gpus| gpus.parse().ok());
    let gpus = gpus.expect("the session has a number of GPUs");
    if gpus != EIGHT {
        let mut group = group(criterion, &format!("{gpus}-gpus"));
        snapshots(&mut group, gpus);
        return group.finish();
    }
    let library = built("libnvml_sim.so").expect("the session has it");
    let idle = IdleMachine::new(&library, built("gpuws").expect("it starts this session"));
    let sizes = if is_test() { vec![on_host() + 50] } else { vec![100, 2000, 5000] };
    let mut crowd = Crowd::default();
    for size in sizes {
        crowd.grow(size);
        let mut group = group(criterion, &size.to_string());
        snapshots(&mut group, gpus);
        claims(&mut group, &idle);
        group.finish();
    }
}

criterion_group!(benches, crowds);

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_some() {
        benches();
        Criterion::default().configure_from_args().final_summary();
        return ExitCode::SUCCESS;
    }
    let session = ["libnvml_sim.so", "nvml-sim-process"].map(built);
    let (Some(gpuws), [Some(_), Some(_)]) = (built("gpuws"), session) else {
        eprintln!(
            "skipped: there is no gpuws: cargo build --release -p gpuws -p gpu-nvml-sim --features full"
        );
        return ExitCode::SUCCESS;
    };
    let own = std::env::current_exe().expect("a running program has a path");
    let large = if is_test() { (2, 2) } else { (64, 32) };
    for (gpus, processes) in [(EIGHT, 4), large] {
        let mut session = Command::new(&gpuws);
        session.args(["sim", &format!("crowd:{gpus}x{processes}"), "--live", "--"]).arg(&own);
        session.args(std::env::args().skip(1)).env(INSIDE, gpus.to_string());
        if session.status().expect("gpuws starts").code() != Some(0) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
