//! The cost of `gpuws top` and nvtop on a terminal, and the time that gpuws takes to respond to a
//! key.
//!
//! Both run for 15 s (2 s in test mode) on a pseudo-terminal of 120 × 40, one after the other in
//! each round, in a live session of the same simulated machine: 8 GPUs with 4 real processes each,
//! and 64 with 32, on a host of 2,000 real processes. CPU time is that of the program and all its
//! descendants, as reported by the kernel. Peak memory is its `VmHWM`, plus the memory that its
//! children do not share with it. The first frame is the first output with text, and the first
//! values are those of a GPU. NVML calls are counted in a separate round. A third machine has
//! unlisted memory, so that gpuws must search for its holders; nvtop has no such feature.
//!
//! Keys are pressed while the driver hangs, and during continuous snapshots of 2,048 processes.
//!
//! nvtop must be installed by `cargo xtask peers --install-only`.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]
#![expect(clippy::print_stdout, reason = "the result")]

use gpu_core::Clock;
use gpu_host::SystemClock;
use gpu_sim::Session;
use gpuws_benches::{Crowd, built, descendants, on_host, peak_of, peer, private_of};
use nix::sys::resource::{UsageWho, getrusage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Set in a session to the item measured there.
const INSIDE: &str = "GPUWS_BENCH_TOP";
/// Set in the process that measures one program: `keys`, or the number of seconds to run.
const MEASURES: &str = "GPUWS_BENCH_MEASURES";
/// The number of keys to press, and the time between two.
const KEYS: u32 = 300;
const PRESSED_EVERY: Duration = Duration::from_millis(40);
/// This many consecutive lower-case letters are text; no terminal sequence has as many.
const TEXT: usize = 5;
/// The maximum time that a terminal waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program on a terminal, with text that its first frame contains.
struct Viewer {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    needle: &'static str,
}

fn gpuws(arguments: &'static [&'static str]) -> Viewer {
    let program = built("gpuws").expect("it has started this session");
    Viewer { name: "gpuws top", program, arguments, needle: "GPUs," }
}

fn nvtop() -> Option<Viewer> {
    let program = peer("root/usr/bin/nvtop")?;
    Some(Viewer { name: "nvtop", program, arguments: &["-d", "10"], needle: "Device" })
}

/// The cost of one run of a program.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Cost {
    cpu_ms: f64,
    first_frame_ms: f64,
    first_values_ms: f64,
    /// The peak memory of the program, and the private memory of its children at the end, in KiB.
    memory_kib: (u64, u64),
    /// The time from each key to the next output.
    keys_ms: Vec<f64>,
}

/// The controlling side of a program's terminal.
struct Terminal {
    master: File,
    clock: SystemClock,
    shown: Vec<u8>,
}

impl Terminal {
    /// Starts a program on a new terminal.
    fn start(command: &mut Command) -> (Self, std::process::Child) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a new terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is unlocked");
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("it has a size");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let side = || {
            let path = Path::new(name.to_str().expect("a name in /dev/pts"));
            Stdio::from(File::options().read(true).write(true).open(path).expect("it opens"))
        };
        command.stdin(side()).stdout(side()).stderr(Stdio::null());
        let clock = SystemClock::new();
        let child = command.spawn().expect("an installed program starts");
        // The command still has the standard streams, which would keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        (Terminal { master: master.into(), clock, shown: Vec::new() }, child)
    }

    /// Reads the available output within this time; returns whether there was any.
    fn read(&mut self, at_most: Duration) -> bool {
        let wait = Timespec {
            tv_sec: at_most.as_secs().try_into().expect("seconds"),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        if poll(&mut fds, Some(&wait)).expect("poll succeeds") == 0 {
            return false;
        }
        let mut piece = vec![0; 1 << 16];
        let count = rustix::io::read(&self.master, &mut piece).unwrap_or(0);
        self.shown.extend_from_slice(&piece[..count]);
        count > 0
    }

    /// Reads for this time.
    fn watch(&mut self, during: Duration) {
        let end = self.clock.monotonic() + during;
        while let Some(left) = end.checked_sub(self.clock.monotonic()) {
            self.read(left);
        }
    }

    fn press(&mut self, key: &str) {
        self.master.write_all(key.as_bytes()).expect("the terminal takes keys");
    }
}

/// Runs the command in the arguments on a terminal and prints the cost.
fn measure(how: &str) {
    let mut words = std::env::args().skip(1);
    let needle = words.next().expect("a text of the first frame");
    let mut command = Command::new(words.next().expect("a program is named"));
    command.args(words).env("TERM", "xterm-256color").env_remove(MEASURES);
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).expect("prctl");
    let (mut terminal, mut child) = Terminal::start(&mut command);
    let is_there = |shown: &[u8]| shown.windows(needle.len()).any(|at| at == needle.as_bytes());
    let mut first_frame = None;
    while !is_there(&terminal.shown) {
        assert!(terminal.clock.monotonic() < PATIENCE, "no frame with {needle}");
        terminal.read(PATIENCE);
        let has_text = terminal.shown.windows(TEXT).any(|at| at.iter().all(u8::is_ascii_lowercase));
        if has_text {
            first_frame.get_or_insert(terminal.clock.monotonic());
        }
    }
    let first_values = terminal.clock.monotonic();
    let first_frame = first_frame.unwrap_or(first_values);
    let mut keys_ms = Vec::new();
    match how.parse() {
        // Count from the start, so that both programs take one snapshot per second: gpuws takes
        // snapshots at fixed times, and the one after the last second would count only for gpuws.
        Ok(seconds) => terminal.watch(Duration::from_secs(seconds).saturating_sub(first_values)),
        Err(_) => {
            // After the third snapshot.
            terminal.watch(Duration::from_secs(3));
            // From the second row on, each key moves the selection.
            terminal.press("jj");
            for key in (0..KEYS).map(|number| if number % 2 == 0 { "k" } else { "j" }) {
                // Output that is still on its way is not a response.
                terminal.watch(PRESSED_EVERY);
                let pressed = terminal.clock.monotonic();
                terminal.press(key);
                assert!(terminal.read(PATIENCE), "no answer to a key");
                let answered = terminal.clock.monotonic() - pressed;
                keys_ms.push(answered.as_secs_f64() * 1e3);
            }
        }
    }
    let mut memory_kib = (0, 0);
    for (depth, pid) in descendants(child.id(), 0) {
        match depth {
            0 => memory_kib.0 = peak_of(pid).unwrap_or(0),
            _ => memory_kib.1 += private_of(pid).unwrap_or(0),
        }
    }
    terminal.press("q");
    while child.try_wait().expect("it is a child").is_none() {
        terminal.read(Duration::from_millis(1));
    }
    // Descendants that the program left behind are now children of this program.
    while nix::sys::wait::wait().is_ok() {}
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage succeeds");
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    let cpu_ms = (micros(usage.user_time()) + micros(usage.system_time())) as f64 / 1e3;
    let first_frame_ms = first_frame.as_secs_f64() * 1e3;
    let first_values_ms = first_values.as_secs_f64() * 1e3;
    let cost = Cost { cpu_ms, first_frame_ms, first_values_ms, memory_kib, keys_ms };
    println!("{}", serde_json::to_string(&cost).expect("it is JSON"));
}

/// Runs and measures a program in a process of its own.
fn run(viewer: &Viewer, how: &str) -> Cost {
    let mut own = Command::new(std::env::current_exe().expect("a running program has a path"));
    own.arg(viewer.needle).arg(&viewer.program).args(viewer.arguments).env(MEASURES, how);
    let output = own.stderr(Stdio::inherit()).output().expect("this program starts");
    assert!(output.status.success(), "{} failed", viewer.name);
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the value at this share of the sorted values.
fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

fn is_test() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// Compares the viewers in alternating rounds.
fn compare(machine: &str, viewers: &[Viewer]) {
    let (rounds, seconds) = if is_test() { (1, "2") } else { (5, "15") };
    let mut costs: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for _ in 0..rounds {
        for viewer in viewers {
            costs.entry(viewer.name).or_default().push(run(viewer, seconds));
        }
    }
    let of = |name: &str, value: fn(&Cost) -> f64| median(costs[name].iter().map(value).collect());
    for viewer in viewers {
        println!(
            "{machine}, {} processes: {}: {:.1} ms of CPU in {seconds} s, first frame after {:.1} \
             ms, values after {:.1} ms, peak {:.1} MiB, {:.1} MiB that only its children have",
            on_host(),
            viewer.name,
            of(viewer.name, |cost| cost.cpu_ms),
            of(viewer.name, |cost| cost.first_frame_ms),
            of(viewer.name, |cost| cost.first_values_ms),
            of(viewer.name, |cost| cost.memory_kib.0 as f64 / 1024.0),
            of(viewer.name, |cost| cost.memory_kib.1 as f64 / 1024.0),
        );
    }
    if let [one, other] = viewers {
        let cpu = |viewer: &Viewer| of(viewer.name, |cost| cost.cpu_ms);
        println!("{machine}: CPU, {} / {}: {:.2}", one.name, other.name, cpu(one) / cpu(other));
    }
}

/// Runs the measurements inside a session.
fn inside(what: &str) {
    let ordinary = || gpuws(&["top"]);
    match what.split_once(' ') {
        Some(("calls", machine)) => {
            for viewer in [Some(ordinary()), nvtop()].into_iter().flatten() {
                let dir = std::env::var(Session::VARIABLE).expect("the session sets it");
                let calls = Path::new(&dir).join(Session::CALLS);
                // A missing file has no counts.
                let _ = std::fs::remove_file(&calls);
                run(&viewer, if is_test() { "2" } else { "15" });
                let text = std::fs::read_to_string(&calls).unwrap_or_default();
                let count = |line: &str| -> u64 {
                    let line: serde_json::Value =
                        serde_json::from_str(line).expect("call counts are JSON");
                    let calls = line["calls"].as_object().expect("calls by function");
                    calls.values().filter_map(serde_json::Value::as_u64).sum()
                };
                let all: u64 = text.lines().map(count).sum();
                println!("{machine}: {}: {all} NVML calls", viewer.name);
            }
        }
        Some(("keys", name)) => {
            let looks_often = gpuws(&["top", "-d", "100ms"]);
            let viewer = if name.contains("hangs") { ordinary() } else { looks_often };
            let keys = run(&viewer, "keys").keys_ms;
            println!(
                "{name}: a key is answered after {:.1} ms (median), {:.1} ms (99 %), {:.1} ms \
                 (longest of {})",
                percentile(&keys, 0.5),
                percentile(&keys, 0.99),
                percentile(&keys, 1.0),
                keys.len()
            );
        }
        Some(("ghost", machine)) => compare(machine, &[ordinary()]),
        Some((_, machine)) => {
            let other = nvtop();
            if other.is_none() {
                eprintln!("skipped: nvtop is not installed: cargo xtask peers --install-only");
            }
            let viewers: Vec<Viewer> = [Some(ordinary()), other].into_iter().flatten().collect();
            compare(machine, &viewers);
        }
        None => unreachable!("{what}"),
    }
}

fn main() -> ExitCode {
    if let Ok(how) = std::env::var(MEASURES) {
        measure(&how);
        return ExitCode::SUCCESS;
    }
    if let Ok(what) = std::env::var(INSIDE) {
        inside(&what);
        return ExitCode::SUCCESS;
    }
    let session = ["libnvml_sim.so", "nvml-sim-process"].map(built);
    let (Some(gpuws), [Some(_), Some(_)]) = (built("gpuws"), session) else {
        eprintln!("skipped: there is no gpuws: cargo build --release -p gpuws -p gpu-nvml-sim");
        return ExitCode::SUCCESS;
    };
    let own = std::env::current_exe().expect("a running program has a path");
    let mut crowd = Crowd::default();
    crowd.grow(if is_test() { on_host() + 50 } else { 2_000 });
    let large = if is_test() { "crowd:2x2" } else { "crowd:64x32" };
    let hang = ["--fault", "nvmlDeviceGetUtilizationRates=hang,from=30"];
    let count = ["--count-calls", "/dev/null"];
    for (machine, what, more) in [
        ("crowd:8x4", "cost", &[][..]),
        (large, "cost", &[]),
        ("labbox", "ghost", &[]),
        ("crowd:8x4", "calls", &count),
        (large, "calls", &count),
        ("crowd:8x4", "keys while the driver hangs", &hang),
        (large, "keys while looks follow each other", &[]),
    ] {
        let what = match what.split_once(' ') {
            Some((kind, name)) => format!("{kind} {machine}, {name}"),
            None => format!("{what} {machine}"),
        };
        let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
        if filter.is_some_and(|filter| !what.contains(&filter)) {
            continue;
        }
        let mut session = Command::new(&gpuws);
        session.args(["--quiet", "sim", machine, "--live"]).args(more).arg("--").arg(&own);
        session.args(std::env::args().skip(1)).env(INSIDE, what);
        if session.status().expect("gpuws starts").code() != Some(0) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
