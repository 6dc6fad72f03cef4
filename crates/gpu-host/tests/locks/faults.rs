//! System calls that fail: an unreadable file or directory is an error, not a dead lease or an
//! empty directory. A file that only its owner has closed is not an error for other users.

use crate::hostile::shared;
use crate::other_process::{NOBODY, OtherProcess};
use crate::{LEASE, WAITER, entry, lease, locks, own, skip};
use gpu_core::{DeviceUuid, LeaseStore};
use nix::libc::{
    EACCES, EAGAIN, EINTR, EINVAL, EIO, EMFILE, ENOLCK, ENOMEM, ENOSYS, EPERM, EUCLEAN,
    F_OFD_GETLK, SYS_fcntl, SYS_fstatfs, SYS_getdents64, SYS_openat2, SYS_pread64, SYS_statx,
};
use rustix::fs::{XattrFlags, setxattr};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::tempdir;

/// A program that makes system calls of another program fail.
const DENY: &str = include_str!("../deny.c");

const DIR: &str = "GPU_HOST_TEST_FAULTS";

/// Compiles the program; `None` if there is no C compiler.
fn deny(dir: &Path) -> Option<PathBuf> {
    let (text, program) = (dir.join("deny.c"), dir.join("deny"));
    fs::write(&text, DENY).unwrap();
    let made = Command::new("cc").arg("-o").arg(&program).arg(&text).status();
    made.is_ok_and(|status| status.success()).then_some(program)
}

/// Returns how this program reads the leases under these rules: the number of leases, or an error.
fn read_under(deny: &Path, rules: &[String], dir: &Path) -> String {
    answer_under(deny, rules, dir, "read: ")
}

/// Returns what it prints after a word.
fn answer_under(deny: &Path, rules: &[String], dir: &Path, word: &str) -> String {
    let mut command = Command::new(deny);
    command.args(rules).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "faults::read_leases", "--nocapture"]);
    let output = command.env(DIR, dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    line.unwrap_or_else(|| panic!("{rules:?}: {output:?}")).to_owned()
}

#[test]
#[ignore = "run by other tests"]
#[expect(clippy::print_stdout, reason = "the test that runs it reads this")]
fn read_leases() {
    let dir = std::env::var(DIR).expect("this test is run by another one");
    let locks = locks(dir.as_ref());
    let read = |result: gpu_core::Result<usize>| {
        result.map_or_else(|error| error.fault().text, |count| count.to_string())
    };
    println!();
    println!("read: {}", read(locks.entries(LEASE).map(|leases| leases.len())));
    let held = locks.entries(LEASE).map(|leases| {
        let has = |device: &str| leases.iter().any(|lease| lease.has(&DeviceUuid(device.into())));
        usize::from(has("GPU-1")) + usize::from(has("GPU-of-no-lease"))
    });
    println!("held: {}", read(held));
    println!("queued: {}", read(locks.entries(WAITER).map(|waiters| waiters.len())));
}

#[test]
fn failed_system_call_is_not_a_dead_lease() {
    let (dir, tools) = (tempdir().unwrap(), tempdir().unwrap());
    let Some(deny) = deny(tools.path()) else {
        return skip("failed_system_call_is_not_a_dead_lease", "there is no C compiler");
    };
    let locks = locks(dir.path());
    let (entry, _held) = lease(&locks, &["GPU-1"]);
    let read = |call: i64, errno: i32, argument: &str| {
        read_under(&deny, &[format!("{call}:{errno}{argument}")], dir.path())
    };
    let lock_query = format!(":1:{F_OFD_GETLK}");
    let name = format!("lease-{}", entry.id);
    for errno in [EACCES, EPERM, EINTR, EAGAIN, EINVAL, ENOLCK, ENOSYS] {
        let said = read(SYS_fcntl, errno, &lock_query);
        assert!(said.contains(&name) && said.contains("query its lock (F_OFD_GETLK)"), "{said}");
    }
    for errno in [EACCES, EIO, EINTR, EMFILE, ENOMEM] {
        let said = read(SYS_openat2, errno, "");
        assert!(said.contains("open the lease directory"), "{errno}: {said}");
        let said = read(SYS_getdents64, errno, "");
        assert!(said.contains("list leases in"), "{errno}: {said}");
    }
    let said = read(SYS_fstatfs, EPERM, "");
    assert!(said.contains("query the file system type of") && said.contains("fstatfs"), "{said}");
    // Other calls replace these.
    for (call, errno) in [(SYS_openat2, ENOSYS), (SYS_openat2, EPERM), (SYS_statx, EPERM)] {
        assert_eq!(read(call, errno, ""), "1", "{call}: {errno}");
    }
}

/// The owner of a file can damage its content, on some file systems: that must neither deny claims
/// with an error nor hide a lease.
#[test]
fn live_lease_with_damaged_content_counts_for_every_device() {
    /// The program loader reads other parts of files.
    const FROM_START: &str = ":3:0";
    let (dir, tools) = (tempdir().unwrap(), tempdir().unwrap());
    let Some(deny) = deny(tools.path()) else {
        let test = "live_lease_with_damaged_content_counts_for_every_device";
        return skip(test, "there is no C compiler");
    };
    let locks = locks(dir.path());
    let (_, held) = lease(&locks, &["GPU-1"]);
    let _waiter = locks.publish(WAITER, &entry(&locks, &[])).unwrap();
    let answer = |errno: i32, word: &str| {
        answer_under(&deny, &[format!("{SYS_pread64}:{errno}{FROM_START}")], dir.path(), word)
    };
    for errno in [EIO, EUCLEAN] {
        assert_eq!(answer(errno, "read: "), "1", "{errno}");
        assert_eq!(answer(errno, "held: "), "2", "{errno}: which devices it has is unknown");
        assert_eq!(answer(errno, "queued: "), "0", "{errno}: it has no place in the order");
    }
    for errno in [ENOMEM, EACCES] {
        let said = answer(errno, "held: ");
        assert!(said.contains("read lease"), "this is no fault of the file: {said}");
    }
    drop(held);
    assert_eq!(answer(EIO, "held: "), "0", "a dead one holds nothing");
}

/// Without openat2, another user's mount must not fail every claim.
#[test]
fn dead_file_system_of_other_user_is_ignored_without_openat2() {
    const TEST: &str = "dead_file_system_of_other_user_is_ignored_without_openat2";
    // Its program has ended, so every query fails; a living one might never answer.
    const MOUNT: &str = "exec 3<>/dev/fuse && mount -i -t fuse \
        -o fd=3,rootmode=40000,user_id=0,group_id=0,allow_other fuse \"$1\"";
    let (Some(dir), tools) = (shared(TEST), tempdir().unwrap()) else { return };
    let Some(deny) = deny(tools.path()) else { return skip(TEST, "there is no C compiler") };
    let locks = locks(dir.path());
    let _leases = ["GPU-1", "GPU-2"].map(|device| lease(&locks, &[device]));
    let theirs = dir.path().join(format!("u{NOBODY}"));
    fs::create_dir(&theirs).unwrap();
    let mount = Command::new("sh").args(["-c", MOUNT, "sh"]).arg(&theirs).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return skip(TEST, "no FUSE can be mounted here");
    }
    let read = [ENOSYS, EPERM]
        .map(|errno| read_under(&deny, &[format!("{SYS_openat2}:{errno}")], dir.path()));
    let here = locks.entries(LEASE).map(|leases| leases.len());
    assert!(Command::new("umount").arg("-l").arg(&theirs).status().unwrap().success());
    assert_eq!(read, ["2", "2"]);
    assert_eq!(here.unwrap(), 2);
}

/// Returns an access control list (acl(5), linux/posix_acl_xattr.h) that lets all users but one
/// read a file.
fn list_without(user: u32) -> Vec<u8> {
    let everybody = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, everybody),
        (0x02, 0, user),
        (0x04, 4, everybody),
        (0x10, 4, everybody),
        (0x20, 4, everybody),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn file_closed_by_its_owner_is_ignored_by_others() {
    const TEST: &str = "file_closed_by_its_owner_is_ignored_by_others";
    let Some(dir) = shared(TEST) else { return };
    let locks = locks(dir.path());
    let leases = ["GPU-1", "GPU-2", "GPU-3"].map(|device| lease(&locks, &[device]));
    let path = |entry: &gpu_core::LeaseEntry| own(dir.path()).join(format!("lease-{}", entry.id));
    let sees =
        |device: &str| OtherProcess::start(Some(NOBODY), &format!("see {device}"), dir.path());
    assert!(sees("GPU-1").is_some() && sees("GPU-2").is_some());
    fs::set_permissions(path(&leases[0].0), Permissions::from_mode(0o600)).unwrap();
    let list = list_without(NOBODY);
    let flags = XattrFlags::empty();
    if let Err(errno) = setxattr(path(&leases[1].0), "system.posix_acl_access", &list, flags) {
        skip(TEST, &format!("no access control lists: {errno}"));
    } else {
        assert!(sees("GPU-2").is_none());
    }
    assert!(sees("GPU-1").is_none());
    assert!(sees("GPU-3").is_some(), "the rest is read without an error");
}
