//! Finding the holders of a file on a machine with many processes: gpu-host compared with psmisc's
//! `fuser` and `lsof`.
//!
//! 2,000 processes with 50 descriptors each (20 with 5 in test mode); three of them have the
//! requested file open. It is requested twice: as a plain file that substitutes for a device node,
//! and as a device node, which is compared by its device number. Before anything is timed, gpu-host
//! and its peers must each find exactly these three.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use gpu_core::{DeviceFile, Host};
use gpu_host::{LinuxHost, Roots, resolve};
use rustix::io::FdFlags;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A device that always exists and that hardly any process opens.
const DEVICE: &str = "/dev/full";

const HOLDERS: usize = 3;

/// Processes that hold descriptors and sleep. They end when this is dropped, also if a bench
/// panics.
struct Population {
    children: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Population {
    /// Starts `count` processes with `descriptors` each, including the three standard ones.
    fn start(count: usize, descriptors: usize) -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        let plain = dir.path().join("stand-in");
        File::create(&plain)?;
        let mut population = Population { children: Vec::new(), dir };
        let fill = descriptors - 3;
        let fill = (0..fill).map(|at| File::create(population.dir.path().join(at.to_string())));
        let fill = fill.collect::<Result<Vec<_>, _>>()?;
        for file in &fill {
            rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        }
        for at in 0..count {
            let mut command = Command::new("sleep");
            command.arg("100000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if at < HOLDERS {
                command.stdin(File::open(&plain)?).stdout(File::open(DEVICE)?);
            }
            population.children.push(command.spawn()?);
        }
        Ok(population)
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
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn host() -> LinuxHost {
    LinuxHost::new(Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() })
}

fn walk(files: &[DeviceFile]) -> Vec<u32> {
    let scan = host().holders(files).expect("/proc can be listed");
    scan.holders.iter().map(|holder| holder.process.pid.0).collect()
}

/// Runs a program until it exits; `None` if it is not installed.
fn run(program: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
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
    let (count, descriptors) = if small { (20, 5) } else { (2_000, 50) };
    let population = Population::start(count, descriptors).expect("processes can be started");
    let expected = population.holders();
    let stand_in = population.stand_in();
    let stand_in = stand_in.to_str().expect("a temporary directory has a plain name");

    for (kind, path) in [("file", stand_in), ("device", DEVICE)] {
        let files = [resolve(path).expect("the path exists")];
        assert_eq!(walk(&files), expected, "gpu-host finds the holders of {path}");
        let mut group = criterion.benchmark_group(format!("holders/{kind}/{count}x{descriptors}"));
        group.sample_size(20).sampling_mode(SamplingMode::Flat);
        group.measurement_time(Duration::from_secs(6)).warm_up_time(Duration::from_secs(1));
        group.bench_function("gpu-host", |bencher| bencher.iter(|| walk(&files)));

        let gpuws = gpuws();
        for (name, program, arguments) in [
            ("gpuws", gpuws.as_path(), &["holders", path][..]),
            ("fuser", Path::new("fuser"), &[path]),
            ("lsof", Path::new("lsof"), &[path]),
        ] {
            let Some(output) = run(program, arguments) else {
                eprintln!("skipped: {name} is not installed");
                continue;
            };
            let text = String::from_utf8_lossy(&output);
            let named: Vec<u32> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
            let all = expected.iter().all(|pid| named.contains(pid));
            assert!(all, "{name} names {expected:?} as holders of {path}: {text}");
            group.bench_function(name, |bencher| bencher.iter(|| run(program, arguments)));
        }
        group.finish();
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
