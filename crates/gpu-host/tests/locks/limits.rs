//! How much readers keep of the entries of users who write any number of them.

use crate::hostile::{locked, shared};
use crate::other_process::NOBODY;
use crate::{ATTEMPT, LEASE, lease, locks};
use gpu_core::{Clock, DeviceUuid, LeaseEntry, LeaseStore, MergedLeases};
use gpu_host::SystemClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;

/// More than a reader may keep of other users' names, in bytes.
const MOST: usize = 3 << 20;

fn uuid(name: &str) -> DeviceUuid {
    DeviceUuid(name.to_owned())
}

/// Returns the text of an entry.
fn text(id: &str, devices: &[String]) -> Vec<u8> {
    let text = serde_json::json!({
        "schema": 1, "id": id, "ticket": 7, "root": { "pid": 7, "start_ticks": 3 },
        "claim": { "count": 1, "share": "whole", "accept_used": false },
        "devices": devices, "command": "python", "since_unix_ms": 5,
    });
    text.to_string().into_bytes()
}

/// Creates the directory of a user.
fn user_dir(shared: &Path, owner: u32) -> std::path::PathBuf {
    // The files of the directory stay open, to stay locked.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let dir = shared.join(format!("u{owner}"));
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(owner), None).unwrap();
    dir
}

fn plant(dir: &Path, owner: u32, kind: &str, id: &str, devices: &[String]) -> File {
    let path = dir.join(format!("{kind}{id}"));
    let file = locked(&path, &text(id, devices));
    chown(&path, Some(owner), None).unwrap();
    file
}

/// Fills the directory of a user with the largest live entries, and returns their devices too.
fn fill(shared: &Path, owner: u32, count: usize) -> (Vec<File>, Vec<String>) {
    let dir = user_dir(shared, owner);
    let mut all = Vec::new();
    let files = (0..count).map(|number| {
        let name = |device| format!("GPU-{owner}-{number}-{device}-{}", "x".repeat(90));
        let devices: Vec<String> = (0..64).map(name).collect();
        all.extend_from_slice(&devices);
        plant(&dir, owner, "lease-", &format!("{number:012x}"), &devices)
    });
    (files.collect(), all)
}

/// Returns how many bytes the names in these entries take.
fn kept(entries: &[LeaseEntry]) -> usize {
    let of_names = |entry: &LeaseEntry| -> usize {
        entry.devices.iter().map(|device| size_of::<DeviceUuid>() + device.0.len()).sum()
    };
    let of_merged = |entry: &LeaseEntry| entry.merged.as_ref().map_or(0, |all| 4 * all.names());
    entries.iter().map(|entry| of_names(entry) + of_merged(entry)).sum()
}

fn is_held(entries: &[LeaseEntry], device: &str) -> bool {
    entries.iter().any(|entry| entry.has(&uuid(device)))
}

/// Returns whether each of the devices is held.
fn are_held<'d>(entries: &[LeaseEntry], devices: impl IntoIterator<Item = &'d String>) -> bool {
    let named: HashSet<&str> =
        entries.iter().flat_map(|entry| &entry.devices).map(|device| &*device.0).collect();
    let merged: Vec<_> = entries.iter().filter_map(|entry| entry.merged.as_ref()).collect();
    devices
        .into_iter()
        .all(|name| named.contains(&**name) || merged.iter().any(|all| all.contains(&uuid(name))))
}

#[test]
fn names_of_one_user_take_bounded_memory_and_stay_held() {
    let test = "names_of_one_user_take_bounded_memory_and_stay_held";
    let Some(dir) = shared(test) else { return };
    let here = locks(dir.path());
    let (own, _held) = lease(&here, &["GPU-1"]);
    let (_files, devices) = fill(dir.path(), NOBODY, 250);
    for reader in [&here, &locks(dir.path()), &here] {
        let entries = reader.entries(LEASE).unwrap();
        assert!(kept(&entries) < MOST, "{} bytes", kept(&entries));
        assert!(entries.contains(&own));
        assert!(are_held(&entries, &devices), "none is given away");
        assert!(!is_held(&entries, "GPU-2"), "and no other one is kept back");
        let count: usize = entries.iter().map(LeaseEntry::count).sum();
        assert_eq!(count, 1 + 250);
        assert!(entries.iter().all(|entry| [0, NOBODY].contains(&entry.owner)));
    }
}

#[test]
fn names_of_many_users_take_bounded_memory() {
    let test = "names_of_many_users_take_bounded_memory";
    let Some(dir) = shared(test) else { return };
    let here = locks(dir.path());
    let (own, _held) = lease(&here, &["GPU-1"]);
    let filled: Vec<_> = (0..8).map(|user| fill(dir.path(), 70_000 + user, 60)).collect();
    // The last user by name.
    let honest = user_dir(dir.path(), 99_999);
    let _lease = plant(&honest, 99_999, "lease-", "0123456789ab", &["GPU-3".to_owned()]);
    let entries = here.entries(LEASE).unwrap();
    assert!(kept(&entries) < MOST, "{} bytes", kept(&entries));
    assert!(are_held(&entries, filled.iter().flat_map(|(_, devices)| devices)));
    assert!(!is_held(&entries, "GPU-2"));
    assert!(entries.contains(&own));
    let apart = entries.iter().find(|entry| entry.id.as_str() == "0123456789ab").unwrap();
    assert_eq!((apart.owner, &apart.devices[..]), (99_999, &[uuid("GPU-3")][..]));
}

/// A user may have thousands of UIDs, in user namespaces.
#[test]
fn leases_of_hundreds_of_users_are_one() {
    let Some(dir) = shared("leases_of_hundreds_of_users_are_one") else { return };
    let users = 70_000..70_120;
    let filled: Vec<_> = users.map(|user| fill(dir.path(), user, 3)).collect();
    let entries = locks(dir.path()).entries(LEASE).unwrap();
    assert!(kept(&entries) < MOST, "{} bytes", kept(&entries));
    let merged = entries.iter().filter(|entry| entry.merged.is_some());
    let owners: Vec<u32> = merged.map(|entry| entry.owner).collect();
    assert_eq!(owners.len(), 64 + 1, "{owners:?}");
    assert!(owners.contains(&MergedLeases::SEVERAL_USERS));
    assert!(are_held(&entries, filled.iter().flat_map(|(_, devices)| devices)));
}

#[test]
fn only_the_first_entries_of_a_user_may_be_large() {
    let Some(dir) = shared("only_the_first_entries_of_a_user_may_be_large") else { return };
    let own = user_dir(dir.path(), NOBODY);
    let devices = |number: u32| {
        let name = |device| format!("GPU-{number}-{device}-{}", "x".repeat(90));
        (0..113).map(name).collect::<Vec<String>>()
    };
    let plant = |number| plant(&own, NOBODY, "lease-", &format!("{number:012x}"), &devices(number));
    let _files: Vec<File> = (0..5).map(plant).collect();
    let entries = locks(dir.path()).entries(LEASE).unwrap();
    assert!((0..4).all(|number| are_held(&entries, &devices(number))));
    assert!(!is_held(&entries, &devices(4)[0]), "it is no entry");
}

/// In a directory that is not cleared otherwise, because the caller uses another one by now.
#[test]
fn dead_entries_in_another_directory_of_the_caller_are_removed() {
    let test = "dead_entries_in_another_directory_of_the_caller_are_removed";
    let Some(dir) = shared(test) else { return };
    let here = locks(dir.path());
    drop(lease(&here, &["GPU-0"]));
    let other = dir.path().join("u0-other");
    fs::create_dir(&other).unwrap();
    for number in 0..300 {
        drop(plant(&other, 0, "lease-", &format!("{number:012x}"), &["GPU-1".into()]));
    }
    let _last = plant(&other, 0, "lease-", "z", &["GPU-2".into()]);
    let _own = lease(&here, &["GPU-3"]);
    let entries = locks(dir.path()).entries(LEASE).unwrap();
    assert!(is_held(&entries, "GPU-2") && is_held(&entries, "GPU-3"));
    let left = fs::read_dir(&other).unwrap().flatten();
    let left = left.filter(|file| file.file_name().to_string_lossy().starts_with("lease-"));
    assert_eq!(left.count(), 1);
}

/// Readers open only the first attempts of a user.
#[test]
fn attempt_among_too_many_is_temporarily_refused() {
    let Some(dir) = shared("attempt_among_too_many_is_temporarily_refused") else { return };
    let here = locks(dir.path());
    let own = dir.path().join("u0");
    drop(lease(&here, &["GPU-0"]));
    let mut files: Vec<_> = (0..128)
        .map(|number| plant(&own, 0, "try-", &format!("{number:012x}"), &["GPU-1".into()]))
        .collect();
    let entry = crate::entry(&here, &["GPU-2"]);
    let refused = here.publish(ATTEMPT, &entry).err().unwrap();
    assert_eq!(refused.kind(), gpu_core::ErrorKind::Again, "{refused}");
    // The file of a killed claim does not count.
    files.truncate(127);
    assert!(here.publish(ATTEMPT, &entry).is_ok());
}

/// Whatever a user writes, a reader lists a bounded number of names.
#[test]
fn further_directories_of_a_user_with_many_names_are_not_listed() {
    let test = "further_directories_of_a_user_with_many_names_are_not_listed";
    let Some(dir) = shared(test) else { return };
    let first = user_dir(dir.path(), 70_000);
    for number in 0..16_384 {
        File::create(first.join(format!("x{number}"))).unwrap();
    }
    let second = dir.path().join("u70000-other");
    fs::create_dir(&second).unwrap();
    chown(&second, Some(70_000), None).unwrap();
    let _lease = plant(&second, 70_000, "lease-", "a", &["GPU-1".into()]);
    let honest = user_dir(dir.path(), 80_000);
    let _other = plant(&honest, 80_000, "lease-", "b", &["GPU-2".into()]);
    let entries = locks(dir.path()).entries(LEASE).unwrap();
    assert!(!is_held(&entries, "GPU-1") && is_held(&entries, "GPU-2"));
}

/// gpuws grants no user more than 256 leases, but a reader may remember one that has ended.
#[test]
fn lease_replacing_one_at_the_limit_is_seen_at_once() {
    let Some(dir) = shared("lease_replacing_one_at_the_limit_is_seen_at_once") else { return };
    let (mut files, devices) = fill(dir.path(), 70_000, 256);
    let own = dir.path().join("u70000");
    let plant = |id: &str| plant(&own, 70_000, "lease-", id, &[format!("GPU-{id}")]);
    files.push(plant("y-beyond"));
    let reader = locks(dir.path());
    for _ in 0..2 {
        let entries = reader.entries(LEASE).unwrap();
        assert!(are_held(&entries, &devices));
        assert!(!is_held(&entries, "GPU-y-beyond"), "gpuws has granted no such lease");
    }
    files.remove(255);
    files.push(plant("z-new"));
    assert!(is_held(&reader.entries(LEASE).unwrap(), "GPU-z-new"));
}

#[test]
fn any_number_of_dead_entries_holds_no_device() {
    let Some(dir) = shared("any_number_of_dead_entries_holds_no_device") else { return };
    let own = user_dir(dir.path(), NOBODY);
    for number in 0..2500 {
        let id = format!("{number:012x}");
        drop(plant(&own, NOBODY, "lease-", &id, &[format!("GPU-{number}")]));
    }
    let live = ["000000000001", "000000000100", "000000000100-x"];
    let _files: Vec<_> = live
        .iter()
        .map(|id| {
            let _ = fs::remove_file(own.join(format!("lease-{id}")));
            plant(&own, NOBODY, "lease-", id, &[format!("GPU-live-{id}")])
        })
        .collect();
    let reader = locks(dir.path());
    for _ in 0..2 {
        let entries = reader.entries(LEASE).unwrap();
        let held = (0..2500).filter(|number| is_held(&entries, &format!("GPU-{number}")));
        assert_eq!(held.count(), 0);
        assert!(live.iter().all(|id| is_held(&entries, &format!("GPU-live-{id}"))));
    }
}

/// A reader's cache does not hide new entries.
#[test]
fn entry_published_between_two_reads_is_seen() {
    let Some(dir) = shared("entry_published_between_two_reads_is_seen") else { return };
    let own = user_dir(dir.path(), NOBODY);
    let names = |number: u32| vec![format!("GPU-{number}")];
    let mut files: Vec<_> = (0..200)
        .map(|number| plant(&own, NOBODY, "lease-", &format!("{number:012x}"), &names(number)))
        .collect();
    let reader = locks(dir.path());
    let clock = SystemClock::new();
    // The directory has not changed for long, so its listing is kept.
    clock.sleep(Duration::from_millis(120));
    let read = || [ATTEMPT, LEASE].map(|kind| reader.entries(kind).unwrap()).concat();
    for number in 200..216 {
        assert!(!is_held(&read(), &format!("GPU-{number}")));
        let (kind, id) = match number % 4 {
            0 => ("try-", format!("{number:012x}")),
            1 => ("lease-", format!("{number:012x}")),
            // Before all others by name, and after them.
            2 => ("lease-", format!("0-{number}")),
            _ => ("lease-", format!("z-{number}")),
        };
        files.push(plant(&own, NOBODY, kind, &id, &names(number)));
        let entries = read();
        let names: Vec<String> = (0..=number).map(|number| format!("GPU-{number}")).collect();
        assert!(are_held(&entries, &names), "{number}");
    }
    // A dead file among the first is noticed at once.
    files.remove(0);
    assert!(!is_held(&read(), "GPU-0"));
}

/// The UID of unmapped users stands for many: none of them may use up the limits of the others.
#[test]
fn files_of_unmapped_users_have_no_common_limit() {
    let Some(dir) = shared("files_of_unmapped_users_have_no_common_limit") else { return };
    let mut files = Vec::new();
    for (owner, name) in [(NOBODY, "a"), (70_000, "b")] {
        let first = user_dir(dir.path(), owner);
        for number in 0..2048 {
            fs::write(first.join(format!("lease-{number:012x}")), "").unwrap();
        }
        let second = dir.path().join(format!("u{owner}-other"));
        fs::create_dir(&second).unwrap();
        chown(&second, Some(owner), None).unwrap();
        files.push(plant(&second, owner, "lease-", name, &[format!("GPU-{name}")]));
    }
    let entries = locks(dir.path()).entries(LEASE).unwrap();
    assert!(is_held(&entries, "GPU-a"), "it may belong to another user");
    assert!(!is_held(&entries, "GPU-b"), "beyond the limit of its user");
}

/// A claim withdraws and tries other devices, under the same ID. Its file may get the inode of the
/// last one, and the same time of modification.
#[test]
fn attempt_under_the_same_name_and_inode_is_read_again() {
    let test = "attempt_under_the_same_name_and_inode_is_read_again";
    let Some(dir) = shared(test) else { return };
    let own = user_dir(dir.path(), NOBODY);
    let kept = dir.path().join("kept");
    let mut files: Vec<_> = (0..250)
        .map(|number| plant(&own, NOBODY, "try-", &format!("{number:012x}"), &["GPU-0".into()]))
        .collect();
    let reader = locks(dir.path());
    let clock = SystemClock::new();
    let holds = |device: &str| is_held(&reader.entries(ATTEMPT).unwrap(), device);
    // Among those that are kept unmerged, and beyond them.
    for number in [10, 240] {
        let id = format!("{number:012x}");
        let path = own.join(format!("try-{id}"));
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let withdraw = |file: &mut File| {
            fs::rename(&path, &kept).unwrap();
            *file = File::open("/dev/null").unwrap();
        };
        let republish = |device: &str| {
            let file = locked(&kept, &text(&id, &[device.to_owned()]));
            file.set_modified(modified).unwrap();
            fs::rename(&kept, &path).unwrap();
            file
        };
        // The directory has not changed for long, so readers have cached its content.
        let wait = || clock.sleep(Duration::from_millis(120));
        wait();
        assert!(holds("GPU-0"));
        // It is withdrawn and published again between two reads.
        withdraw(&mut files[number]);
        files[number] = republish("GPU-1");
        assert!(holds("GPU-1"), "{number}");
        wait();
        assert!(holds("GPU-1"), "{number}");
        // Another reader lists it before its end, and opens it after that.
        let reader = locks(dir.path());
        let holds = |device: &str| is_held(&reader.entries(ATTEMPT).unwrap(), device);
        files[number] = File::open("/dev/null").unwrap();
        assert!(!holds("GPU-1"), "{number}");
        withdraw(&mut files[number]);
        files[number] = republish("GPU-2");
        assert!(holds("GPU-2"), "{number}");
    }
}

#[test]
fn hints_of_other_users_take_bounded_memory() {
    let Some(dir) = shared("hints_of_other_users_take_bounded_memory") else { return };
    for user in 0..20 {
        let owner = 70_000 + user;
        let own = user_dir(dir.path(), owner);
        for number in 0..40 {
            let devices: Vec<String> =
                (0..64).map(|device| format!("GPU-{user}-{number}-{device}")).collect();
            drop(plant(&own, owner, "past-", &format!("{number:012x}"), &devices));
        }
    }
    let last = locks(dir.path()).last_leased();
    assert!((64..=4096).contains(&last.len()), "{}", last.len());
}

#[test]
fn hints_of_user_with_many_directories_leave_room_for_others() {
    let test = "hints_of_user_with_many_directories_leave_room_for_others";
    let Some(dir) = shared(test) else { return };
    for number in 0..250 {
        let more = dir.path().join(format!("u70000-{number:03}"));
        fs::create_dir(&more).unwrap();
        chown(&more, Some(70_000), None).unwrap();
        for number in 0..10 {
            drop(plant(&more, 70_000, "past-", &format!("{number:012x}"), &["GPU-0".into()]));
        }
    }
    let honest = user_dir(dir.path(), 80_000);
    drop(plant(&honest, 80_000, "past-", "0123456789ab", &["GPU-1".into()]));
    let last = locks(dir.path()).last_leased();
    assert_eq!(last.keys().map(|device| &*device.0).collect::<Vec<_>>(), ["GPU-0", "GPU-1"]);
}
