//! A program that is started inherits no descriptor.

use gpu_core::{
    Claim, EntryKind, Journal, LeaseEntry, LeaseStore, Pid, ProcessKey, ProcessTable, Timestamp,
};
use gpu_host::supervise::DetachPipe;
use gpu_host::{
    FileJournal, FileLeaseStore, LeaseLocation, LinuxHost, PathTrust, Roots, SafeGpuFiles,
    TrustedDir,
};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The only test of its program, so no other one opens files meanwhile.
#[test]
fn no_open_file_is_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
    let store = FileLeaseStore::new(
        LeaseLocation::dir(dir.path()),
        SafeGpuFiles::below(dir.path()),
        roots.clone(),
    );
    let entry = || LeaseEntry {
        id: store.new_id().unwrap(),
        ticket: store.ticket().unwrap(),
        owner: store.owner(),
        root: ProcessKey { pid: Pid(std::process::id()), start: None },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: Vec::new(),
        parts_of: Vec::new(),
        merged: None,
        command: "test".into(),
        since: Timestamp(0),
    };
    let before = descriptors();
    let guards = [EntryKind::Waiter, EntryKind::Attempt, EntryKind::Lease]
        .map(|kind| store.publish(kind, &entry()).unwrap());
    assert_eq!(store.queue().unwrap().len(), 1);
    store.wait(Duration::ZERO).unwrap();
    let held_back = store.hold_back_safe_gpu(Duration::ZERO).unwrap();
    let handle = LinuxHost::new(roots).open(Pid(std::process::id())).unwrap();
    let trusted = TrustedDir::open(dir.path(), PathTrust::AsGiven).unwrap();
    let journal = FileJournal::open(dir.path().join("journal")).unwrap();
    journal.append("line").unwrap();
    let pipe = DetachPipe::new().unwrap();

    let opened: BTreeSet<u32> = descriptors().difference(&before).copied().collect();
    assert!(opened.len() > 10, "{opened:?}");
    for number in opened {
        let file = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert!(is_closed_on_exec(number), "{}", file.display());
    }
    drop((guards, held_back, handle, trusted, journal, pipe));
}

/// Returns the open descriptors of this process.
fn descriptors() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers = entries.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap());
    let listed: BTreeSet<u32> = numbers.collect();
    // The list itself was open too.
    listed.into_iter().filter(|n| fs::read_link(format!("/proc/self/fd/{n}")).is_ok()).collect()
}

/// Returns whether a started program does not get a descriptor (`O_CLOEXEC`, proc(5)).
fn is_closed_on_exec(descriptor: u32) -> bool {
    const CLOEXEC: u32 = 0o2_000_000;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    u32::from_str_radix(flags.trim(), 8).unwrap() & CLOEXEC != 0
}
