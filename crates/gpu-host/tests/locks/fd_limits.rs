//! A process with few descriptors (`EMFILE`): what it cannot read must not count as free, and what
//! it cannot keep open must not exist.

use crate::other_process::OtherProcess;
use crate::{LEASE, WAITER, entry, lease, locks, own};
use gpu_core::{Error, ErrorKind, LeaseStore};
use gpu_host::FileLeaseStore;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::tempdir;

/// More than any step has open at once, in addition to those of a test program.
const MAX: u64 = 32;

#[test]
fn low_fd_limit_hides_no_lease_and_leaves_no_files() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (own, _held) = lease(&locks, &["GPU-1"]);
    let task = format!("have-few-descriptors {}", own.id);
    let other = OtherProcess::start(None, &task, dir.path());
    assert!(other.is_some(), "it says what was wrong");
    assert_eq!(locks.entries(LEASE).unwrap(), [own]);
}

/// Runs each step with 0, 1, 2 … descriptors, in a separate process; `other` is a lease that exists
/// all the time.
pub(crate) fn sweep(dir: &Path, locks: &FileLeaseStore, other: &str) {
    let usual = getrlimit(Resource::Nofile);
    let with = |limit| setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..usual });
    let scarce = |error: &Error| {
        let text = error.fault().text;
        let is_so = error.kind() == ErrorKind::Io && text.contains("Too many open files");
        assert!(is_so, "{:?}: {text}", error.kind());
    };
    let (mut failures, mut successes) = (0, 0);
    for limit in 0..MAX {
        let second = entry(locks, &["GPU-2"]);
        with(limit).unwrap();
        let seen = locks.entries(LEASE);
        let place = locks.publish(WAITER, &entry(locks, &[]));
        let held = locks.publish(LEASE, &second);
        let back = locks.hold_back_safe_gpu(Duration::ZERO);
        let inherited = held.as_ref().map(|held| held.inherit(true));
        with(MAX * 4).unwrap();

        let errors =
            [seen.as_ref().err(), place.as_ref().err(), held.as_ref().err(), back.as_ref().err()];
        errors.into_iter().flatten().for_each(scarce);
        failures += errors.iter().flatten().count();
        successes += errors.iter().filter(|error| error.is_none()).count();
        if let Ok(seen) = &seen {
            assert!(seen.iter().any(|lease| lease.id.as_str() == other), "{limit}: it is hidden");
        }
        assert!(inherited.is_ok_and(|inherited| inherited.is_ok()) == held.is_ok());
        let leases = locks.entries(LEASE).unwrap().len();
        assert_eq!(leases, 1 + usize::from(held.is_ok()), "{limit}");
        // It also ends when no more files can be opened.
        with(0).unwrap();
        drop((place, held, back));
        with(MAX * 4).unwrap();
        assert_eq!(locks.entries(LEASE).unwrap().len(), 1, "{limit}");
        let names = fs::read_dir(own(dir)).unwrap().flatten();
        let names: Vec<_> = names.map(|file| file.file_name().into_string().unwrap()).collect();
        let stays =
            |name: &str| name == "queue" || name.starts_with("past-") || name.starts_with("lease-");
        let left: Vec<_> = names.iter().filter(|name| !stays(name)).collect();
        assert_eq!(left, [&format!("kept-{other}")], "{limit}");
        let places = fs::read_dir(own(dir).join("queue"));
        assert!(places.map_or(0, Iterator::count) == 0, "{limit}: a place is left");
    }
    assert!(failures > 20 && successes > 20, "{failures} and {successes}");
    setrlimit(Resource::Nofile, usual).unwrap();
}
