//! Leases as locked files on the running kernel, with hostile users.
//!
//! Tests that need another user or a separate file system run as root, and print that they skip
//! otherwise.

mod entries;
mod faults;
mod fd_limits;
mod hostile;
mod limits;
mod location;
mod other_process;
mod queue;
mod safe_gpu;

use gpu_core::{
    Claim, Clock, DeviceUuid, EntryKind, LeaseEntry, LeaseGuard, LeaseStore, Pid, ProcessKey,
    Timestamp,
};
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles, SystemClock};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ATTEMPT: EntryKind = EntryKind::Attempt;
const LEASE: EntryKind = EntryKind::Lease;
const WAITER: EntryKind = EntryKind::Waiter;

fn roots() -> Roots {
    Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() }
}

fn locks_at(location: LeaseLocation, tmp: &Path) -> FileLeaseStore {
    FileLeaseStore::new(location, SafeGpuFiles::below(tmp), roots())
}

/// Returns the locks of a directory.
fn locks(dir: &Path) -> FileLeaseStore {
    locks_at(LeaseLocation::dir(dir), dir)
}

/// Returns the directory with the entries of this user.
fn own(dir: &Path) -> PathBuf {
    dir.join(format!("u{}", rustix::process::geteuid().as_raw()))
}

fn entry(locks: &FileLeaseStore, devices: &[&str]) -> LeaseEntry {
    LeaseEntry {
        id: locks.new_id().unwrap(),
        ticket: locks.ticket().unwrap(),
        owner: locks.owner(),
        root: ProcessKey { pid: Pid(std::process::id()), start: None },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: devices.iter().map(|&device| DeviceUuid(device.into())).collect(),
        parts_of: Vec::new(),
        merged: None,
        command: "test".into(),
        since: Timestamp(1_795_223_083_000),
    }
}

/// Publishes a lease on devices.
fn lease(locks: &FileLeaseStore, devices: &[&str]) -> (LeaseEntry, Box<dyn LeaseGuard>) {
    let entry = entry(locks, devices);
    let held = locks.publish(LEASE, &entry).unwrap();
    (entry, held)
}

/// Waits until a condition holds; a busy machine may take minutes.
fn eventually(mut condition: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !condition() {
        assert!(clock.monotonic() < Duration::from_secs(240), "it did not come true");
        clock.sleep(Duration::from_millis(2));
    }
}

/// Prints that a test was skipped, past the capture of the test harness.
fn skip(test: &str, why: &str) {
    writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("standard error is open");
}
