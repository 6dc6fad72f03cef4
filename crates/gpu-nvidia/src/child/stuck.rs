//! A child of an earlier look that hangs in the driver and cannot be ended.
//!
//! It says so by its name, since that is the one thing that it can still change and that others
//! can see. Any user can give a process this name, so the name alone stops nobody: the process
//! must belong, by its real user, to whoever looks or to root (a program with the set-user-ID bit
//! keeps its caller as the real user), and must neither sleep nor be stopped, twice: a process
//! that hangs in a driver is in an uninterruptible wait or runs inside of the kernel, and
//! one that is only just ending is gone at the second look.

use rustix::event::{Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::mem::MaybeUninit;
use std::path::Path;

/// The name of a child that hangs; Linux keeps 15 characters of a name.
pub(crate) const NAME: &str = "gpuws-stuck";

/// Room for some hundred directory entries per `getdents` call.
const ENTRIES: usize = 32 << 10;

/// How long a child that can be ended is still seen after it was told to, at most.
const ENDING: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Clock ticks per second in `/proc/PID/stat`: 100 on every architecture that NVIDIA serves
/// (`USER_HZ` of the kernel's `asm-generic/param.h`).
const TICKS_PER_SECOND: u64 = 100;

/// A process that hangs in the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) pid: u32,
    /// When it started, in clock ticks since boot.
    start: u64,
    /// How long it has been there, in seconds, where `/proc` tells.
    pub(crate) age: Option<u64>,
}

impl Stuck {
    /// Tells whether it is still there.
    pub(crate) fn remains(&self, proc: &Path) -> bool {
        let root = open(rustix::fs::CWD, proc, OFlags::DIRECTORY);
        root.is_ok_and(|root| look(root.as_fd(), self.pid).is_some_and(|now| now.same(self)))
    }

    fn same(&self, other: &Self) -> bool {
        (self.pid, self.start) == (other.pid, other.start)
    }
}

/// Returns a child of an earlier look that hangs; none where `/proc` cannot be read.
///
/// Costs three system calls per process that is not the kernel's own, and 100 ms where one has
/// the name.
pub(crate) fn find(proc: &Path) -> Option<Stuck> {
    let root = open(rustix::fs::CWD, proc, OFlags::DIRECTORY).ok()?;
    let kernel = kernel_threads(root.as_fd(), proc);
    let named = named(root.as_fd(), &kernel).ok()?;
    let suspects: Vec<_> = named.into_iter().filter_map(|pid| look(root.as_fd(), pid)).collect();
    if suspects.is_empty() {
        return None;
    }
    // An interrupted wait is a shorter one, and a suspect that is ending delays one look more.
    let _ = poll(&mut [], Some(&ENDING));
    suspects
        .into_iter()
        .find(|before| look(root.as_fd(), before.pid).is_some_and(|after| after.same(before)))
}

/// The flag of a thread of the kernel in `/proc/PID/stat` (`PF_KTHREAD` of Linux's
/// `include/linux/sched.h`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Returns the kernel's own threads in order, which are most processes of a large machine: the
/// children of its process 2. None where `/proc` does not tell; in another PID namespace than the
/// first, whoever has this number is no thread of the kernel.
fn kernel_threads(root: BorrowedFd<'_>, proc: &Path) -> Vec<u32> {
    let flags = read(root, "2/stat").and_then(|stat| field(&stat, 6));
    if flags.is_none_or(|flags| flags & KERNEL_THREAD == 0) {
        return Vec::new();
    }
    let children = std::fs::read_to_string(proc.join("2/task/2/children")).unwrap_or_default();
    let mut threads: Vec<u32> =
        children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    threads.sort_unstable();
    threads
}

/// Returns the processes that have the name, without looking at these.
fn named(root: BorrowedFd<'_>, without: &[u32]) -> rustix::io::Result<Vec<u32>> {
    let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
    let mut entries = RawDir::new(root, &mut buffer);
    let mut found = Vec::new();
    let mut path = Vec::with_capacity(64);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let digits = entry.file_name().to_bytes();
        let Some(pid) = number(digits) else { continue };
        if without.binary_search(&pid).is_ok() {
            continue;
        }
        path.clear();
        path.extend_from_slice(digits);
        path.extend_from_slice(b"/comm");
        if has_name(root, &path) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Tells whether a `comm` says the name. One that cannot be read is of a process that has ended.
fn has_name(root: BorrowedFd<'_>, path: &[u8]) -> bool {
    let mut text = [0; NAME.len() + 2];
    let count = open(root, path, OFlags::empty()).and_then(|file| read_once(&file, &mut text));
    count.is_ok_and(|count| text[..count].strip_suffix(b"\n") == Some(NAME.as_bytes()))
}

/// Looks at a process that has the name; `None` when it does not stop us.
fn look(root: BorrowedFd<'_>, pid: u32) -> Option<Stuck> {
    if !has_name(root, format!("{pid}/comm").as_bytes()) {
        return None;
    }
    let status = read(root, &format!("{pid}/status"))?;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let hangs = !matches!(value("State:")?.chars().next()?, 'S' | 'T' | 't' | 'Z' | 'X' | 'I');
    let owner: u32 = value("Uid:")?.split_ascii_whitespace().next()?.parse().ok()?;
    if !hangs || (owner != 0 && owner != rustix::process::getuid().as_raw()) {
        return None;
    }
    let start = field(&read(root, &format!("{pid}/stat"))?, 19)?;
    let age = read(root, "uptime").and_then(|uptime| age(&uptime, start));
    Some(Stuck { pid, start, age })
}

/// Returns a number of a `/proc/PID/stat`, counted from behind the name: that is in parentheses
/// and may hold anything.
fn field(stat: &str, place: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Returns how long ago a process started, in seconds.
fn age(uptime: &str, start: u64) -> Option<u64> {
    let uptime: u64 = uptime.split('.').next()?.parse().ok()?;
    uptime.checked_sub(start / TICKS_PER_SECOND)
}

fn number(digits: &[u8]) -> Option<u32> {
    let decimal = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| decimal)?.parse().ok()
}

fn open(dir: BorrowedFd<'_>, path: impl Arg, kind: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | kind;
    openat(dir, path, flags, Mode::empty())
}

/// Reads the beginning of a file; the kernel's are shorter than this, but for a process of some
/// thousand groups, whose `State` and `Uid` come first.
fn read(root: BorrowedFd<'_>, path: &str) -> Option<String> {
    let mut text = [0; 4096];
    let count = open(root, path, OFlags::empty()).and_then(|file| read_once(&file, &mut text));
    Some(String::from_utf8_lossy(&text[..count.ok()?]).into_owned())
}

fn read_once(file: &OwnedFd, text: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        match rustix::io::read(file, &mut *text) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// A folder made to look like `/proc`, with one process in it.
    fn made(name: &str, state: &str, user: u32) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("4711");
        fs::create_dir(&process).unwrap();
        fs::write(folder.path().join("uptime"), "1000.25 7.00\n").unwrap();
        fs::write(process.join("comm"), format!("{name}\n")).unwrap();
        let status = format!("Name:\t{name}\nState:\t{state}\nPid:\t4711\nUid:\t{user}\t0\t0\t0\n");
        fs::write(process.join("status"), status).unwrap();
        let fields = "1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 40000 0 0";
        fs::write(process.join("stat"), format!("4711 (a) b) D {fields}\n")).unwrap();
        folder
    }

    fn own() -> u32 {
        rustix::process::getuid().as_raw()
    }

    #[test]
    fn one_of_this_user_or_of_root_that_hangs_is_found() {
        for (state, user) in [("D (disk sleep)", own()), ("D (disk sleep)", 0), ("R (running)", 0)]
        {
            let made = made(NAME, state, user);
            let stuck = find(made.path()).unwrap();
            assert_eq!(stuck, Stuck { pid: 4711, start: 40_000, age: Some(600) });
            assert!(stuck.remains(made.path()));
            fs::write(made.path().join("4711/comm"), "sh\n").unwrap();
            assert!(!stuck.remains(made.path()), "the number is another's now");
        }
    }

    #[test]
    fn nobody_else_stops_us() {
        let stranger = own() + 1;
        for (name, state, user) in [
            (NAME, "D (disk sleep)", stranger),
            (NAME, "S (sleeping)", own()),
            (NAME, "T (stopped)", own()),
            (NAME, "Z (zombie)", own()),
            ("gpuws", "D (disk sleep)", own()),
            ("gpuws-stuck2", "D (disk sleep)", own()),
            ("gpuws-stuc", "D (disk sleep)", own()),
        ] {
            assert_eq!(find(made(name, state, user).path()), None, "{name} {state} {user}");
        }
    }

    #[test]
    fn only_the_threads_of_a_real_kernel_are_not_looked_at() {
        let made = made(NAME, "D (disk sleep)", 0);
        let second = made.path().join("2");
        fs::create_dir_all(second.join("task/2")).unwrap();
        let children = second.join("task/2/children");
        for (flags, children_of, is_found) in [
            (KERNEL_THREAD | 0x40, "3 4711 5 ", false),
            (KERNEL_THREAD, "471 47110 ", true),
            (KERNEL_THREAD, "", true),
            (0x40, "4711 ", true),
        ] {
            let stat = format!("2 (kthreadd) S 0 0 0 0 -1 {flags} 0 0\n");
            fs::write(second.join("stat"), stat).unwrap();
            fs::write(&children, children_of).unwrap();
            assert_eq!(find(made.path()).is_some(), is_found, "{flags:#x} {children_of}");
        }
        fs::remove_file(&children).unwrap();
        assert!(find(made.path()).is_some(), "not every kernel tells the children");
    }

    #[test]
    fn broken_files_are_nobody() {
        let made = made(NAME, "D (disk sleep)", own());
        for (file, text) in [("stat", "4711 (x) D 1"), ("status", "State:\n"), ("comm", "")] {
            let path = made.path().join("4711").join(file);
            let before = fs::read(&path).unwrap();
            fs::write(&path, text).unwrap();
            assert_eq!(find(made.path()), None, "{file}");
            fs::write(&path, before).unwrap();
        }
        assert!(find(made.path()).is_some());
        assert_eq!(find(&made.path().join("nowhere")), None);
    }
}
