//! What others put into the folder.

use crate::stranger::{NOBODY, Stranger};
use crate::{LEASE, WAITER, lease, locks, skip};
use gpu_core::{ErrorKind, Locks};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_WRLCK, SEEK_SET, flock};
use rustix::fs::{CWD, FileType, Mode};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::tempdir;

fn lock(file: &File, kind: i32) {
    let all = flock {
        l_type: i16::try_from(kind).unwrap(),
        l_whence: i16::try_from(SEEK_SET).unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&all)).unwrap();
}

/// Makes a file that is locked as a live entry's is.
fn locked(path: &Path, text: &[u8]) -> File {
    fs::write(path, text).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    lock(&file, F_WRLCK);
    file
}

#[test]
fn what_is_no_entry_is_passed_by() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let locks = locks(folder.path());
    let (own, _held) = lease(&locks, &["GPU-1"]);
    let text = fs::read(at(&format!("lease-{}", own.id))).unwrap();

    symlink(at(&format!("lease-{}", own.id)), at("lease-link")).unwrap();
    symlink("/dev/zero", at("lease-zero")).unwrap();
    rustix::fs::mknodat(CWD, at("lease-fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(at("lease-folder")).unwrap();
    fs::hard_link(at(&format!("lease-{}", own.id)), at("lease-twin")).unwrap();
    let huge = locked(&at("lease-huge"), &text);
    huge.set_len(1 << 30).unwrap();
    let _locked = [
        locked(&at("lease-garbage"), b"\xff\x00{"),
        locked(&at("lease-empty"), b""),
        locked(&at("lease-other"), &text),
        locked(&at("lease-Upper"), &text),
        locked(&at("lease-"), &text),
        locked(&at("queue-lease"), &text),
    ];
    assert_eq!(locks.entries(LEASE).unwrap(), [own], "and the twin has another's name");
    assert_eq!(locks.entries(WAITER).unwrap(), []);
    assert_eq!(locks.last_leased().len(), 1);
}

#[test]
fn files_without_number_hide_no_lease() {
    let folder = tempdir().unwrap();
    let here = locks(folder.path());
    let (entry, _held) = lease(&here, &["GPU-1"]);
    for number in 0..70_000 {
        File::create(folder.path().join(format!("lease-{number}"))).unwrap();
    }
    assert_eq!(here.entries(LEASE).unwrap(), [entry]);
}

#[test]
fn a_second_name_for_a_lease_does_not_hide_it() {
    let folder = tempdir().unwrap();
    let elsewhere = tempdir().unwrap();
    let locks = locks(folder.path());
    let (own, _held) = lease(&locks, &["GPU-1"]);
    let path = folder.path().join(format!("lease-{}", own.id));
    fs::hard_link(path, elsewhere.path().join("twin")).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap(), [own]);
}

#[test]
fn a_readers_lock_revives_nothing() {
    let folder = tempdir().unwrap();
    let locks = locks(folder.path());
    let (dead, held) = lease(&locks, &["GPU-1"]);
    let path = folder.path().join(format!("lease-{}", dead.id));
    let text = fs::read(&path).unwrap();
    drop(held);
    fs::write(&path, text).unwrap();
    let reader = File::open(&path).unwrap();
    lock(&reader, F_RDLCK);
    assert_eq!(locks.entries(LEASE).unwrap(), []);
}

/// Nothing but the lock of the one who made it counts: not what `flock` locks.
#[test]
fn a_lock_of_another_kind_revives_nothing() {
    let folder = tempdir().unwrap();
    let locks = locks(folder.path());
    let (dead, held) = lease(&locks, &["GPU-1"]);
    let path = folder.path().join(format!("lease-{}", dead.id));
    let text = fs::read(&path).unwrap();
    drop(held);
    fs::write(&path, text).unwrap();
    let file = File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap(), []);
}

/// By a lease of the kernel's kind (fcntl(2)) whoever opens a file waits for its owner to let go,
/// or is refused.
#[test]
fn a_file_that_its_owner_keeps_from_being_opened_keeps_nobody_from_looking() {
    const KEEP: &str = "\
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = [open(f'{sys.argv[1]}/{name}', 'x') for name in ('lease-kept', 'kept-own', 'table')]
for file in files: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('kept', flush=True)
sys.stdin.read()
";
    let folder = tempdir().unwrap();
    let locks = locks(folder.path());
    let (own, _held) = lease(&locks, &["GPU-1"]);
    let mut keeper = Command::new("python3");
    keeper.args(["-c", KEEP]).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keeper = keeper.spawn().unwrap();
    let mut said = [0; 5];
    keeper.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let mut open = File::options();
    let open = open.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let refused = open.open(folder.path().join("lease-kept")).unwrap_err().kind();
    let seen = locks.entries(LEASE);
    let table = locks.table(std::time::Duration::from_secs(10)).err().map(|error| error.kind());
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert_eq!(refused, std::io::ErrorKind::WouldBlock, "as the kernel has it");
    assert_eq!(seen.unwrap(), [own]);
    assert_eq!(table, Some(ErrorKind::Io), "at once");
}

/// Returns a folder that two users share, of root; `None`, and says so, for anybody else.
fn shared(test: &str) -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "needs root");
        return None;
    }
    let open = PermissionsExt::from_mode(0o1777);
    let folder = tempfile::Builder::new().permissions(open).tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    Some(folder)
}

#[test]
fn another_user_is_seen_and_sees_and_ends_nothing() {
    let Some(folder) = shared("another_user_is_seen_and_sees_and_ends_nothing") else { return };
    let locks = locks(folder.path());
    let (own, _held) = lease(&locks, &["GPU-1"]);
    drop(locks.table(std::time::Duration::ZERO).unwrap());
    fs::remove_file(folder.path().join("table")).unwrap();

    let stranger = Stranger::start(Some(NOBODY), "publish lease GPU-2", folder.path()).unwrap();
    let mut leases = locks.entries(LEASE).unwrap();
    leases.sort_by_key(|lease| lease.owner);
    let owners: Vec<_> = leases.iter().map(|l| (l.owner, l.devices[0].0.as_str())).collect();
    assert_eq!(owners, [(0, "GPU-1"), (NOBODY, "GPU-2")], "whose it is, is the file's owner");
    stranger.kill();

    for task in ["see GPU-1", "remove-all"] {
        // What the killed one left is its own to remove.
        let own_files = |name: &str| name.contains(own.id.as_str());
        for file in fs::read_dir(folder.path()).unwrap().flatten() {
            if !own_files(&file.file_name().to_string_lossy()) {
                fs::remove_file(file.path()).unwrap();
            }
        }
        assert!(Stranger::start(Some(NOBODY), task, folder.path()).is_some(), "{task}");
    }
    assert_eq!(locks.entries(LEASE).unwrap(), [own]);
}

#[test]
fn a_table_that_its_owner_closed_is_an_error_and_no_double_grant() {
    let test = "a_table_that_its_owner_closed_is_an_error_and_no_double_grant";
    let Some(folder) = shared(test) else { return };
    let _stranger = Stranger::start(Some(NOBODY), "close-the-table", folder.path()).unwrap();
    // Root may open it all the same; a third user may not.
    let third = Stranger::start(Some(NOBODY - 1), "table", folder.path());
    assert!(third.is_none());
    assert!(Stranger::start(Some(NOBODY - 1), "see GPU-1", folder.path()).is_some());
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let test = "a_full_disk_is_an_error_and_leaves_nothing";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "needs root");
    }
    for options in ["size=8k,mode=0700", "nr_inodes=2,mode=0700"] {
        let folder = tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path());
        if !mount.output().is_ok_and(|output| output.status.success()) {
            return skip(test, "no file system can be mounted here");
        }
        let mounted = Mounted(folder.path());
        fs::write(folder.path().join("filler"), vec![0; 8192]).unwrap();
        let locks = locks(folder.path());
        let error = locks.publish(LEASE, &crate::entry(&locks, &["GPU-1"])).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        let text = error.fault().text;
        assert!(text.starts_with("write lease '") && text.contains("No space left"), "{text}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        drop(mounted);
    }
}

/// A file system that is taken away again.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Lazily: a failed test may still have files open there.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
