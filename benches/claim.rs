//! Taking and releasing a device without waiting: only the locks, without a driver.
//!
//! Measured in an empty directory, and with 64 leases of other users. Each lease is checked for
//! liveness once before the decision, and twice after the attempt is published.
//!
//! Also measures a grant to the first claim of a queue, with 10, 100 and 1,000 claims waiting
//! behind it.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gpu_claim::{Chosen, ClaimRequest, Ledger, Wait, take};
use gpu_core::{
    Claim, DeviceUuid, EntryKind, LeaseEntry, LeaseGuard, LeaseStore, Pid, ProcessKey, Result,
    Timestamp,
};
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles, SystemClock};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, SEEK_SET, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

fn locks(dir: &Path) -> FileLeaseStore {
    let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
    FileLeaseStore::new(LeaseLocation::dir(dir), SafeGpuFiles::below(dir), roots)
}

fn take_one(locks: &FileLeaseStore, clock: &SystemClock, wanted: &DeviceUuid, wait: Wait) -> usize {
    let ask = ClaimRequest {
        claim: Claim::whole(1),
        root: ProcessKey { pid: Pid(std::process::id()), start: None },
        within: None,
        parts_of: Vec::new(),
        command: "bench".to_owned(),
        wait,
        pace: Duration::from_millis(100),
        holds_back_safe_gpu: false,
    };
    let choose = |_: &(), _: &Claim, others: &[LeaseEntry]| {
        assert!(others.iter().all(|lease| !lease.devices.contains(wanted)));
        Chosen::Devices(vec![wanted.clone()])
    };
    let mut watch = |_: &gpu_claim::Waiting<'_>| ControlFlow::Continue(());
    let taken = take(locks, clock, &ask, &mut || Ok(()), &choose, &mut watch);
    taken.expect("the device is free").others.len()
}

/// Publishes leases of other users, or their queue entries, which the holding process never reads.
/// The waiting claims are later than all others.
fn others(
    locks: &FileLeaseStore,
    kind: EntryKind,
    count: usize,
) -> Result<Vec<Box<dyn LeaseGuard>>> {
    let publish = |number: usize| {
        let (ticket, devices) = match kind {
            EntryKind::Waiter => (u64::MAX - number as u64, Vec::new()),
            _ => (locks.ticket()?, vec![DeviceUuid(format!("GPU-{number}"))]),
        };
        let entry = LeaseEntry {
            id: locks.new_id()?,
            ticket,
            owner: locks.owner(),
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim: Claim::whole(1),
            devices,
            parts_of: Vec::new(),
            merged: None,
            command: "other".to_owned(),
            since: Timestamp(0),
        };
        locks.publish(kind, &entry)
    };
    (0..count).map(publish).collect()
}

fn claims(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("claim");
    let clock = SystemClock::new();
    let wanted = DeviceUuid("GPU-wanted".to_owned());
    for count in [0, 64] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _others =
            others(&locks(dir.path()), EntryKind::Lease, count).expect("leases can be published");
        assert_eq!(take_one(&locks(dir.path()), &clock, &wanted, Wait::No), count);
        group.bench_function(format!("take and release beside {count}"), |bencher| {
            // New locks for each iteration, because each program has its own.
            bencher.iter(|| take_one(&locks(dir.path()), &clock, &wanted, Wait::No));
        });
        let left = Ledger::read(&locks(dir.path())).expect("the directory can be read");
        assert_eq!(left.leases.len(), count, "nothing is left");
    }
    group.finish();
}

/// Each sleeping claim has an open descriptor.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, creating the largest queue fails, with an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn queue(criterion: &mut Criterion) {
    allow_many_files();
    let mut group = criterion.benchmark_group("waiting");
    let clock = SystemClock::new();
    let wanted = DeviceUuid("GPU-wanted".to_owned());
    for waiting in [10, 100, 1000] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let held = others(&locks(dir.path()), EntryKind::Waiter, waiting);
        let _held = held.expect("queue entries can be published");
        group.bench_function(BenchmarkId::new("a grant", waiting), |bencher| {
            bencher.iter(|| take_one(&locks(dir.path()), &clock, &wanted, Wait::Forever));
        });
        let left = Ledger::read(&locks(dir.path())).expect("the directory can be read");
        assert_eq!(left.leases.len(), 0, "nothing is left");
    }
    group.finish();
}

/// Fills the directory of a user with live leases, each with 64 names of devices in 4 KiB.
fn fill(shared: &Path, owner: u32, count: usize) -> Vec<File> {
    let dir = shared.join(format!("u{owner}"));
    std::fs::create_dir(&dir).expect("an empty directory");
    std::os::unix::fs::chown(&dir, Some(owner), None).expect("root may");
    let (write, start) = (F_WRLCK as i16, SEEK_SET as i16);
    let all = flock { l_type: write, l_whence: start, l_start: 0, l_len: 0, l_pid: 0 };
    let one = |number: usize| {
        let id = format!("{number:012x}");
        let names =
            (0..64).map(|device| format!("\"GPU-{owner}-{number:05}-{device:02}-{:035}\"", 0));
        let names = names.collect::<Vec<_>>().join(",");
        let text = format!("{{\"schema\":1,\"id\":\"{id}\",\"devices\":[{names}]}}");
        let path = dir.join(format!("lease-{id}"));
        std::fs::write(&path, text).expect("there is room");
        std::os::unix::fs::chown(&path, Some(owner), None).expect("root may");
        let file = File::options().read(true).write(true).open(&path).expect("it was just made");
        fcntl(&file, FcntlArg::F_OFD_SETLK(&all)).expect("it is new");
        file
    };
    (0..count).map(one).collect()
}

/// Reads all leases once, like `gpuws status`, in the presence of users who wrote as many leases as
/// readers open.
#[expect(clippy::print_stdout, reason = "says why figures are missing")]
fn crowds(criterion: &mut Criterion) {
    if !rustix::process::geteuid().is_root() {
        return println!("the leases of other users are left out: not root");
    }
    allow_many_files();
    let mut group = criterion.benchmark_group("read");
    for (name, users, count) in [("empty", 0, 0), ("one user", 1, 256), ("eight users", 8, 256)] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _held: Vec<_> = (0..users).map(|user| fill(dir.path(), 70_000 + user, count)).collect();
        let read = || locks(dir.path()).entries(EntryKind::Lease).expect("it can be read");
        let leases: usize = read().iter().map(LeaseEntry::count).sum();
        assert_eq!(leases, users as usize * count);
        group.bench_function(name, |bencher| bencher.iter(read));
    }
    group.finish();
}

criterion_group!(benches, claims, queue, crowds);
criterion_main!(benches);
