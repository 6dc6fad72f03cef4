//! Many processes that concurrently claim the devices of one machine, on the real kernel, while
//! some of them are killed or stopped at random times: no device is granted twice, claims are
//! served in order, and no lease is left behind.
//!
//! The tests print a summary on standard output, which `--nocapture` shows. `GPUWS_STRESS_GRANTS`
//! is the number of grants, and `GPUWS_STRESS_SEED` the seed.

mod crowded;
mod log;
mod observer;

use gpu_claim::{Chosen, ClaimRequest, Ledger, Wait, take};
use gpu_core::{Clock, DeviceUuid, GpuBackend, LeaseStore, Pid, ProcessKey};
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles, SystemClock};
use gpu_sim::Simulation;
use gpuws_tests::{Chance, bound};
use log::Reader;
use observer::Observer;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const DEVICES: u32 = 8;

/// The time after which a run counts as hanging.
const HANGS: Duration = Duration::from_secs(20 * 60);

/// The directories of a run, and its living contenders.
struct StressRun {
    dir: TempDir,
    machine: BTreeMap<String, u64>,
    mode: &'static str,
    children: Vec<(u64, Child)>,
    started: u64,
    log: File,
    clock: SystemClock,
}

impl StressRun {
    fn new(mode: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut text =
            "description = \"made: eight devices to claim\"\nclock = 2026-11-21T01:00:00Z\n"
                .to_owned();
        for index in 0..DEVICES {
            write!(text, "[[gpu]]\nindex = {index}\nuuid = \"GPU-{index}\"\n").unwrap();
            text.push_str("name = \"NVIDIA A100-SXM4-80GB\"\nmemory_total_mib = 81920\n");
        }
        fs::create_dir(dir.path().join("machine")).unwrap();
        fs::write(dir.path().join("machine/machine.toml"), text).unwrap();
        fs::create_dir(dir.path().join("leases")).unwrap();
        let log = File::options().append(true).create_new(true).open(dir.path().join("log"));
        let simulation = Simulation::named(&dir.path().join("machine")).unwrap();
        let total = |device: &gpu_core::DeviceInfo| {
            simulation.sample(&device.id).unwrap().memory.total.unwrap().0
        };
        let devices = GpuBackend::devices(&simulation).unwrap();
        let named =
            |device: gpu_core::DeviceInfo| (device.id.uuid.clone().unwrap().0, total(&device));
        let machine: BTreeMap<_, _> = devices.into_iter().map(named).collect();
        assert_eq!(machine.len(), DEVICES as usize);
        let clock = SystemClock::new();
        let log = log.unwrap();
        StressRun { dir, machine, mode, children: Vec::new(), started: 0, log, clock }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, seed: u64) {
        self.started += 1;
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(self.started).max(1);
        let mut command = Command::new(env!("CARGO_BIN_EXE_claim-contender"));
        command.args(["leases", "machine", "log", "stop"].map(|name| self.path(name)));
        command.arg(seed.to_string()).arg(self.mode).stdin(Stdio::null());
        self.children.push((seed, command.spawn().unwrap()));
    }

    /// Kills a contender at a random time.
    fn kill(&mut self, which: usize) {
        let (seed, mut child) = self.children.swap_remove(which);
        assert_eq!(child.try_wait().unwrap(), None, "no contender exits by itself");
        let line = serde_json::json!({ "event": "kill", "process": seed.to_string() });
        self.log.write_all(format!("{line}\n").as_bytes()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops a contender at a random time, or continues it.
    fn signal(&self, which: usize, signal: &str) {
        let pid = self.children[which].1.id().to_string();
        // Its PID stays valid until it is reaped.
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits until all contenders have finished.
    fn finish(&mut self) {
        fs::write(self.path("stop"), "").unwrap();
        for (_, child) in &mut self.children {
            while child.try_wait().unwrap().is_none() {
                assert!(self.clock.monotonic() < HANGS, "a contender did not exit in time");
                self.clock.sleep(Duration::from_millis(5));
            }
            assert!(child.wait().unwrap().success(), "a contender failed");
        }
        self.children.clear();
    }

    fn locks(&self) -> FileLeaseStore {
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        let leases = self.path("leases");
        FileLeaseStore::new(LeaseLocation::dir(&leases), SafeGpuFiles::below(&leases), roots)
    }

    /// Claims all devices at once without waiting.
    fn take_all(&self) {
        let all: Vec<DeviceUuid> = self.machine.keys().cloned().map(DeviceUuid).collect();
        let ask = ClaimRequest {
            claim: gpu_core::Claim::whole(DEVICES),
            root: ProcessKey { pid: Pid(std::process::id()), start: None },
            within: None,
            parts_of: Vec::new(),
            command: "everything".to_owned(),
            wait: Wait::No,
            pace: Duration::from_millis(100),
            holds_back_safe_gpu: false,
        };
        let choose = |_: &(), _: &_, leases: &[_]| match leases {
            [] => Chosen::Devices(all.clone()),
            _ => Chosen::NotNow { could: all.clone() },
        };
        let mut watch = |_: &gpu_claim::Waiting<'_>| ControlFlow::Continue(());
        let locks = self.locks();
        let taken = take(&locks, &self.clock, &ask, &mut || Ok(()), &choose, &mut watch);
        assert_eq!(taken.ok().map(|taken| taken.entry.devices), Some(all));
    }
}

impl Drop for StressRun {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // The process may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Plan {
    contenders: usize,
    grants: usize,
    /// The maximum time between two kills.
    kills_ms: u64,
}

/// Runs contenders until there are enough grants, and checks all observations of leases.
fn run(mode: &'static str, plan: &Plan) {
    let seed = bound("GPUWS_STRESS_SEED", 1, 1);
    let mut stress_run = StressRun::new(mode);
    let user = format!("leases/u{}", stress_run.locks().owner());
    fs::create_dir(stress_run.path(&user)).unwrap();
    let observer = Observer::new(&stress_run.path(&user), stress_run.machine.clone());
    let mut reader = Reader::new(stress_run.machine.clone());
    let mut lines = BufReader::new(File::open(stress_run.path("log")).unwrap());
    let mut chance = Chance::new(seed);
    (0..plan.contenders).for_each(|_| stress_run.start(seed));

    let (done, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut kills, mut stops, mut partial) = (0, 0, String::new());
    let mut stopped: Option<u64> = None;
    let (scans, conflicts) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let clock = SystemClock::new();
            let (mut scans, mut conflicts) = (0, Vec::new());
            while !done.load(Ordering::Relaxed) {
                let seen = observer.scan();
                conflicts.extend(observer.conflicts(&seen));
                scans += 1;
                most.fetch_max(seen.len(), Ordering::Relaxed);
                clock.sleep(Duration::from_millis(1));
            }
            (scans, conflicts)
        });
        // The observer must end even if this fails.
        let guard = SetWhenDropped(&done);
        let mut kill_at = Duration::ZERO;
        // On a busy machine, the observer may need more grants to see several leases at once.
        while reader.grants < plan.grants || most.load(Ordering::Relaxed) < 2 {
            assert!(stress_run.clock.monotonic() < HANGS, "{} grants only", reader.grants);
            while lines.read_line(&mut partial).unwrap() > 0 && partial.ends_with('\n') {
                reader.read(&partial);
                partial.clear();
            }
            if stress_run.clock.monotonic() >= kill_at {
                if let Some(seed) = stopped.take() {
                    // It may have been killed in the meantime.
                    if let Some(which) = stress_run.children.iter().position(|(s, _)| *s == seed) {
                        stress_run.signal(which, "-CONT");
                    }
                }
                let which =
                    usize::try_from(chance.below(stress_run.children.len() as u64)).unwrap();
                if chance.below(3) == 0 {
                    stress_run.signal(which, "-STOP");
                    stopped = Some(stress_run.children[which].0);
                    stops += 1;
                } else {
                    stress_run.kill(which);
                    stress_run.start(seed);
                    kills += 1;
                }
                let pause = Duration::from_millis(chance.below(plan.kills_ms));
                kill_at = stress_run.clock.monotonic() + pause;
            }
            stress_run.clock.sleep(Duration::from_millis(2));
        }
        if let Some(seed) = stopped
            && let Some(which) = stress_run.children.iter().position(|(s, _)| *s == seed)
        {
            stress_run.signal(which, "-CONT");
        }
        stress_run.finish();
        drop(guard);
        watching.join().unwrap()
    });
    for line in lines.lines() {
        reader.read(&(std::mem::take(&mut partial) + &line.unwrap()));
    }

    let most = most.into_inner();
    println!(
        "{} grants to {} contenders in {:.1} s (seed {seed}): {} waited, {} withdrew, {kills} were \
         killed, {stops} stopped for a while; {} earlier claims were passed; {scans} scans saw at most {most} leases",
        reader.grants,
        plan.contenders,
        stress_run.clock.monotonic().as_secs_f64(),
        reader.waited,
        reader.withdrawn,
        reader.passed,
    );
    assert!(reader.violations.is_empty(), "{:#?}", reader.violations);
    // A contender with a stale snapshot may take devices that became free for another one.
    assert!(mode == "meet" || reader.disorder.is_empty(), "{:#?}", reader.disorder);
    assert!(scans > 0 && most > 1, "the observer saw nothing");
    assert!(conflicts.is_empty(), "{conflicts:#?}");
    assert!(mode != "meet" || reader.withdrawn > 0, "no attempts collided");
    assert_eq!(observer.living(), 0, "no lease is alive");
    assert_eq!(Ledger::read(&stress_run.locks()).unwrap(), Ledger::default());
    stress_run.take_all();
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn devices_are_granted_once_and_equal_claims_in_order() {
    let grants = bound("GPUWS_STRESS_GRANTS", 150, 1000).try_into().unwrap();
    run("queue", &Plan { contenders: 64, grants, kills_ms: 100 });
}

#[test]
fn no_device_is_granted_twice_with_conflicting_attempts() {
    run("meet", &Plan { contenders: 16, grants: 150, kills_ms: 200 });
}
