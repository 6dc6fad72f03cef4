//! Finding the holders of a file on a machine with many processes: gpu-host compared with `fuser`
//! from psmisc and with `lsof`.
//!
//! Two crowds: 2,000 processes with 50 descriptors each, and 40 processes with 250 threads each (20
//! with 5 descriptors and 2 with 10 threads in test mode); three more have the requested file open.
//! The file is searched for twice: as a plain file that substitutes for a device node, and as a
//! device node, which is compared by device number and for which root uses BPF; `GPUWS_NO_BPF=1`
//! times the search without it. Before anything is timed, gpu-host and its peers must each find
//! exactly these three.
//!
//! The bench starts itself again as the processes with threads.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]

use criterion::{Criterion, SamplingMode, criterion_group};
use gpu_core::{DeviceFile, DeviceFiles};
use gpu_host::{LinuxHost, Roots, resolve};
use gpu_nvidia_driver::drivers;
use rustix::io::FdFlags;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A device that always exists and that few processes open.
const DEVICE: &str = "/dev/full";

const HOLDERS: usize = 3;

/// Set to the number of threads in a process of the crowd.
const THREADS: &str = "GPUWS_BENCH_THREADS";

/// A crowd of identical processes.
#[derive(Clone, Copy)]
struct Crowd {
    processes: usize,
    descriptors: usize,
    threads: usize,
}

impl Crowd {
    /// Returns the command of one of its processes, which runs until a signal ends it.
    fn command(self) -> Command {
        let mut command = if self.threads == 1 {
            let mut sleep = Command::new("sleep");
            sleep.arg("100000");
            sleep
        } else {
            let own = std::env::current_exe().expect("a running program has a path");
            let mut threads = Command::new(own);
            threads.env(THREADS, self.threads.to_string());
            threads
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Runs this many threads, including this one, until a signal ends the process.
fn run_threads(count: usize) -> ! {
    let stack = 64 << 10;
    let idle = || loop {
        std::thread::park();
    };
    for _ in 1..count {
        let thread = std::thread::Builder::new().stack_size(stack).spawn(idle);
        thread.expect("a thread can be started");
    }
    idle()
}

/// Processes that hold descriptors and sleep. They end when this is dropped, even if a bench
/// panics.
struct Population {
    children: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Population {
    /// Starts the holders and then a crowd. `descriptors` includes the three standard ones.
    fn start(crowd: Crowd) -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        let plain = dir.path().join("stand-in");
        File::create(&plain)?;
        let mut population = Population { children: Vec::new(), dir };
        let fill = (0..crowd.descriptors - 3)
            .map(|at| File::create(population.dir.path().join(at.to_string())));
        let fill = fill.collect::<Result<Vec<_>, _>>()?;
        for file in &fill {
            rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        }
        for at in 0..HOLDERS + crowd.processes {
            let mut command = crowd.command();
            if at < HOLDERS {
                command.stdin(File::open(&plain)?).stdout(File::open(DEVICE)?);
            }
            population.children.push(command.spawn()?);
        }
        population.wait_for_threads(crowd.threads)?;
        Ok(population)
    }

    /// Waits until each process has its threads.
    fn wait_for_threads(&self, threads: usize) -> Result<(), Error> {
        for child in &self.children {
            let tasks = format!("/proc/{}/task", child.id());
            while std::fs::read_dir(&tasks)?.count() < threads {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn stand_in(&self) -> PathBuf {
        self.dir.path().join("stand-in")
    }

    fn holders(&self) -> Vec<u32> {
        let mut pids: Vec<_> = self.children[..HOLDERS].iter().map(Child::id).collect();
        pids.sort_unstable();
        pids
    }
}

impl Drop for Population {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The process may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn host() -> LinuxHost {
    let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
    LinuxHost::with_drivers(roots, drivers())
}

fn walk(host: &LinuxHost, files: &[DeviceFile]) -> Vec<u32> {
    let scan = host.holders(files).expect("/proc can be listed");
    scan.holders.iter().map(|holder| holder.process.pid.0).collect()
}

/// Runs a program until it exits; `None` if it is not installed.
fn run(program: &Path, arguments: &[&str], no_bpf: &str) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).env("GPUWS_NO_BPF", no_bpf).stdin(Stdio::null());
    let output = command.output();
    match output {
        Ok(output) => Some(output.stdout),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("failed to run '{}': {error}", program.display()),
    }
}

/// Returns the gpuws next to this bench, if any.
fn gpuws() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    own.ancestors().nth(2).unwrap_or(Path::new("/")).join("gpuws")
}

fn bench(criterion: &mut Criterion) {
    let small = std::env::args().any(|argument| argument == "--test");
    let crowd = |processes, descriptors, threads| Crowd { processes, descriptors, threads };
    let crowds = if small {
        [crowd(20, 5, 1), crowd(2, 5, 10)]
    } else {
        [crowd(2_000, 50, 1), crowd(40, 50, 250)]
    };
    for crowd in crowds {
        let population = Population::start(crowd).expect("processes can be started");
        let expected = population.holders();
        let stand_in = population.stand_in();
        let stand_in = stand_in.to_str().expect("a temporary directory has a plain name");
        for (kind, path) in [("file", stand_in), ("device", DEVICE)] {
            let Crowd { processes, threads, .. } = crowd;
            let name = format!("holders/{kind}/{processes}x{threads}");
            compare(criterion, &name, path, &expected);
        }
    }
}

/// Times the search for the holders of a file by gpu-host, gpuws and the peers.
fn compare(criterion: &mut Criterion, group: &str, path: &str, expected: &[u32]) {
    let files = [resolve(path).expect("the path exists")];
    let mut group = criterion.benchmark_group(group);
    group.sample_size(20).sampling_mode(SamplingMode::Flat);
    group.measurement_time(Duration::from_secs(6)).warm_up_time(Duration::from_secs(1));
    for (name, host) in [("gpu-host", host()), ("gpu-host without BPF", host().without_bpf())] {
        assert_eq!(walk(&host, &files), expected, "{name} finds the holders of {path}");
        group.bench_function(name, |bencher| bencher.iter(|| walk(&host, &files)));
    }
    let gpuws = gpuws();
    for (name, program, arguments, no_bpf) in [
        ("gpuws", gpuws.as_path(), &["holders", path][..], ""),
        ("gpuws without BPF", gpuws.as_path(), &["holders", path], "1"),
        ("fuser", Path::new("fuser"), &[path], ""),
        ("lsof", Path::new("lsof"), &[path], ""),
    ] {
        let Some(output) = run(program, arguments, no_bpf) else {
            eprintln!("skipped: {name} is not installed");
            continue;
        };
        let text = String::from_utf8_lossy(&output);
        let named: Vec<u32> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let all = expected.iter().all(|pid| named.contains(pid));
        assert!(all, "{name} names {expected:?} as holders of {path}: {text}");
        group.bench_function(name, |bencher| bencher.iter(|| run(program, arguments, no_bpf)));
    }
    group.finish();
}

criterion_group!(benches, bench);

fn main() {
    if let Some(threads) = std::env::var(THREADS).ok().and_then(|count| count.parse().ok()) {
        run_threads(threads);
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
