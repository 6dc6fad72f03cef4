//! How entries are published, read, and ended.

use crate::other_process::OtherProcess;
use crate::{ATTEMPT, LEASE, WAITER, entry, eventually, lease, locks, own};
use gpu_core::{Clock, DeviceUuid, LeaseEntry, LeaseStore, Pid};
use gpu_host::SystemClock;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::slice;
use std::time::Duration;
use tempfile::tempdir;

fn names(dir: &Path, file_prefix: &str) -> usize {
    let files = fs::read_dir(own(dir)).unwrap().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with(file_prefix)).count()
}

#[test]
fn published_entry_is_visible_until_dropped() {
    let dir = tempdir().unwrap();
    let (here, there) = (locks(dir.path()), locks(dir.path()));
    let (first, held) = lease(&here, &["GPU-1"]);
    let waiter = entry(&here, &[]);
    let waits = here.publish(WAITER, &waiter).unwrap();
    for _ in 0..2 {
        assert_eq!(there.entries(LEASE).unwrap(), slice::from_ref(&first));
        assert_eq!(there.entries(WAITER).unwrap(), slice::from_ref(&waiter));
        assert_eq!(here.entries(LEASE).unwrap(), slice::from_ref(&first), "it sees its own");
    }
    drop((held, waits));
    assert_eq!(there.entries(LEASE).unwrap(), []);
    assert_eq!(there.entries(WAITER).unwrap(), []);
    assert_eq!(names(dir.path(), "lease-"), 0);
    assert_eq!(fs::read_dir(own(dir.path()).join("queue")).unwrap().count(), 0);
    // The name is free again, also after a second time.
    for _ in 0..2 {
        drop(here.publish(LEASE, &first).unwrap());
    }
}

#[test]
fn duplicate_id_is_rejected() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (first, _held) = lease(&locks, &["GPU-1"]);
    assert!(locks.publish(LEASE, &first).is_err());
    assert_eq!(locks.entries(LEASE).unwrap().len(), 1);
    assert_eq!(names(dir.path(), "new-"), 0, "no file is left of the other");
    assert!(locks.ticket().unwrap() > first.ticket);
}

#[test]
fn lease_ends_with_its_last_process() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let holder = OtherProcess::start(None, "publish lease GPU-1", dir.path()).unwrap();
    let waiter = OtherProcess::start(None, "publish waiter -", dir.path()).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap()[0].root.pid, Pid(holder.pid()));
    assert_eq!(locks.entries(WAITER).unwrap().len(), 1);
    holder.kill();
    waiter.kill();
    assert_eq!(locks.entries(LEASE).unwrap(), []);
    assert_eq!(locks.entries(WAITER).unwrap(), []);
    assert_eq!(names(dir.path(), "lease-"), 1, "its file means nothing");

    let supervisor = OtherProcess::start(None, "publish-for-a-child GPU-1", dir.path()).unwrap();
    let child: i32 = fs::read_to_string(dir.path().join("child")).unwrap().parse().unwrap();
    supervisor.kill();
    assert_eq!(locks.entries(LEASE).unwrap().len(), 1, "its job has it still");
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    eventually(|| locks.entries(LEASE).unwrap().is_empty());
}

#[test]
fn release_ends_lease_for_inheritors() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (_, held) = lease(&locks, &["GPU-1"]);
    held.inherit(true).unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    held.inherit(false).unwrap();
    drop(held);
    let left = locks.entries(LEASE).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left, []);
}

/// A job can belong to another user than its lease (`setpriv`), and is not trusted.
#[test]
fn inheritor_cannot_change_or_end_lease() {
    const SPOIL: &str = "\
import fcntl, os, struct, sys
fds = [int(fd) for fd in os.listdir('/proc/self/fd')]
spoiled = 0
for fd in [fd for fd in fds if fd > 2]:
    try:
        if not os.readlink(f'/proc/self/fd/{fd}').startswith(sys.argv[1]): continue
        os.ftruncate(fd, 0)
        os.write(fd, b'{}')
        fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_UNLCK, 0, 0, 0, 0))
        spoiled += 1
    except OSError: pass
print(spoiled)
";
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, held) = lease(&locks, &["GPU-1"]);
    held.inherit(true).unwrap();
    let mut command = std::process::Command::new("python3");
    let output = command.args(["-c", SPOIL]).arg(dir.path()).output().unwrap();
    held.inherit(false).unwrap();
    assert_eq!(output.stdout, b"1\n", "it has one file: {output:?}");
    let text = std::fs::read(own(dir.path()).join(format!("lease-{}", entry.id))).unwrap();
    assert!(text.ends_with(b"}\n") && text.len() > 100);
    // Without this process's cache, as any reader sees it.
    assert_eq!(crate::locks(dir.path()).entries(LEASE).unwrap(), [entry]);
    drop(held);
    let names = std::fs::read_dir(own(dir.path())).unwrap().flatten();
    let names: Vec<_> = names.map(|file| file.file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| name.starts_with("past-")), "{names:?}");
}

#[test]
fn file_of_another_user_keeps_no_lease_alive() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip("file_of_another_user_keeps_no_lease_alive", "needs root");
    }
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, held) = lease(&locks, &["GPU-1"]);
    held.inherit(true).unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    held.inherit(false).unwrap();
    held.leave();
    let kept = locks.entries(LEASE).unwrap();
    let file = own(dir.path()).join(format!("kept-{}", entry.id));
    std::os::unix::fs::chown(file, Some(crate::other_process::NOBODY), None).unwrap();
    // A program that another test is just starting has a copy of the lease's own file until it
    // runs.
    crate::eventually(|| locks.entries(LEASE).unwrap().is_empty());
    assert!(child.try_wait().unwrap().is_none(), "it still has the file");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(kept, [entry]);
}

#[test]
fn inherited_file_is_named_before_lease() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (first, held) = lease(&locks, &["GPU-1"]);
    let kept = |entry: &LeaseEntry| own(dir.path()).join(format!("kept-{}", entry.id));
    assert!(kept(&first).exists());
    drop(held);
    assert!(!kept(&first).exists());

    // A file of an earlier lease of that name is left.
    let again = entry(&locks, &["GPU-1"]);
    fs::write(kept(&again), "").unwrap();
    drop(locks.publish(LEASE, &again).unwrap());
}

#[test]
fn confirmed_attempt_becomes_lease() {
    let dir = tempdir().unwrap();
    let (here, there) = (locks(dir.path()), locks(dir.path()));
    let attempt = entry(&here, &["GPU-1"]);
    let mut held = here.publish(ATTEMPT, &attempt).unwrap();
    assert_eq!(there.entries(ATTEMPT).unwrap(), slice::from_ref(&attempt));
    assert_eq!(there.entries(LEASE).unwrap(), []);
    held.confirm().unwrap();
    held.confirm().unwrap();
    assert_eq!(there.entries(ATTEMPT).unwrap(), []);
    assert_eq!(there.entries(LEASE).unwrap(), slice::from_ref(&attempt));
    drop(held);
    assert_eq!((names(dir.path(), "lease-"), names(dir.path(), "past-")), (0, 1));

    // A withdrawal leaves no file; and a deleted attempt cannot be confirmed.
    drop(here.publish(ATTEMPT, &attempt).unwrap());
    assert_eq!((names(dir.path(), "try-"), names(dir.path(), "kept-")), (0, 0));
    let mut held = here.publish(ATTEMPT, &attempt).unwrap();
    fs::remove_file(own(dir.path()).join(format!("try-{}", attempt.id))).unwrap();
    assert!(held.confirm().is_err());
    assert_eq!(names(dir.path(), "lease-"), 0);
}

#[test]
fn abandoned_lease_ends_with_inheritors() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, held) = lease(&locks, &["GPU-1"]);
    held.inherit(true).unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    held.inherit(false).unwrap();
    held.leave();
    let left = locks.entries(LEASE).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left, [entry]);
    eventually(|| locks.entries(LEASE).unwrap().is_empty());

    let (_, held) = lease(&locks, &["GPU-1"]);
    held.leave();
    // A program that another test starts may have a copy for a moment.
    eventually(|| locks.entries(LEASE).unwrap().is_empty());
}

#[test]
fn wait_wakes_only_on_lease_end() {
    const LONG: Duration = Duration::from_secs(10);
    let dir = tempdir().unwrap();
    let (here, there) = (locks(dir.path()), locks(dir.path()));
    let waits = |time| {
        let clock = SystemClock::new();
        let changed = here.wait(time).unwrap();
        here.entries(LEASE).unwrap();
        (changed, clock.monotonic())
    };
    let (_, held) = lease(&there, &["GPU-1"]);
    assert!(waits(LONG).0, "what came before it began to watch is to be looked for");
    assert!(!waits(Duration::from_millis(20)).0);

    held.renew().unwrap();
    there.entries(LEASE).unwrap();
    let waiter = there.publish(WAITER, &entry(&there, &[])).unwrap();
    waiter.renew().unwrap();
    drop(waiter);
    fs::write(dir.path().join("something"), "else").unwrap();
    assert!(!waits(Duration::from_millis(20)).0, "none of these is the end of a lease");
    drop(held);
    assert!(waits(LONG).0);
    let other = OtherProcess::start(None, "publish lease GPU-1", dir.path()).unwrap();
    while waits(Duration::from_millis(20)).0 {}
    other.kill();
    let (changed, after) = waits(LONG);
    assert!(changed && after < LONG, "a death wakes the waiter");
}

#[test]
fn holder_detects_removal_of_its_entry() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, held) = lease(&locks, &["GPU-1"]);
    let path = own(dir.path()).join(format!("lease-{}", entry.id));
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(&path).unwrap().set_modified(old).unwrap();
    assert!(held.renew().unwrap());
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > old, "it is no old file");
    fs::remove_file(&path).unwrap();
    assert!(!held.renew().unwrap());
    let _again = locks.publish(LEASE, &entry).unwrap();
    assert!(!held.renew().unwrap(), "another file of that name is not it");
    assert_eq!(locks.entries(LEASE).unwrap(), [entry]);
}

#[test]
fn republished_lease_outlives_removed_entry() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, old) = lease(&locks, &["GPU-1"]);
    fs::remove_file(own(dir.path()).join(format!("lease-{}", entry.id))).unwrap();
    let new = locks.publish(LEASE, &entry).unwrap();
    drop(old);
    assert_eq!(locks.entries(LEASE).unwrap(), slice::from_ref(&entry));
    assert!(new.renew().unwrap());
    assert_eq!(names(dir.path(), "past-"), 0);
    drop(new);
    assert_eq!(locks.entries(LEASE).unwrap(), []);
    assert_eq!((names(dir.path(), "past-"), names(dir.path(), "lease-")), (1, 0));
}

#[test]
fn ended_leases_record_last_use_and_are_pruned() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let killed = OtherProcess::start(None, "publish lease GPU-9", dir.path()).unwrap();
    killed.kill();
    for number in 0..30 {
        drop(lease(&locks, &[&format!("GPU-{}", number % 3)]));
    }
    let last = locks.last_leased();
    let recent = SystemClock::new().wall();
    for number in 0..3 {
        let at = last[&DeviceUuid(format!("GPU-{number}"))];
        assert!(recent.since(at) < Duration::from_secs(60), "{at}");
    }
    assert_eq!(names(dir.path(), "past-"), 16);
    assert_eq!(names(dir.path(), "lease-"), 0, "what the killed one left is out of the way");
}

#[test]
fn entries_are_world_readable_regardless_of_umask() {
    let dir = tempdir().unwrap();
    let task = "publish-with-a-closed-umask GPU-1";
    let _other = OtherProcess::start(None, task, dir.path()).unwrap();
    let mut modes: Vec<(String, u32)> = fs::read_dir(own(dir.path()))
        .unwrap()
        .flatten()
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            (name[..5].to_owned(), file.metadata().unwrap().permissions().mode() & 0o7777)
        })
        .collect();
    modes.sort();
    let expected = [("kept-", 0o644), ("lease", 0o644)];
    assert_eq!(modes, expected.map(|(name, mode)| (name.to_owned(), mode)));
    let mode = fs::metadata(own(dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "and the directory");
}
