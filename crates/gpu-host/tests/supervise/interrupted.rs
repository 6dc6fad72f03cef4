//! Signals with a handler, at any moment: every wait in the kernel then ends early.

use crate::Test;
use crate::fixture::{Fixture, a_while, how};
use crate::roles::roots;
use gpu_core::{
    Claim, DeviceUuid, EntryKind, LeaseEntry, LeaseStore, Pid, ProcessKey, ProcessTable, Timestamp,
};
use gpu_host::{FileLeaseStore, LeaseLocation, LinuxHost, SafeGpuFiles};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("signal_storm_does_not_break_locks_or_queries", signal_storm_does_not_break_locks_or_queries),
    ("signal_storm_does_not_harm_job", signal_storm_does_not_harm_job),
];

/// How often an action that a signal interrupts must occur ...
const ROUNDS: u32 = 20;
/// ... out of this many attempts at most.
const ATTEMPTS: u32 = 10 * ROUNDS;

/// How many signals a storm has sent before any action starts.
const BEFORE: u32 = 100;

/// Sends signals without a pause, until it is dropped or its target is gone.
struct Storm(Child);

impl Storm {
    /// Starts one, after it has sent each signal to each target a number of times.
    fn of(signals: &str, targets: &[u32]) -> Self {
        let targets: Vec<_> = targets.iter().map(ToString::to_string).collect();
        let sends =
            signals.split(' ').map(|signal| format!("kill -{signal} {}", targets.join(" ")));
        let sends = sends.collect::<Vec<_>>().join(" && ");
        let count = format!("sent=$((sent + 1)); [ $sent -ne {BEFORE} ] || echo $sent");
        let script = format!("sent=0; while {sends}; do {count}; done 2> /dev/null");
        let mut sender = Command::new("sh");
        let sender = sender.args(["-c", &script]).stdout(Stdio::piped());
        let mut storm = Storm(sender.spawn().expect("it can be started"));
        let mut sent = String::new();
        let mut said = BufReader::new(storm.0.stdout.take().expect("a pipe"));
        said.read_line(&mut sent).expect("it can be read");
        assert_eq!(sent.trim().parse(), Ok(BEFORE), "so many were sent");
        storm
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal_storm_does_not_break_locks_or_queries() {
    let fixture = Fixture::new();
    let mut actor = fixture.role(&["interrupted"]).arg(fixture.dir()).spawn().unwrap();
    // It bounds each of its steps itself. Their total duration during a storm depends on the load
    // of the machine.
    assert_eq!(actor.wait().unwrap().code(), Some(0));
}

fn signal_storm_does_not_harm_job() {
    let fixture = Fixture::new();
    let mut front = fixture.shell("plain", "echo ready > ready; : < go; exit 5");
    fixture.said("ready");
    let supervisor = fixture.supervisor().as_raw_nonzero().get().unsigned_abs();
    let storm = Storm::of("CONT CHLD", &[front.id(), supervisor]);
    a_while();
    fixture.go();
    assert_eq!(how(&mut front), 5);
    drop(storm);
    assert_eq!(fixture.count("empty"), 1);
    let reported = ["asked", "abandoned", "left"];
    let report = fixture.report();
    assert!(
        !report.iter().any(|line| reported.iter().any(|word| line.starts_with(word))),
        "{report:?}"
    );
}

/// Takes, checks and releases locks in a storm, and reads processes.
pub(crate) fn act(words: &[OsString]) -> i32 {
    let [dir] = words else { panic!("a directory") };
    let came = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&came))
        .expect("a handler");
    let storm = Storm::of("USR1", &[std::process::id()]);
    let host = LinuxHost::new(roots());
    let other = host.open(Pid(storm.0.id())).expect("it lives");
    let (here, there) = (locks(Path::new(dir)), locks(Path::new(dir)));
    let mut interrupted = 0;
    for _ in 0..ATTEMPTS {
        interrupted += u32::from(came.swap(false, Ordering::Relaxed));
        if interrupted == ROUNDS {
            break;
        }
        let entry = entry(&here);
        let waiter = LeaseEntry { devices: Vec::new(), ..entry.clone() };
        let queued = here.publish(EntryKind::Waiter, &waiter).expect("it can be written");
        let place = there.queue().expect("it can be read").remove(0);
        assert!(!there.wait_for(&place, Duration::from_millis(1)).expect("it can be waited for"));
        let mut held = here.publish(EntryKind::Attempt, &entry).expect("it can be written");
        held.confirm().expect("it can be renamed");
        assert_eq!(there.entries(EntryKind::Lease).expect("it can be read"), [entry]);
        assert!(held.renew().expect("it can be renewed"));
        there.wait(Duration::from_millis(1)).expect("it can be waited for");
        let back = here.hold_back_safe_gpu(Duration::from_millis(50)).expect("it is unused");
        assert_eq!(back.waiting().expect("it can be asked"), []);
        for _ in 0..200 {
            assert!(!other.has_exited().expect("it can be asked"));
        }
        assert!(host.processes().expect("they can be listed").processes.len() > 1);
        drop((queued, held));
        assert_eq!(there.queue().expect("it can be read"), []);
        assert_eq!(there.entries(EntryKind::Lease).expect("it can be read"), []);
    }
    assert_eq!(interrupted, ROUNDS, "a signal came in so many of {ATTEMPTS}");
    0
}

fn locks(dir: &Path) -> FileLeaseStore {
    FileLeaseStore::new(LeaseLocation::dir(dir), SafeGpuFiles::below(dir), roots())
}

fn entry(locks: &FileLeaseStore) -> LeaseEntry {
    LeaseEntry {
        id: locks.new_id().expect("random bytes are available"),
        ticket: locks.ticket().expect("there is a clock"),
        owner: locks.owner(),
        root: ProcessKey { pid: Pid(std::process::id()), start: None },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid("GPU-1".into())],
        parts_of: Vec::new(),
        merged: None,
        command: "test".into(),
        since: Timestamp(0),
    }
}
