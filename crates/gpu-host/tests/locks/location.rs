//! When a directory of leases is trusted.

use crate::other_process::NOBODY;
use crate::{LEASE, entry, lease, locks, locks_at, skip};
use gpu_core::{ErrorKind, LeaseStore};
use gpu_host::{FileLeaseStore, LeaseLocation};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use tempfile::{TempDir, tempdir};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Asserts that a directory is refused, with the reason.
fn refused(locks: &FileLeaseStore, why: &str) {
    for result in [
        locks.entries(LEASE).map(|_| ()),
        locks.queue().map(|_| ()),
        locks.publish(LEASE, &entry(locks, &["GPU-1"])).map(|_| ()),
    ] {
        let error = result.expect_err(why);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
        assert!(error.to_string().starts_with("keep leases in '/"), "{error}");
    }
}

#[test]
fn dir_writable_by_others_without_sticky_bit_is_rejected() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("open")).unwrap();
    for (bits, why) in [(0o777, "writable by others"), (0o770, "writable by others")] {
        mode(&at("open"), bits);
        refused(&locks(&at("open")), why);
    }
    for bits in [0o700, 0o755, 0o1777] {
        mode(&at("open"), bits);
        drop(lease(&locks(&at("open")), &["GPU-1"]));
    }
    symlink(at("open"), at("link")).unwrap();
    refused(&locks(&at("link")), "is not a directory");
    fs::write(at("file"), "").unwrap();
    refused(&locks(&at("file")), "is not a directory");
    refused(&locks(&at("missing")), "does not exist");
}

/// A machine's `/run` and `/tmp`, owned by root.
struct Machine(TempDir);

impl Machine {
    fn new(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "needs root");
            return None;
        }
        let dir = tempdir().unwrap();
        for (name, bits) in [("run", 0o755), ("tmp", 0o1777)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            mode(&dir.path().join(name), bits);
        }
        Some(Machine(dir))
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn locks(&self) -> FileLeaseStore {
        locks_at(LeaseLocation::machine(self.at("run"), self.at("tmp")), &self.at("tmp"))
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let files = fs::read_dir(self.at(dir)).unwrap().flatten();
        let mut names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A user who can write there could exchange the directory.
#[test]
fn no_dir_is_created_where_group_or_others_can_write() {
    for bits in [0o775, 0o757] {
        let test = "no_dir_is_created_where_group_or_others_can_write";
        let Some(machine) = Machine::new(test) else { return };
        mode(&machine.at("run"), bits);
        let (_, _held) = lease(&machine.locks(), &["GPU-1"]);
        assert_eq!(machine.names("run"), [""; 0], "{bits:o}");
        assert_eq!(machine.names("tmp"), [".gpuws-u0"]);
    }
}

#[test]
fn leases_from_before_root_created_dir_still_count() {
    let test = "leases_from_before_root_created_dir_still_count";
    let Some(machine) = Machine::new(test) else { return };
    let (before, after) = (machine.locks(), machine.locks());
    mode(&machine.at("run"), 0o777);
    let (old, _held) = lease(&before, &["GPU-1"]);
    assert_eq!(machine.names("run"), [""; 0], "any user could exchange it there");
    assert_eq!(machine.names("tmp"), [".gpuws-u0"]);
    let files = ["kept", "lease"].map(|kind| format!("{kind}-{}", old.id));
    assert_eq!(machine.names("tmp/.gpuws-u0"), files);

    mode(&machine.at("run"), 0o755);
    let old_umask = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let (new, _held) = lease(&after, &["GPU-2"]);
    rustix::process::umask(old_umask);
    let made = |name| fs::metadata(machine.at(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((made("run/gpuws"), made("run/gpuws/u0")), (0o1777, 0o755));
    assert_eq!(machine.names("run"), ["gpuws"]);
    let files = ["kept", "lease"].map(|kind| format!("{kind}-{}", new.id));
    assert_eq!(machine.names("run/gpuws/u0"), files);
    for locks in [&before, &after] {
        let mut leases = locks.entries(LEASE).unwrap();
        leases.sort_by_key(|lease| lease.ticket);
        assert_eq!(leases, [old.clone(), new.clone()]);
    }
}

#[test]
fn unreadable_lease_dir_fails_instead_of_hiding_leases() {
    let test = "unreadable_lease_dir_fails_instead_of_hiding_leases";
    let Some(machine) = Machine::new(test) else { return };
    let with = |tmp| locks_at(LeaseLocation::machine(machine.at("run"), tmp), &machine.at("tmp"));
    drop(lease(&machine.locks(), &["GPU-1"]));
    fs::write(machine.at("file"), "").unwrap();
    for never in ["missing", "file", "run"] {
        assert!(with(machine.at(never)).entries(LEASE).unwrap().is_empty(), "{never} holds none");
    }
    // A failure that does not concern the content: the name is too long.
    let error = with(machine.at(&"x".repeat(300))).entries(LEASE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn dir_of_another_user_is_rejected() {
    let Some(machine) = Machine::new("dir_of_another_user_is_rejected") else { return };
    let locks = machine.locks();
    fs::create_dir(machine.at("run/gpuws")).unwrap();
    mode(&machine.at("run/gpuws"), 0o755);
    refused(&locks, "has mode 0755, not 1777");
    mode(&machine.at("run/gpuws"), 0o1777);
    chown(machine.at("run/gpuws"), Some(NOBODY), None).unwrap();
    refused(&locks, "belongs to user 65534, not to root");
    refused(&crate::locks(&machine.at("run/gpuws")), "belongs to user 65534");
    fs::remove_dir(machine.at("run/gpuws")).unwrap();
    symlink(machine.at("tmp"), machine.at("run/gpuws")).unwrap();
    refused(&locks, "is not a directory");
    fs::remove_file(machine.at("run/gpuws")).unwrap();

    mode(&machine.at("run"), 0o777);
    mode(&machine.at("tmp"), 0o777);
    refused(&locks, "has mode 0777, not 1777");
    mode(&machine.at("tmp"), 0o1777);
    chown(machine.at("tmp"), Some(NOBODY), None).unwrap();
    refused(&locks, "belongs to user 65534, not to root");
}
