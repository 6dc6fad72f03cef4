//! The steps of an attacker.

use super::attack::Attacker;
use super::forge;
use gpu_core::{EntryKind, LeaseStore};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_WRLCK, flock};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, Timestamps, Uid, XattrFlags,
};
use rustix::time::{ClockId, Timespec};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A description of the step, and whether the kernel permitted it.
pub(crate) type Outcome = (String, io::Result<()>);

/// The number of leases in a crowd: few enough that readers still open other files of the
/// directory.
const CROWD: u64 = 60;

/// A step.
pub(crate) type Step = fn(&mut Attacker) -> Outcome;

/// The kinds of steps, with their weights.
pub(crate) const STEPS: &[(&str, u64, Step)] = &[
    ("spy", 60, spy),
    ("link", 80, link),
    ("plant", 40, plant),
    ("symlink", 60, symbolic_link),
    ("make-directory", 40, make_dir),
    ("remove-directory", 40, remove_dir),
    ("rename-directory", 50, rename_dir),
    ("publish", 90, publish),
    ("confirm", 40, confirm),
    ("beat", 30, beat),
    ("release", 60, release),
    ("forge", 90, forge_file),
    ("lock", 60, lock_file),
    ("fifo", 30, fifo),
    ("mode", 40, mode),
    ("deny", 40, deny),
    ("owner", 20, owner),
    ("text", 50, text),
    ("times", 40, times),
    ("spoil", 60, spoil),
    ("socket", 10, socket),
    ("storm", 4, storm),
    ("crowd", 3, crowd),
    ("clear", 4, clear),
    ("keep", 1, keep_closed),
];

/// Reads an entry of an honest user.
fn spy(attacker: &mut Attacker) -> Outcome {
    let (shared, prefix) = attacker.shared();
    let victim = *attacker.chance.of(&attacker.victims);
    let dir = shared.join(format!("{prefix}u{victim}"));
    let path = attacker.file_in(&dir);
    let read = open(&path, OFlags::RDONLY).and_then(|file| {
        let mut text = Vec::new();
        file.take(64 << 10).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    });
    let result = read.map(|entry| attacker.remember(entry));
    (show(&path), result)
}

/// Links a file of root, an honest user or its own under another name.
fn link(attacker: &mut Attacker) -> Outcome {
    let source = match attacker.chance.below(6) {
        0 => attacker.layout.canaries()[0].clone(),
        1 => attacker.layout.canaries()[1].clone(),
        2 => attacker.chance.of(&attacker.layout.safe_gpu()).clone(),
        3 | 4 => {
            let dir = attacker.victims_dir();
            attacker.file_in(&dir)
        }
        _ => attacker.any_file(),
    };
    // Not even its creator can remove a link to root's file from a sticky directory, so all of its
    // own names would soon be taken.
    let name = if attacker.chance.one_in(8) { attacker.victims_dir() } else { attacker.any_path() };
    (format!("{} to {}", show(&source), show(&name)), fs::hard_link(&source, &name))
}

/// Links root's world-writable file under the name of an entry, writes an honest entry into it and
/// locks it. If names in that directory counted, this would be an entry of root.
fn plant(attacker: &mut Attacker) -> Outcome {
    let source = attacker.chance.of(&attacker.layout.safe_gpu()).clone();
    let id = format!("p{}", attacker.chance.below(1000));
    let kind = *attacker.chance.of(&["lease-", "lease-", "try-"]);
    let dir = match attacker.chance.below(3) {
        0 => {
            let (shared, prefix) = attacker.shared();
            shared.join(format!("{prefix}{kind}{id}"))
        }
        1 => attacker.victims_dir().join(format!("{kind}{id}")),
        _ => attacker.own_dir().join(format!("{kind}{id}")),
    };
    let result = (|| {
        fs::hard_link(&source, &dir)?;
        let mut file = open_to_write(attacker, &dir)?;
        let text = forge::copy(attacker, &id).ok_or(io::ErrorKind::NotFound)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        // If this fails, the file is locked through another of its names.
        let _ = lock(&file, F_WRLCK);
        attacker.keep(file);
        Ok(())
    })();
    (show(&dir), result)
}

fn symbolic_link(attacker: &mut Attacker) -> Outcome {
    let target = match attacker.chance.below(8) {
        0..=3 => attacker.chance.of(&attacker.layout.canaries()).clone(),
        4 => attacker.victims_dir(),
        5 => PathBuf::from("/dev/zero"),
        6 => PathBuf::from("."),
        _ => attacker.any_file(),
    };
    let name = if attacker.chance.one_in(2) { attacker.any_dir() } else { attacker.any_path() };
    (format!("{} to {}", show(&name), show(&target)), symlink(&target, &name))
}

fn make_dir(attacker: &mut Attacker) -> Outcome {
    let dir = attacker.any_dir();
    let bits = *attacker.chance.of(&[0o755, 0o755, 0o700, 0o777, 0o1777, 0]);
    (show(&dir), fs::create_dir(&dir).and_then(|()| set_mode(&dir, bits)))
}

fn remove_dir(attacker: &mut Attacker) -> Outcome {
    let dir = if attacker.chance.one_in(4) { attacker.own_dir() } else { attacker.victims_dir() };
    (show(&dir), fs::remove_file(&dir).or_else(|_| fs::remove_dir_all(&dir)))
}

fn rename_dir(attacker: &mut Attacker) -> Outcome {
    let from = match attacker.chance.below(4) {
        0 => attacker.layout.canaries()[2].clone(),
        1 => attacker.victims_dir(),
        _ => attacker.own_dir(),
    };
    let to = attacker.any_dir();
    let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
    let flags = *attacker.chance.of(&flags);
    let result = rustix::fs::renameat_with(CWD, &from, CWD, &to, flags);
    (format!("{} to {}", show(&from), show(&to)), result.map_err(io::Error::from))
}

/// Publishes an entry through the library: well-formed, with every field forged.
fn publish(attacker: &mut Attacker) -> Outcome {
    let kinds = [EntryKind::Attempt, EntryKind::Attempt, EntryKind::Lease, EntryKind::Waiter];
    let kind = *attacker.chance.of(&kinds);
    let entry = forge::entry(attacker, kind);
    let result = attacker.locks.publish(kind, &entry);
    let result = result.map_err(|error| io::Error::other(error.fault().text));
    let words = format!("{kind:?} {} of ticket {}", entry.id, entry.ticket);
    (words, result.map(|held| attacker.hold(held)))
}

/// Confirms an attempt without checking other attempts.
fn confirm(attacker: &mut Attacker) -> Outcome {
    act(attacker, |held| held.confirm().map(|()| true))
}

/// Renews its entry without acting.
fn beat(attacker: &mut Attacker) -> Outcome {
    act(attacker, |held| held.renew())
}

fn act(
    attacker: &mut Attacker,
    act: impl Fn(&mut Box<dyn gpu_core::LeaseGuard>) -> gpu_core::Result<bool>,
) -> Outcome {
    if attacker.held.is_empty() {
        return (String::new(), Err(io::ErrorKind::NotFound.into()));
    }
    let which = attacker.chance.index(attacker.held.len());
    let result = act(&mut attacker.held[which]);
    (String::new(), result.map(|_| ()).map_err(|error| io::Error::other(error.fault().text)))
}

fn release(attacker: &mut Attacker) -> Outcome {
    let is_left = attacker.chance.one_in(3);
    if !attacker.held.is_empty() && attacker.chance.one_in(2) {
        let which = attacker.chance.index(attacker.held.len());
        let held = attacker.held.swap_remove(which);
        if is_left {
            held.leave();
        }
        return ("an entry".to_owned(), Ok(()));
    }
    if attacker.files.is_empty() {
        return (String::new(), Err(io::ErrorKind::NotFound.into()));
    }
    let which = attacker.chance.index(attacker.files.len());
    drop(attacker.files.swap_remove(which));
    ("a file".to_owned(), Ok(()))
}

/// Creates a file that looks like an entry in its directory, and sometimes locks it.
fn forge_file(attacker: &mut Attacker) -> Outcome {
    let dir = attacker.make_own_dir();
    let id = attacker.id();
    let kind = *attacker.chance.of(&["lease-", "try-", "kept-", "past-", "place-"]);
    let (how, text) = forge::text(attacker, &id);
    let name = match kind {
        "place-" => format!("queue/{kind}{:016x}-{:016x}-{id}", attacker.chance.below(1 << 60), 7),
        _ => format!("{kind}{id}"),
    };
    let path = dir.join(&name);
    let result = (|| {
        let new = dir.join(format!("new-forged-{}", std::process::id()));
        // A file from another step may be in the way.
        let _ = fs::remove_file(&new);
        let mut file = File::options().read(true).write(true).create_new(true).open(&new)?;
        file.write_all(&text)?;
        if attacker.chance.one_in(8) {
            file.set_len(1 << *attacker.chance.of(&[17, 30, 40]))?;
        }
        match attacker.chance.below(6) {
            0 => {}
            1 => set_lock(&file, F_WRLCK, false)?,
            2 => rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?,
            _ => lock(&file, F_WRLCK)?,
        }
        set_mode(&new, *attacker.chance.of(&[0o644, 0o644, 0o644, 0o666, 0o600, 0o4755]))?;
        fs::rename(&new, &path)?;
        attacker.keep(file);
        Ok(())
    })();
    (format!("{how} {}", show(&path)), result)
}

/// Locks any file that it may open.
fn lock_file(attacker: &mut Attacker) -> Outcome {
    let path = attacker.any_file();
    let (access, kind) = match attacker.chance.below(3) {
        0 => (OFlags::RDONLY, F_RDLCK),
        1 => (OFlags::RDWR, F_RDLCK),
        _ => (OFlags::RDWR, F_WRLCK),
    };
    let result = (|| {
        let file = open(&path, access)?;
        match attacker.chance.below(4) {
            0 => set_lock(&file, kind, false)?,
            1 => rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?,
            _ => lock(&file, kind)?,
        }
        attacker.keep(file);
        Ok(())
    })();
    (show(&path), result)
}

/// Creates a FIFO, with or without a writer, in place of a file or directory that others open.
fn fifo(attacker: &mut Attacker) -> Outcome {
    let path = if attacker.chance.one_in(4) { attacker.any_dir() } else { attacker.any_path() };
    let result = (|| {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0)?;
        if attacker.chance.one_in(2) {
            let mut file = open_to_write(attacker, &path)?;
            if attacker.chance.one_in(2) {
                file.write_all(b"{}")?;
            }
            attacker.keep(file);
        }
        Ok(())
    })();
    (show(&path), result)
}

fn mode(attacker: &mut Attacker) -> Outcome {
    let path = match attacker.chance.below(6) {
        0 => attacker.chance.of(&attacker.layout.canaries()).clone(),
        1 => attacker.victims_dir(),
        2 => attacker.own_dir(),
        _ => attacker.any_file(),
    };
    let bits = *attacker.chance.of(&[0o644, 0o755, 0o666, 0o777, 0o600, 0]);
    (format!("{bits:o} {}", show(&path)), set_mode(&path, bits))
}

/// Denies one honest user access to a file with an access control list (acl(5),
/// linux/posix_acl_xattr.h) while its mode permits it, or removes the denial.
fn deny(attacker: &mut Attacker) -> Outcome {
    const NAME: &str = "system.posix_acl_access";
    let path = if attacker.chance.one_in(3) { attacker.any_dir() } else { attacker.any_file() };
    let victim = *attacker.chance.of(&attacker.victims);
    if attacker.chance.one_in(3) {
        let result = rustix::fs::lremovexattr(&path, NAME).map_err(io::Error::from);
        return (format!("nobody {}", show(&path)), result);
    }
    let mut list = 2_u32.to_le_bytes().to_vec();
    // The owner, the victim, the group, the mask, and others.
    let users = [u32::MAX, victim, u32::MAX, u32::MAX, u32::MAX];
    for ((tag, permissions), user) in
        [(1, 7), (2, 0), (4, 5), (16, 5), (32, 5)].into_iter().zip(users)
    {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].concat());
        list.extend(user.to_le_bytes());
    }
    let result = rustix::fs::lsetxattr(&path, NAME, &list, XattrFlags::empty());
    (format!("{victim} {}", show(&path)), result.map_err(io::Error::from))
}

/// Changes the owner of a file, to or from another user.
fn owner(attacker: &mut Attacker) -> Outcome {
    let path = if attacker.chance.one_in(2) { attacker.any_file() } else { attacker.any_dir() };
    let to = *attacker.chance.of(&[attacker.victims[0], attacker.victims[1], attacker.uid]);
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let result = rustix::fs::chownat(CWD, &path, Some(Uid::from_raw(to)), None, flags);
    (format!("{to} {}", show(&path)), result.map_err(io::Error::from))
}

/// Truncates, extends or overwrites a file, while others read it.
fn text(attacker: &mut Attacker) -> Outcome {
    let path = attacker.any_file();
    let id = attacker.id();
    let (how, text) = forge::text(attacker, &id);
    let result = (|| {
        let mut file = open_to_write(attacker, &path)?;
        match attacker.chance.below(3) {
            0 => file.set_len(*attacker.chance.of(&[0, 1, 100, 1 << 16, 1 << 40])),
            1 => file.write_all(&text),
            _ => file.set_len(0).and_then(|()| file.write_all(&text)),
        }
    })();
    (format!("{how} {}", show(&path)), result)
}

fn times(attacker: &mut Attacker) -> Outcome {
    let path = attacker.any_file();
    let now = rustix::time::clock_gettime(ClockId::Monotonic).tv_sec;
    let seconds = *attacker.chance.of(&[0, -1, now, now + 3600, now - 30, 1 << 33]);
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let result = (|| {
        let file = open(&path, OFlags::RDONLY)?;
        if attacker.is_canary(&file) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::futimens(&file, &times)?)
    })();
    (format!("{seconds} {}", show(&path)), result)
}

/// Removes or moves an honest user's file, or replaces it.
fn spoil(attacker: &mut Attacker) -> Outcome {
    let dir = attacker.victims_dir();
    let path = attacker.file_in(&dir);
    let (shared, prefix) = attacker.shared();
    let moved = shared.join(format!("{prefix}spoilt"));
    let (words, result) = match attacker.chance.below(6) {
        0 => ("unlink", fs::remove_file(&path)),
        1 => ("rename", fs::rename(&path, &moved)),
        2 => ("replace", File::create_new(&moved).and_then(|_| fs::rename(&moved, &path))),
        3 => ("take", {
            let own = attacker.own_dir().join(path.file_name().unwrap_or_default());
            fs::rename(&path, own)
        }),
        4 => ("truncate", open_to_write(attacker, &path).and_then(|file| file.set_len(0))),
        _ => ("move the directory", fs::rename(&dir, &moved)),
    };
    (format!("{words} {}", show(&path)), result)
}

fn socket(attacker: &mut Attacker) -> Outcome {
    let path = if attacker.chance.one_in(4) { attacker.any_dir() } else { attacker.any_path() };
    (show(&path), UnixListener::bind(&path).map(|socket| attacker.keep(socket)))
}

/// Creates many names at once, and removes half of them.
fn storm(attacker: &mut Attacker) -> Outcome {
    let (shared, prefix) = attacker.shared();
    let is_dirs = attacker.chance.one_in(2);
    let dir = attacker.make_own_dir();
    let name = |number: u64, uid| {
        if is_dirs {
            shared.join(format!("{prefix}u{uid}-s{number}"))
        } else {
            dir.join(format!("lease-s{number}"))
        }
    };
    for number in 0..48 {
        let name = name(number, attacker.uid);
        // Each of them may remain from the previous storm.
        let _ = if is_dirs { fs::create_dir(&name) } else { File::create_new(&name).map(|_| ()) };
    }
    for number in 0..48 {
        let name = name(number, attacker.uid);
        if attacker.chance.one_in(2) {
            let _ = fs::remove_file(&name).or_else(|_| fs::remove_dir_all(&name));
        }
    }
    (show(&name(0, attacker.uid)), Ok(()))
}

/// Publishes many of the largest leases at once, in place of the previous ones.
fn crowd(attacker: &mut Attacker) -> Outcome {
    let dir = attacker.make_own_dir();
    attacker.crowd.clear();
    let kind = *attacker.chance.of(&["lease-", "lease-", "try-"]);
    let result = (0..CROWD).try_for_each(|number| {
        let path = dir.join(format!("{kind}{number:012x}"));
        // A file from an earlier step may exist.
        let _ = fs::remove_file(&path);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        set_mode(&path, 0o644)?;
        file.write_all(&forge::large(attacker, &format!("{number:012x}"), number))?;
        lock(&file, F_WRLCK)?;
        attacker.crowd.push(file);
        Ok(())
    });
    (format!("{kind} in {}", show(&dir)), result)
}

/// Removes its own directory while others read it.
fn clear(attacker: &mut Attacker) -> Outcome {
    let dir = attacker.own_dir();
    let result = if attacker.chance.one_in(3) {
        let away = dir.with_file_name("away");
        let moved = fs::rename(&dir, &away);
        let _ = fs::remove_dir_all(&away);
        moved
    } else {
        fs::remove_dir_all(&dir)
    };
    (show(&dir), result)
}

/// Keeps files in its directory from being opened, with a kernel lease (fcntl(2)).
fn keep_closed(attacker: &mut Attacker) -> Outcome {
    const KEEP: &str = "\
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
kept = []
for name in sys.argv[1:]:
    try:
        file = open(name, 'x')
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        kept.append(file)
    except OSError: pass
sys.stdin.read()
";
    let dir = attacker.make_own_dir();
    let names: Vec<PathBuf> = (0..6).map(|_| dir.join(attacker.name())).collect();
    if let Some(mut keeper) = attacker.keeper.take() {
        // It has one keeper at a time; this one may have ended.
        let _ = keeper.kill();
        let _ = keeper.wait();
    }
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", KEEP]).args(&names).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    (show(&dir), command.spawn().map(|keeper| attacker.keeper = Some(keeper)))
}

/// Opens a file without blocking.
fn open(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Opens a file for writing, except root's files that must not change. The attacker could write to
/// one of them, but the test must detect honest programs that do so through its links.
fn open_to_write(attacker: &Attacker, path: &Path) -> io::Result<File> {
    let file = open(path, OFlags::RDWR)?;
    if attacker.is_canary(&file) { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(file) }
}

/// Locks a file in the same way as an entry.
fn lock(file: &File, kind: i32) -> io::Result<()> {
    set_lock(file, kind, true)
}

fn set_lock(file: &File, kind: i32, is_of_file: bool) -> io::Result<()> {
    let kind = i16::try_from(kind).unwrap_or_default();
    let all = flock { l_type: kind, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    let how = if is_of_file { FcntlArg::F_OFD_SETLK(&all) } else { FcntlArg::F_SETLK(&all) };
    fcntl(file, how).map(|_| ()).map_err(io::Error::from)
}

/// Sets the mode of a file.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Returns the last two components of a path.
fn show(path: &Path) -> String {
    let name = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    format!("{}/{}", name(path.parent()), name(Some(path)))
}
