//! Places in the queue.

use crate::other_process::{NOBODY, OtherProcess};
use crate::{WAITER, entry, eventually, locks, own};
use gpu_core::{Claim, Clock, LeaseEntry, LeaseStore, QUEUE_STALL_TIMEOUT, QueuePlace};
use gpu_host::{FileLeaseStore, SystemClock};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timestamps};
use rustix::time::Timespec;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::tempdir;

const LONG: Duration = Duration::from_secs(10);

fn place(locks: &FileLeaseStore, entry: &LeaseEntry) -> QueuePlace {
    let places = locks.queue().unwrap();
    places.into_iter().find(|place| place.is_of(entry)).expect("it is in the queue")
}

fn queue(dir: &Path) -> PathBuf {
    own(dir).join("queue")
}

fn files(dir: &Path) -> usize {
    fs::read_dir(queue(dir)).unwrap().count()
}

#[test]
fn queue_listing_has_order_and_class() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let first = entry(&locks, &[]);
    let second = entry(&locks, &[]);
    let other = LeaseEntry { claim: Claim::whole(2), ..entry(&locks, &[]) };
    let _held = [&other, &first, &second].map(|entry| locks.publish(WAITER, entry).unwrap());
    let places = locks.queue().unwrap();
    let ids: Vec<_> = places.iter().map(|place| &place.id).collect();
    assert_eq!(ids, [&first.id, &second.id, &other.id]);
    assert_eq!(places[0].class, places[1].class);
    assert_ne!(places[0].class, places[2].class);
    let waiter = locks.waiter(&places[2]).unwrap().expect("it is alive");
    assert_eq!((waiter.entry, waiter.is_stalled), (other, false));
}

#[test]
fn wait_for_queue_place_ends_when_claim_leaves_or_dies() {
    let dir = tempdir().unwrap();
    let (here, there) = (locks(dir.path()), locks(dir.path()));
    let first = entry(&there, &[]);
    let held = there.publish(WAITER, &first).unwrap();
    let place = place(&here, &first);
    assert!(!here.wait_for(&place, Duration::from_millis(5)).unwrap());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| here.wait_for(&place, LONG).unwrap());
        SystemClock::new().sleep(Duration::from_millis(20));
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.join().unwrap());
    });
    assert!(here.wait_for(&place, LONG).unwrap(), "it has left before");
    assert_eq!(files(dir.path()), 0);

    let other = OtherProcess::start(None, "publish waiter -", dir.path()).unwrap();
    let place = here.queue().unwrap().remove(0);
    assert!(here.waiter(&place).unwrap().is_some());
    other.kill();
    let clock = SystemClock::new();
    assert!(here.wait_for(&place, LONG).unwrap() && clock.monotonic() < LONG);
}

#[test]
fn dead_queue_place_is_removed_by_its_user() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    OtherProcess::start(None, "publish waiter -", dir.path()).unwrap().kill();
    assert_eq!(files(dir.path()), 2);
    let place = locks.queue().unwrap().remove(0);
    eventually(|| locks.waiter(&place).unwrap().is_none());
    assert_eq!(files(dir.path()), 0);
    assert_eq!(locks.entries(WAITER).unwrap(), []);
    // A FIFO without a place, as left by a process that is killed in between.
    let fifo = queue(dir.path()).join("wait-abc");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    let _held = locks.publish(WAITER, &entry(&locks, &[])).unwrap();
    assert_eq!(locks.queue().unwrap().len(), 1);
    assert!(!fifo.exists());
    assert_eq!(files(dir.path()), 2);
}

#[test]
fn untrusted_queue_dir_is_ignored() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let waiting = entry(&locks, &[]);
    let _held = locks.publish(WAITER, &waiting).unwrap();
    let queue = queue(dir.path());
    let place = place(&locks, &waiting);
    fs::set_permissions(&queue, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(locks.queue().unwrap(), []);
    assert!(locks.publish(WAITER, &entry(&locks, &[])).is_err());
    fs::set_permissions(&queue, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(locks.queue().unwrap().len(), 1);
    if rustix::process::geteuid().is_root() {
        chown(&queue, Some(NOBODY), None).unwrap();
        assert_eq!(locks.queue().unwrap(), []);
        assert!(locks.waiter(&place).unwrap().is_none());
    }
}

#[test]
fn non_dir_in_place_of_queue_is_reported() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    drop(crate::lease(&locks, &["GPU-1"]));
    symlink("/tmp", queue(dir.path())).unwrap();
    let error = locks.publish(WAITER, &entry(&locks, &[])).err().expect("it is a link");
    assert!(error.to_string().contains("/queue'"), "{error}");
    assert_eq!(locks.queue().unwrap(), []);
}

#[test]
fn unrenewed_queue_place_is_stalled() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let waiting = entry(&locks, &[]);
    let held = locks.publish(WAITER, &waiting).unwrap();
    let place = place(&locks, &waiting);
    let is_stalled = || locks.waiter(&place).unwrap().expect("it is alive").is_stalled;
    assert!(!is_stalled());
    let name = fs::read_dir(queue(dir.path())).unwrap().flatten().map(|file| file.path());
    let name = name.into_iter().find(|path| path.to_string_lossy().contains("place-")).unwrap();
    let beat = |at: Duration| {
        let at = Timespec { tv_sec: at.as_secs().try_into().unwrap(), tv_nsec: 0 };
        let times = Timestamps { last_access: at, last_modification: at };
        rustix::fs::utimensat(CWD, &name, &times, AtFlags::empty()).unwrap();
    };
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    let now = Duration::from_secs(since_boot.unsigned_abs());
    if let Some(missed) = now.checked_sub(QUEUE_STALL_TIMEOUT + Duration::from_secs(2)) {
        beat(missed);
        assert!(is_stalled());
        assert!(held.renew().unwrap());
        assert!(!is_stalled(), "it moves again");
    }
    beat(now + Duration::from_secs(3600));
    assert!(is_stalled(), "a renewal in the future does not count");
    fs::remove_file(&name).unwrap();
    assert!(!held.renew().unwrap(), "somebody cleared it away");
}

/// The limit applies to a user, who may have many directories.
#[test]
fn places_of_one_user_are_limited_over_all_directories() {
    const MOST: u32 = 1 << 16;
    let test = "places_of_one_user_are_limited_over_all_directories";
    // Files in memory: there are many.
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let Some(dir) = crate::hostile::shared_in(&parent, test) else { return };
    let plant = |user: &str, owner: u32, junk: u32| {
        let queue = dir.path().join(user).join("queue");
        fs::create_dir_all(&queue).unwrap();
        for number in 0..junk {
            fs::File::create(queue.join(format!("x-{number}"))).unwrap();
        }
        let name = format!("place-{:016x}-{:016x}-{user}", 7, 7);
        fs::write(queue.join(name), "").unwrap();
        for path in [queue.parent().unwrap(), &queue] {
            chown(path, Some(owner), None).unwrap();
        }
    };
    for owner in [4_321, NOBODY] {
        // The names of the first directory use up the limit.
        plant(&format!("u{owner}"), owner, MOST);
        plant(&format!("u{owner}-other"), owner, 0);
    }
    plant("u5000", 5_000, 0);
    let places = locks(dir.path()).queue().unwrap();
    let has = |id: &str| places.iter().any(|place| place.id.as_str() == id);
    assert!(has("u5000"));
    assert!(!has("u4321-other"));
    assert!(has("u65534-other"), "this UID stands for many users");
}
