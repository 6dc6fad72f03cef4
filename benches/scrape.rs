//! A scrape of `gpuws export`, from the connection to the last byte, on machines of 8 and 64 GPUs
//! with 32 processes each (2 with 4 in test mode) behind the simulated NVML with a stopped clock.
//!
//! For comparison, the bench runs nvidia-smi once with the required fields, like
//! nvidia_gpu_exporter does for a scrape; that exporter itself is a Go program and is not measured.
//! `cargo xtask peers --install-only` installs nvidia-smi. The resident memory of the exporter and
//! of its helper, which queries NVML, is printed after its scrapes.
#![expect(clippy::print_stderr, reason = "memory and skipped peers are printed")]

use criterion::{Criterion, SamplingMode, criterion_group};
use gpu_sim::Session;
use gpuws_benches::{built, peer};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The fields requested from nvidia-smi.
const FIELDS: &str = "--query-gpu=uuid,name,memory.used,memory.total,utilization.gpu,\
                      temperature.gpu,power.draw,enforced.power.limit";
/// Where nvidia-smi is installed.
const SMI: &str = "root/usr/lib/nvidia/current/nvidia-smi";

/// An exporter that runs in a session.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(mut command: Command, words: &[&str]) -> Self {
        command.args(["export", "--listen", "127.0.0.1:0", "--reuse", "1ms"]).args(words);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("gpuws runs");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("gpuws says where it serves");
        let address = line.trim().strip_prefix("metrics at http://").expect("an address");
        let address = address.strip_suffix("/metrics").expect("an address");
        Exporter { child, address: address.parse().expect("an address") }
    }

    /// Scrapes once and returns the size of the answer.
    fn scrape(&self) -> usize {
        let mut stream = TcpStream::connect(self.address).expect("it serves");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n").expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers")
    }

    /// Returns the resident memory of the exporter and of its helper, in MiB.
    fn resident(&self) -> (f64, f64) {
        let own = resident_of(self.child.id());
        let children = |task: std::io::Result<fs::DirEntry>| {
            fs::read_to_string(task.ok()?.path().join("children")).ok()
        };
        // The scanning thread started it.
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten();
        let children: String = tasks.filter_map(children).collect();
        let helpers = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        (own, helpers.map(resident_of).sum())
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resident_of(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse().ok()).unwrap_or(0.0) / 1024.0
}

/// Returns a session of a machine, and a function that runs a program in it.
fn session(machine: &str) -> Option<(tempfile::TempDir, impl Fn(&std::path::Path) -> Command)> {
    let library = built("libnvml_sim.so")?;
    let dir = tempfile::tempdir().expect("temporary directory");
    let session = Session { machine: machine.into(), frozen_at_ms: Some(0), ..Session::default() };
    session.write(dir.path()).expect("the session is writable");
    symlink(library, dir.path().join("libnvidia-ml.so.1")).expect("symlink");
    let path = dir.path().to_owned();
    let command = move |program: &std::path::Path| {
        let mut command = Command::new(program);
        command.env(Session::VARIABLE, &path).env("LD_LIBRARY_PATH", &path);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    Some((dir, command))
}

fn scrapes(c: &mut Criterion) {
    let is_test = std::env::args().any(|word| word == "--test");
    let machines: &[&str] = if is_test { &["crowd:2x4"] } else { &["crowd:8x32", "crowd:64x32"] };
    let Some(gpuws) = built("gpuws") else {
        eprintln!("skipped: gpuws is not built");
        return;
    };
    let smi = peer(SMI);
    if smi.is_none() {
        eprintln!("skipped: nvidia-smi is not installed");
    }
    for machine in machines {
        let Some((_dir, command)) = session(machine) else {
            eprintln!("skipped: the simulated NVML is not built");
            return;
        };
        let mut group = c.benchmark_group(format!("scrape/{machine}"));
        group.sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_secs(8));
        for (name, words) in
            [("gpuws export", &[][..]), ("with each process", &["--processes=1MiB"])]
        {
            let exporter = Exporter::start(command(&gpuws), words);
            let size = exporter.scrape();
            assert!(size > 1000, "the page has {size} bytes");
            group.bench_function(name, |bench| bench.iter(|| exporter.scrape()));
            let (own, helper) = exporter.resident();
            eprintln!("{machine} {name}: {size} bytes; {own:.1} MiB, helper {helper:.1} MiB");
        }
        if let Some(smi) = &smi {
            group.bench_function("nvidia-smi, as nvidia_gpu_exporter starts it", |bench| {
                bench.iter(|| {
                    let mut command = command(smi);
                    command.args([FIELDS, "--format=csv"]).stdout(Stdio::null());
                    assert!(command.status().expect("nvidia-smi runs").success());
                });
            });
        }
    }
}

criterion_group!(benches, scrapes);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
}
