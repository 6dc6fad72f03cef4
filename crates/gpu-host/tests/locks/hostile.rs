//! Hostile content of the directories.

use crate::other_process::{NOBODY, OtherProcess};
use crate::{ATTEMPT, LEASE, WAITER, entry, lease, locks, own, skip};
use gpu_core::{ErrorKind, LeaseStore};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_WRLCK, SEEK_SET, flock};
use rustix::fs::{CWD, FileType, Mode};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::{TempDir, tempdir};

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

/// Creates a file that is locked like a live entry.
pub(crate) fn locked(path: &Path, text: &[u8]) -> File {
    fs::write(path, text).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    lock(&file, F_WRLCK);
    file
}

#[test]
fn invalid_entries_are_skipped() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, _held) = lease(&locks, &["GPU-1"]);
    let own = own(dir.path());
    let at = |name: &str| own.join(name);
    let text = fs::read(at(&format!("lease-{}", entry.id))).unwrap();

    symlink(at(&format!("lease-{}", entry.id)), at("lease-link")).unwrap();
    symlink("/dev/zero", at("lease-zero")).unwrap();
    rustix::fs::mknodat(CWD, at("lease-fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(at("lease-directory")).unwrap();
    fs::hard_link(at(&format!("lease-{}", entry.id)), at("lease-twin")).unwrap();
    let huge = locked(&at("lease-huge"), &text);
    huge.set_len(1 << 30).unwrap();
    let writable = at("lease-writable");
    let named = String::from_utf8(text.clone()).unwrap().replace(entry.id.as_str(), "writable");
    let _locked = [
        locked(&at("lease-garbage"), b"\xff\x00{"),
        locked(&at("lease-empty"), b""),
        locked(&at("lease-other"), &text),
        locked(&at("lease-Upper"), &text),
        locked(&at("lease-"), &text),
        locked(&at("place-lease"), &text),
        locked(&writable, named.as_bytes()),
        // A file next to the directories of users is not an entry.
        locked(&dir.path().join(format!("lease-{}", entry.id)), &text),
    ];
    fs::set_permissions(&writable, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap(), [entry], "and the twin has another's name");
    assert_eq!(locks.entries(WAITER).unwrap(), []);
    assert_eq!(locks.last_leased().len(), 1);
    fs::set_permissions(&writable, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap().len(), 2, "its mode alone was at fault");
}

#[test]
fn unlimited_files_hide_no_lease_of_another_user() {
    let test = "unlimited_files_hide_no_lease_of_another_user";
    let Some(dir) = shared(test) else { return };
    let here = locks(dir.path());
    let (entry, _held) = lease(&here, &["GPU-1"]);
    let flood = dir.path().join(format!("u{NOBODY}"));
    fs::create_dir(&flood).unwrap();
    chown(&flood, Some(NOBODY), None).unwrap();
    for number in 0..70_000 {
        let file = flood.join(format!("lease-{number}"));
        File::create(&file).unwrap();
    }
    assert_eq!(here.entries(LEASE).unwrap(), [entry]);
}

/// Creates a directory of a user, and a live lease in it.
fn planted(dir: &Path, name: &str, owner: u32, id: &str, text: &[u8]) -> File {
    let user = dir.join(name);
    fs::create_dir(&user).unwrap();
    let path = user.join(format!("lease-{id}"));
    let file = locked(&path, text);
    for path in [&path, &user] {
        chown(path, Some(owner), None).unwrap();
    }
    file
}

#[test]
fn unlimited_directories_hide_no_lease_of_another_user() {
    let test = "unlimited_directories_hide_no_lease_of_another_user";
    let Some(dir) = shared(test) else { return };
    let here = locks(dir.path());
    let (entry, _held) = lease(&here, &["GPU-1"]);
    let text = fs::read(own(dir.path()).join(format!("lease-{}", entry.id))).unwrap();
    let text = String::from_utf8(text).unwrap();
    let plant = |name: &str, owner: u32, id: &str| {
        let text = text.replace(entry.id.as_str(), id);
        planted(dir.path(), name, owner, id, text.as_bytes())
    };
    // Names of the attacker's choice, before and after those of others, and also their names.
    let empty = |name: String, owner: u32| {
        let user = dir.path().join(name);
        fs::create_dir(&user).unwrap();
        chown(&user, Some(owner), None).unwrap();
    };
    for number in 0..254 {
        empty(format!("u-{number:03}"), 4_321);
        // It may stand for many users of a user namespace.
        empty(format!("u{NOBODY}-{number}"), NOBODY);
    }
    let _held = [
        plant("u-254", 4_321, "a"),
        plant("u0-first", 4_321, "b"),
        plant("u0-second", 4_321, "c"),
        plant("u4321", 4_321, "d"),
        plant("u4322-squatted", 4_322, "e"),
        plant("u65534-y", NOBODY, "f"),
        plant("u65534-z1", NOBODY, "g"),
        plant("u65534-z2", NOBODY, "h"),
    ];
    let entries = here.entries(LEASE).unwrap();
    let mut ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    ids.sort_unstable();
    let mut expected = vec![entry.id.as_str(), "a", "b", "e", "f", "g", "h"];
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

/// With `fs.protected_hardlinks` off, any user may create a second link to any file.
#[test]
fn hard_link_to_lease_does_not_hide_it() {
    let dir = tempdir().unwrap();
    let elsewhere = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, _held) = lease(&locks, &["GPU-1"]);
    let path = own(dir.path()).join(format!("lease-{}", entry.id));
    fs::hard_link(path, elsewhere.path().join("twin")).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap(), [entry]);
}

#[test]
fn read_lock_does_not_revive_dead_lease() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (dead, held) = lease(&locks, &["GPU-1"]);
    let path = own(dir.path()).join(format!("lease-{}", dead.id));
    let text = fs::read(&path).unwrap();
    drop(held);
    fs::write(&path, text).unwrap();
    let reader = File::open(&path).unwrap();
    lock(&reader, F_RDLCK);
    assert_eq!(locks.entries(LEASE).unwrap(), []);
}

/// Only the lock of its maker counts, and no lock by `flock`.
#[test]
fn flock_does_not_revive_dead_lease() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (dead, held) = lease(&locks, &["GPU-1"]);
    let path = own(dir.path()).join(format!("lease-{}", dead.id));
    let text = fs::read(&path).unwrap();
    drop(held);
    fs::write(&path, text).unwrap();
    let file = File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(locks.entries(LEASE).unwrap(), []);
}

/// With a file lease (fcntl(2)), a process that opens a file waits for its owner to release it, or
/// is refused.
#[test]
fn kernel_file_lease_does_not_block_readers() {
    const KEEP: &str = "\
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = [open(f'{sys.argv[1]}/{name}', 'x') for name in ('lease-kept', 'kept-own', 'try-kept')]
for file in files: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('kept', flush=True)
sys.stdin.read()
";
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, _held) = lease(&locks, &["GPU-1"]);
    let own = own(dir.path());
    let mut keeper = Command::new("python3");
    keeper.args(["-c", KEEP]).arg(&own).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keeper = keeper.spawn().unwrap();
    let mut said = [0; 5];
    keeper.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let mut open = File::options();
    let open = open.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let refused = open.open(own.join("lease-kept")).unwrap_err().kind();
    let seen = [ATTEMPT, LEASE].map(|kind| locks.entries(kind));
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert_eq!(refused, std::io::ErrorKind::WouldBlock, "as the kernel has it");
    assert_eq!(seen.map(|seen| seen.unwrap()), [vec![], vec![entry]]);
}

/// Returns a directory of root that two users share; `None`, and prints so, for any other caller.
pub(crate) fn shared(test: &str) -> Option<TempDir> {
    shared_in(&std::env::temp_dir(), test)
}

/// As [`shared`], below a directory.
pub(crate) fn shared_in(parent: &Path, test: &str) -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "needs root");
        return None;
    }
    let open = PermissionsExt::from_mode(0o1777);
    let dir = tempfile::Builder::new().permissions(open).tempdir_in(parent).unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    Some(dir)
}

/// Attacks everything in the directories of others, and returns what succeeded.
pub(crate) fn spoil_all(dir: &Path) -> Vec<String> {
    let caller = rustix::process::geteuid().as_raw();
    let list = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).unwrap().flatten().map(|file| file.path()).collect()
    };
    let mut worked = Vec::new();
    let mut note = |what: &str, path: &Path, done: bool| {
        if done {
            worked.push(format!("{what} {}", path.display()));
        }
    };
    for user in list(dir) {
        use std::os::unix::fs::MetadataExt;
        if fs::metadata(&user).unwrap().uid() == caller {
            continue;
        }
        for file in list(&user) {
            note("open", &file, File::options().write(true).open(&file).is_ok());
            note("remove", &file, fs::remove_file(&file).is_ok());
            note("rename", &file, fs::rename(&file, dir.join("away")).is_ok());
            let times = File::open(&file).and_then(|file| file.set_modified(std::time::UNIX_EPOCH));
            note("renew", &file, times.is_ok());
        }
        note("create in", &user, File::create(user.join("lease-evil")).is_ok());
        note("link into", &user, fs::hard_link("/bin/sh", user.join("lease-evil")).is_ok());
        note("rename", &user, fs::rename(&user, dir.join("u-away")).is_ok());
        note("remove", &user, fs::remove_dir_all(&user).is_ok());
        note("open up", &user, fs::set_permissions(&user, Permissions::from_mode(0o777)).is_ok());
    }
    worked
}

#[test]
fn other_users_see_entries_but_cannot_end_them() {
    let Some(dir) = shared("other_users_see_entries_but_cannot_end_them") else { return };
    let locks = locks(dir.path());
    let (own, _held) = lease(&locks, &["GPU-1"]);
    let place = entry(&locks, &[]);
    let _place = locks.publish(WAITER, &place).unwrap();

    let other = OtherProcess::start(Some(NOBODY), "publish lease GPU-2", dir.path()).unwrap();
    let mut leases = locks.entries(LEASE).unwrap();
    leases.sort_by_key(|lease| lease.owner);
    let owners: Vec<_> = leases.iter().map(|l| (l.owner, l.devices[0].0.as_str())).collect();
    assert_eq!(
        owners,
        [(0, "GPU-1"), (NOBODY, "GPU-2")],
        "the owner is the owner of the directory"
    );
    other.kill();
    for task in ["see GPU-1", "spoil-all"] {
        assert!(OtherProcess::start(Some(NOBODY), task, dir.path()).is_some(), "{task}");
    }
    assert_eq!(locks.entries(LEASE).unwrap(), [own]);
    assert_eq!(locks.entries(WAITER).unwrap(), [place]);
}

/// In a directory that all users shared, a file that others may write, linked under the name of an
/// entry, became an entry of its owner (`protected_hardlinks` allows that link).
#[test]
fn entry_of_another_user_cannot_be_forged() {
    const FORGE: &str = "\
import fcntl, json, os, struct, sys
dir, text = sys.argv[1], json.loads(sys.argv[2])
lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)
kept, made = [], 0
def forge(name, id, source):
    global made
    try:
        os.link(source, name)
    except OSError: return
    made += 1
    file = open(name, 'r+b')
    file.write(json.dumps(dict(text, id=id)).encode()); file.truncate()
    try: fcntl.fcntl(file, 37, lock)
    except OSError: pass
    kept.append(file)
for source in (f'{dir}/open', f'{dir}/safe-gpu'):
    for place in (dir, f'{dir}/u0', f'{dir}/u{os.getuid()}'):
        for kind in ('lease-', 'try-', 'kept-', 'past-', '.gpuws-lease-'):
            forge(f'{place}/{kind}evil', 'evil', source)
for name in ('u0-1', 'u1', 'u'):
    try: os.symlink(f'{dir}/u0', f'{dir}/{name}')
    except OSError: pass
print(made, flush=True)
sys.stdin.read()
";
    let Some(dir) = shared("entry_of_another_user_cannot_be_forged") else { return };
    let locks = locks(dir.path());
    let (own_lease, _held) = lease(&locks, &["GPU-1"]);
    for name in ["open", "safe-gpu"] {
        fs::write(dir.path().join(name), "").unwrap();
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o666)).unwrap();
    }
    // The forger has a directory too.
    OtherProcess::start(Some(NOBODY), "publish lease GPU-2", dir.path()).unwrap().kill();
    let text = fs::read_to_string(own(dir.path()).join(format!("lease-{}", own_lease.id)));
    let mut forger = Command::new("python3");
    forger.args(["-c", FORGE]).arg(dir.path()).arg(text.unwrap());
    forger.stdin(Stdio::piped()).stdout(Stdio::piped());
    std::os::unix::process::CommandExt::uid(&mut forger, NOBODY);
    let mut forger = forger.spawn().unwrap();
    let mut made = [0; 2];
    forger.stdout.as_mut().unwrap().read_exact(&mut made).unwrap();
    let seen = [LEASE, ATTEMPT, WAITER].map(|kind| locks.entries(kind).unwrap());
    let last = locks.last_leased();
    forger.kill().unwrap();
    forger.wait().unwrap();
    assert!(made[0].is_ascii_digit() && made != *b"0\n", "the kernel lets it link: {made:?}");
    assert_eq!(seen, [vec![own_lease], vec![], vec![]]);
    assert!(last.keys().all(|device| device.0 == "GPU-1" || device.0 == "GPU-2"), "{last:?}");
}

#[test]
fn group_or_world_writable_user_dir_is_ignored() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, _held) = lease(&locks, &["GPU-1"]);
    let own = own(dir.path());
    for (mode, count) in [(0o775, 0), (0o757, 0), (0o755, 1)] {
        fs::set_permissions(&own, Permissions::from_mode(mode)).unwrap();
        assert_eq!(locks.entries(LEASE).unwrap().len(), count, "{mode:o}");
    }
    // It is created again next to the untrusted one.
    fs::set_permissions(&own, Permissions::from_mode(0o777)).unwrap();
    let (second, _second) = lease(&locks, &["GPU-2"]);
    assert_eq!(locks.entries(LEASE).unwrap(), [second]);
    fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
    let (_, _third) = lease(&locks, &["GPU-3"]);
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(locks.entries(LEASE).unwrap().contains(&entry));
}

/// A user gets further directories while another user has the usual name: no limit on them may hide
/// one.
#[test]
fn leases_in_all_dirs_of_user_are_visible() {
    let dir = tempdir().unwrap();
    let locks = locks(dir.path());
    let (entry, _held) = lease(&locks, &["GPU-1"]);
    fs::rename(own(dir.path()), dir.path().join("u0-z")).unwrap();
    for number in 0..20 {
        fs::create_dir(dir.path().join(format!("u0-{number}"))).unwrap();
    }
    assert_eq!(locks.entries(LEASE).unwrap(), [entry]);
}

#[test]
fn squatted_user_dir_name_does_not_block_user() {
    let test = "squatted_user_dir_name_does_not_block_user";
    let Some(dir) = shared(test) else { return };
    let usual = own(dir.path());
    let spoils: [fn(&Path); 4] = [
        |path| fs::write(path, "").unwrap(),
        |path| symlink("/tmp", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| {
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
        },
    ];
    for spoil in spoils {
        spoil(&usual);
        rustix::fs::chownat(
            CWD,
            &usual,
            Some(rustix::fs::Uid::from_raw(NOBODY)),
            None,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
        let locks = locks(dir.path());
        let (entry, held) = lease(&locks, &["GPU-1"]);
        let (other, _held) = lease(&locks, &["GPU-2"]);
        assert_eq!(locks.entries(LEASE).unwrap().len(), 2);
        assert!(OtherProcess::start(Some(NOBODY - 1), "see GPU-2", dir.path()).is_some());
        drop(held);
        assert_eq!(locks.entries(LEASE).unwrap(), [other]);
        assert_ne!(entry.id, locks.new_id().unwrap());
        fs::remove_file(&usual).or_else(|_| fs::remove_dir(&usual)).unwrap();
    }
}

/// Another user took the usual name before the user's first claims, which arrive all at once, like
/// the jobs of an array, and has created so many directories that each claim takes long to find one
/// of its user: each creates a directory, and all must see each other.
#[test]
fn concurrent_first_claims_see_each_other_despite_squatted_dir() {
    const AT_ONCE: usize = 12;
    let test = "concurrent_first_claims_see_each_other_despite_squatted_dir";
    for _ in 0..3 {
        let Some(dir) = shared(test) else { return };
        let others = (0..500).map(|number| dir.path().join(format!("u{NOBODY}-{number}")));
        for taken in others.chain([own(dir.path())]) {
            fs::create_dir(&taken).unwrap();
            chown(&taken, Some(NOBODY), None).unwrap();
        }
        let barrier = std::sync::Barrier::new(AT_ONCE);
        std::thread::scope(|scope| {
            let claim = || {
                let locks = locks(dir.path());
                barrier.wait();
                let leased = lease(&locks, &["GPU-1"]);
                barrier.wait();
                let leases = locks.entries(LEASE).unwrap();
                barrier.wait();
                (leased, leases)
            };
            let claims: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(claim)).collect();
            let seen = claims.into_iter().map(|claim| claim.join().unwrap().1.len());
            assert_eq!(seen.collect::<Vec<_>>(), [AT_ONCE; AT_ONCE]);
        });
    }
}

#[test]
fn full_disk_is_an_error_without_leftovers() {
    let test = "full_disk_is_an_error_without_leftovers";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "needs root");
    }
    for options in ["size=8k,mode=0700", "nr_inodes=3,mode=0700"] {
        let dir = tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path());
        if !mount.output().is_ok_and(|output| output.status.success()) {
            return skip(test, "no file system can be mounted here");
        }
        let mounted = Mounted(dir.path());
        fs::write(dir.path().join("filler"), vec![0; 8192]).unwrap();
        let locks = locks(dir.path());
        let error = locks.publish(LEASE, &crate::entry(&locks, &["GPU-1"])).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        let text = error.fault().text;
        assert!(text.starts_with("write lease '") && text.contains("No space left"), "{text}");
        let left: Vec<_> = fs::read_dir(own(dir.path())).unwrap().flatten().collect();
        assert_eq!(left.len(), 0, "{left:?}");
        drop(mounted);
    }
}

/// A file system that is unmounted afterwards.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Lazily: a failed test may still have files open there.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
