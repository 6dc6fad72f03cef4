//! One snapshot of a whole machine, from start to exit of a process: gpuws compared with a plain
//! loop over nvml-wrapper and with common tools, on an NVML without latency.
//!
//! Machines of 1, 8 and 64 GPUs with 32 processes each (one of 2 with 4 in test mode) behind the
//! simulated NVML with a stopped clock. Before anything is timed, gpuws and the plain loop must
//! both see every process. NVML calls and peak memory are measured separately, because counting
//! them costs time. With GPUWS_BENCH_LIVE set, this machine's own NVML is used instead.
//!
//! The peers must be installed by `cargo xtask peers --install-only`.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]

use criterion::{BenchmarkGroup, Criterion, SamplingMode, criterion_group, measurement::WallTime};
use gpu_sim::Session;
use gpuws_benches::{built, descendants, peak_of, peer};
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A command line without its program.
type Words = &'static [&'static str];

/// A timed program: its name, its path if it is installed, and its arguments.
struct Runner {
    name: &'static str,
    program: Option<PathBuf>,
    arguments: Words,
}

const SMI: &str = "root/usr/lib/nvidia/current/nvidia-smi";

fn runner(name: &'static str, program: Option<PathBuf>, arguments: Words) -> Runner {
    Runner { name, program, arguments }
}

fn gpuws(name: &'static str, arguments: Words) -> Runner {
    runner(name, built("gpuws"), arguments)
}

fn plain_loop() -> Runner {
    runner("plain loop", built("plain-loop"), &[])
}

/// An NVML, of a simulated machine or of this machine.
struct Nvml {
    dir: Option<tempfile::TempDir>,
}

impl Nvml {
    /// Creates a session of a machine with a stopped clock and a latency of `latency_us` per call.
    fn of(machine: &str, counts_calls: bool, latency_us: u64) -> Option<Self> {
        let library = built("libnvml_sim.so")?;
        let dir = tempfile::tempdir().expect("temporary directory");
        let session = Session {
            machine: machine.into(),
            frozen_at_ms: Some(0),
            latency_us,
            counts_calls,
            ..Session::default()
        };
        session.write(dir.path()).expect("the session is writable");
        symlink(library, dir.path().join("libnvidia-ml.so.1")).expect("symlink");
        Some(Nvml { dir: Some(dir) })
    }

    fn command(&self, runner: &Runner) -> Option<Command> {
        let mut command = Command::new(runner.program.as_ref()?);
        command.args(runner.arguments).stdin(Stdio::null()).stderr(Stdio::null());
        command.env("NO_COLOR", "1").env("TERM", "dumb");
        if let Some(dir) = &self.dir {
            command.env(Session::VARIABLE, dir.path()).env("LD_LIBRARY_PATH", dir.path());
        }
        Some(command)
    }

    /// Runs a program until it exits and returns its output; `None` if it is not installed.
    fn run(&self, runner: &Runner) -> Option<String> {
        let output = self.command(runner)?.output().expect("an installed program runs");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the number of calls of each NVML function.
    fn calls(&self) -> BTreeMap<String, u64> {
        let path = self.dir.as_ref().map(|dir| dir.path().join(Session::CALLS));
        let text = path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("call counts are JSON");
            for (function, count) in line["calls"].as_object().into_iter().flatten() {
                *all.entry(function.clone()).or_default() += count.as_u64().unwrap_or_default();
            }
        }
        all
    }
}

/// Checks that gpuws and the plain loop see every process, because the time of an incomplete
/// snapshot would be meaningless. Returns whether both are installed.
fn sees_everything(nvml: &Nvml, gpus: usize, processes: usize) -> bool {
    let status = nvml.run(&gpuws("gpuws", &["status", "--json"]));
    let plain = nvml.run(&plain_loop());
    let (Some(status), Some(plain)) = (status, plain) else {
        eprintln!("skipped: gpuws or plain-loop is not built: cargo build --release");
        return false;
    };
    let status: serde_json::Value = serde_json::from_str(&status).expect("gpuws prints JSON");
    let shown = status["gpus"].as_array().expect("gpus is an array");
    assert_eq!(shown.len(), gpus);
    for gpu in shown {
        let listed = gpu["processes"].as_array().expect("processes is an array");
        let listed = listed.iter().filter(|process| process["listed"] == true).count();
        assert_eq!(listed, processes, "of GPU {}", gpu["index"]);
    }
    assert_eq!(plain.lines().filter(|line| line.contains(" pid ")).count(), gpus * processes);
    true
}

/// Times a program; prints a note if it is not installed.
fn time(group: &mut BenchmarkGroup<'_, WallTime>, nvml: &Nvml, runner: &Runner) {
    if runner.program.is_none() {
        eprintln!("skipped: {} is not installed", runner.name);
        return;
    }
    group.bench_function(runner.name, |bencher| bencher.iter(|| nvml.run(runner)));
}

/// Prints how many times a program calls NVML: per device, with process lists counted separately.
fn count_calls(machine: &str, gpus: usize, runner: &Runner) {
    let Some(nvml) = Nvml::of(machine, true, 0) else { return };
    if nvml.run(runner).is_none() {
        return;
    }
    let calls = nvml.calls();
    if calls.is_empty() {
        eprintln!("{machine}: {} exited before its NVML calls were recorded", runner.name);
        return;
    }
    let all: u64 = calls.values().sum();
    let sum = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        calls.iter().filter(|(name, _)| wanted(name)).map(|(_, count)| count).sum()
    };
    let is_list = |name: &str| name.contains("RunningProcesses");
    let lists = sum(&is_list);
    // The other per-device queries; startup, shutdown and counting concern the whole machine.
    let per_gpu =
        sum(&|name| name.starts_with("nvmlDevice") && !name.contains("GetCount") && !is_list(name));
    eprintln!(
        "{machine}: {} makes {all} NVML calls: {:.1} for each GPU and {:.1} for its process \
         lists",
        runner.name,
        per_gpu as f64 / gpus as f64,
        lists as f64 / gpus as f64,
    );
    if std::env::var_os("GPUWS_BENCH_CALLS").is_some() {
        eprintln!("{calls:#?}");
    }
}

/// The variable that makes this program run a command and print its peak memory.
const MEASURES: &str = "GPUWS_BENCH_MEASURES";

/// Prints the peak memory of a program and its children.
///
/// The kernel reports the exact peak of the largest of them; the peak of each is read from /proc
/// while it runs on an NVML with latency.
fn peak_memory(machine: &str, runner: &Runner) {
    let Some(nvml) = Nvml::of(machine, false, 200) else { return };
    let Some(command) = nvml.command(runner) else { return };
    let mut own = Command::new(std::env::current_exe().expect("a running program has a path"));
    own.env(MEASURES, "1").arg(command.get_program()).args(command.get_args());
    own.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = own.output().expect("this program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    eprintln!("{machine}: {}: {}", runner.name, stderr.trim());
}

/// Runs the command in the arguments, and prints the peak memory of each process.
fn measure() {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().expect("a program is named");
    let mut command = Command::new(program);
    command.args(arguments).env_remove(MEASURES).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let mut peaks = BTreeMap::new();
    while child.try_wait().expect("the child can be waited for").is_none() {
        for (depth, pid) in descendants(child.id(), 0) {
            if let Some(kib) = peak_of(pid) {
                peaks.insert((depth, pid), kib);
            }
        }
    }
    let largest = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage succeeds").max_rss();
    let own: Vec<String> = peaks
        .iter()
        .map(|((depth, _), kib)| {
            format!("{} {kib} KiB", if *depth == 0 { "itself" } else { "child" })
        })
        .collect();
    eprintln!("peak memory: {largest} KiB in the largest process ({})", own.join(", "));
}

fn settle(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
}

fn bench_simulated(criterion: &mut Criterion) {
    let small = std::env::args().any(|argument| argument == "--test");
    let sizes: &[(usize, usize)] = if small { &[(2, 4)] } else { &[(1, 32), (8, 32), (64, 32)] };
    for &(gpus, processes) in sizes {
        let machine = format!("crowd:{gpus}x{processes}");
        let Some(nvml) = Nvml::of(&machine, false, 0) else {
            eprintln!("skipped: libnvml_sim.so is not there: cargo build --release");
            return;
        };
        if !sees_everything(&nvml, gpus, processes) {
            return;
        }
        let tools = [
            plain_loop(),
            gpuws("gpuws status", &["status"]),
            runner("gpustat", peer("venv/bin/gpustat"), &[]),
            runner("nvitop -1", peer("venv/bin/nvitop"), &["-1"]),
            runner("nvidia-smi", peer(SMI), &[]),
        ];
        for tool in &tools {
            count_calls(&machine, gpus, tool);
        }
        peak_memory(&machine, &tools[0]);
        peak_memory(&machine, &tools[1]);
        let mut group = criterion.benchmark_group(format!("status/{gpus}x{processes}"));
        settle(&mut group);
        tools.iter().for_each(|tool| time(&mut group, &nvml, tool));
        group.finish();

        let mut group = criterion.benchmark_group(format!("doctor/{gpus}x{processes}"));
        settle(&mut group);
        time(&mut group, &nvml, &gpuws("gpuws doctor", &["doctor"]));
        time(&mut group, &nvml, &runner("nvidia-smi -q -x", peer(SMI), &["-q", "-x"]));
        group.finish();
    }
}

/// Uses this machine's own NVML.
fn bench_live(criterion: &mut Criterion) {
    let nvml = Nvml { dir: None };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let smi = || {
        let candidates = std::env::split_paths(&path).map(|dir| dir.join("nvidia-smi"));
        candidates.into_iter().find(|path| path.is_file())
    };
    let mut group = criterion.benchmark_group("this-machine");
    settle(&mut group);
    for tool in [
        plain_loop(),
        gpuws("gpuws status", &["status"]),
        gpuws("gpuws doctor", &["doctor"]),
        runner("nvidia-smi", smi(), &[]),
        runner("nvidia-smi -q -x", smi(), &["-q", "-x"]),
    ] {
        time(&mut group, &nvml, &tool);
    }
    group.finish();
}

fn bench(criterion: &mut Criterion) {
    match std::env::var_os("GPUWS_BENCH_LIVE") {
        Some(_) => bench_live(criterion),
        None => bench_simulated(criterion),
    }
}

criterion_group!(benches, bench);

fn main() {
    if std::env::var_os(MEASURES).is_some() {
        return measure();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
