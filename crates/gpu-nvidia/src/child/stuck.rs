//! Detects a child of an earlier query that hangs in the driver and cannot be killed.
//!
//! The child sets a [mark](super::mark), which encodes its PID, and takes a recognisable name. Any
//! process can have both, so they are not sufficient. If the marks are unknown, all processes are
//! searched by name. A process counts as such a child only if
//!
//! - its real, effective and saved user IDs are the caller's, even for root: a hanging child of
//!   another user costs the caller at most one hanging child of its own, which blocks later
//!   queries;
//! - it is in the caller's PID and user namespace, because root of a container may be root here;
//! - its executable is that of the caller or of its helper, by device and inode: the kernel reports
//!   it, and a process can change it only by executing that program;
//! - it is neither asleep nor stopped, in two checks: a process that hangs in a driver is in
//!   uninterruptible sleep or runs in the kernel, and an exiting process has disappeared by the
//!   second check.
//!
//! If the kernel does not report one of these, the process does not count. The worst result, for
//! example after the program was replaced, is one more hanging child; a forged process, in
//! contrast, could block all queries.

use super::Helper;
use super::mark::marked;
use rustix::event::{Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat, openat, readlinkat, stat, statat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::mem::MaybeUninit;
use std::path::Path;

/// The name of a hanging child; Linux keeps 15 characters.
pub(crate) const NAME: &str = "gpuws-stuck";

/// The buffer size for one `getdents` call: a few hundred directory entries.
const ENTRIES: usize = 32 << 10;

/// The maximum time that a killed child remains visible.
const EXIT_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Clock ticks per second in `/proc/PID/stat`: 100 on every architecture that NVIDIA supports
/// (`USER_HZ` of the kernel's `asm-generic/param.h`).
const TICKS_PER_SECOND: u64 = 100;

/// A process that hangs in the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) pid: u32,
    /// Its start time, in clock ticks since boot.
    start: u64,
    /// Its age in seconds, if `/proc` shows it.
    pub(crate) age: Option<u64>,
}

/// The possible executables of a child, by device and inode.
struct Programs(Vec<(u64, u64)>);

impl Programs {
    /// Returns the executables that a child may run: the caller's own, for a fork, and the
    /// helper's, if given by a path.
    fn of(helper: &Helper) -> Self {
        let files = Programs::paths(helper).into_iter().filter_map(|path| stat(path).ok());
        Programs(files.map(identity).collect())
    }

    fn paths(helper: &Helper) -> [&Path; 2] {
        [Path::new("/proc/self/exe"), &helper.program]
    }

    /// Returns whether a process runs one of these executables; `false` if unknown.
    fn has(&self, root: BorrowedFd<'_>, pid: u32) -> bool {
        let executable = statat(root, format!("{pid}/exe"), AtFlags::empty());
        executable.is_ok_and(|file| self.0.contains(&identity(file)))
    }
}

fn identity(file: Stat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}

/// Returns whether a process is in the caller's PID and user namespaces; `false` if unknown.
fn is_of_own_namespaces(root: BorrowedFd<'_>, pid: u32) -> bool {
    let link = |path: String| readlinkat(root, path, Vec::new());
    ["pid", "user"].iter().all(|kind| {
        let own = link(format!("self/ns/{kind}"));
        own.is_ok_and(|own| link(format!("{pid}/ns/{kind}")).is_ok_and(|its| its == own))
    })
}

impl Stuck {
    /// Returns whether it still exists.
    pub(crate) fn remains(&self, helper: &Helper) -> bool {
        let root = open(rustix::fs::CWD, &helper.proc, OFlags::DIRECTORY);
        let programs = Programs::of(helper);
        root.is_ok_and(|root| {
            inspect(root.as_fd(), self.pid, &programs).is_some_and(|now| now.same(self))
        })
    }

    fn same(&self, other: &Self) -> bool {
        (self.pid, self.start) == (other.pid, other.start)
    }
}

/// Returns a hanging child of an earlier query; `None` if `/proc` cannot be read.
///
/// Takes about ten system calls, and 100 ms if a process may hang. If the marks are unknown, takes
/// three more calls per process of the machine.
pub(crate) fn find(helper: &Helper) -> Option<Stuck> {
    let marks: Option<Vec<Vec<u32>>> = Programs::paths(helper).into_iter().map(marked).collect();
    let marked = marks.map(|pids| pids.concat());
    if marked.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    let root = open(rustix::fs::CWD, &helper.proc, OFlags::DIRECTORY).ok()?;
    let pids = marked.map_or_else(|| named(root.as_fd()), Ok).ok()?;
    confirmed(helper, root.as_fd(), pids)
}

/// Returns the first of these processes that hangs.
fn confirmed(helper: &Helper, root: BorrowedFd<'_>, pids: Vec<u32>) -> Option<Stuck> {
    let programs = Programs::of(helper);
    let inspect = |pid| inspect(root, pid, &programs);
    let suspects: Vec<_> = pids.into_iter().filter_map(inspect).collect();
    if suspects.is_empty() {
        return None;
    }
    // An interrupted wait is merely shorter; an exiting process may then block one more query.
    let _ = poll(&mut [], Some(&EXIT_TIMEOUT));
    suspects.into_iter().find(|before| inspect(before.pid).is_some_and(|after| after.same(before)))
}

/// Returns the processes named [`NAME`].
fn named(root: BorrowedFd<'_>) -> rustix::io::Result<Vec<u32>> {
    let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
    let mut entries = RawDir::new(root, &mut buffer);
    let mut found = Vec::new();
    let mut path = Vec::with_capacity(64);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let digits = entry.file_name().to_bytes();
        let Some(pid) = number(digits) else { continue };
        path.clear();
        path.extend_from_slice(digits);
        path.extend_from_slice(b"/comm");
        if has_name(root, &path) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Returns whether a `comm` file contains the name. If the file cannot be read, the process has
/// ended.
fn has_name(root: BorrowedFd<'_>, path: &[u8]) -> bool {
    let mut text = [0; NAME.len() + 2];
    let count = open(root, path, OFlags::empty()).and_then(|file| read_once(&file, &mut text));
    count.is_ok_and(|count| text[..count].strip_suffix(b"\n") == Some(NAME.as_bytes()))
}

/// Inspects a process with the name; `None` if it is not a hanging child.
fn inspect(root: BorrowedFd<'_>, pid: u32, programs: &Programs) -> Option<Stuck> {
    if !has_name(root, format!("{pid}/comm").as_bytes()) {
        return None;
    }
    let status = read(root, &format!("{pid}/status"))?;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let hangs = !matches!(value("State:")?.chars().next()?, 'S' | 'T' | 't' | 'Z' | 'X' | 'I');
    let own = rustix::process::getuid().as_raw().to_string();
    let is_own = value("Uid:")?.split_ascii_whitespace().take(3).all(|user| user == own);
    if !hangs || !is_own || !programs.has(root, pid) || !is_of_own_namespaces(root, pid) {
        return None;
    }
    let start = field(&read(root, &format!("{pid}/stat"))?, 19)?;
    let age = read(root, "uptime").and_then(|uptime| age(&uptime, start));
    Some(Stuck { pid, start, age })
}

/// Returns a number from `/proc/PID/stat`, by its index after the name; the name is in parentheses
/// and may contain any character.
fn field(stat: &str, index: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(index)?.parse().ok()
}

/// Returns the age of a process in seconds.
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

/// Reads the beginning of a `/proc` file. The files are shorter than the buffer, except for a
/// process with thousands of groups, and there `State` and `Uid` come first.
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
    use crate::child::mark::Mark;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A directory that imitates `/proc`, with one hanging process with this test as its
    /// executable.
    fn proc_with(name: &str, state: &str, users: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let process = dir.path().join("4711");
        fs::create_dir(&process).unwrap();
        fs::write(dir.path().join("uptime"), "1000.25 7.00\n").unwrap();
        fs::write(process.join("comm"), format!("{name}\n")).unwrap();
        let status = format!("Name:\t{name}\nState:\t{state}\nPid:\t4711\nUid:\t{users}\n");
        fs::write(process.join("status"), status).unwrap();
        let fields = "1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 40000 0 0";
        fs::write(process.join("stat"), format!("4711 (a) b) D {fields}\n")).unwrap();
        symlink(std::env::current_exe().unwrap(), process.join("exe")).unwrap();
        for entry in ["self", "4711"] {
            for kind in ["pid", "user"] {
                link_namespace(dir.path(), entry, kind, 4_026_531_836);
            }
        }
        dir
    }

    fn link_namespace(proc: &Path, entry: &str, kind: &str, inode: u64) {
        let dir = proc.join(entry).join("ns");
        fs::create_dir_all(&dir).unwrap();
        let _ = fs::remove_file(dir.join(kind));
        symlink(format!("{kind}:[{inode}]"), dir.join(kind)).unwrap();
    }

    fn own() -> String {
        let user = rustix::process::getuid().as_raw();
        format!("{user}\t{user}\t{user}\t{user}")
    }

    fn helper(proc: &Path) -> Helper {
        Helper { proc: proc.to_owned(), ..Helper::new("/nowhere/helper") }
    }

    fn found(proc: &Path) -> Option<Stuck> {
        search(&helper(proc))
    }

    /// Searches all processes by name.
    fn search(helper: &Helper) -> Option<Stuck> {
        let root = open(rustix::fs::CWD, &helper.proc, OFlags::DIRECTORY).ok()?;
        confirmed(helper, root.as_fd(), named(root.as_fd()).ok()?)
    }

    #[test]
    fn only_marked_processes_are_inspected() {
        let proc = proc_with(NAME, "D (disk sleep)", &own());
        let program = tempfile::NamedTempFile::new().unwrap();
        let link = proc.path().join("4711/exe");
        fs::remove_file(&link).unwrap();
        symlink(program.path(), &link).unwrap();
        let helper = Helper { proc: proc.path().to_owned(), ..Helper::new(program.path()) };
        assert_eq!(find(&helper), None);
        let other = Mark::on(program.path()).unwrap();
        other.set(4712);
        assert_eq!(find(&helper), None, "the mark of a process that has ended");
        let mark = Mark::on(program.path()).unwrap();
        mark.set(4711);
        assert_eq!(find(&helper).map(|stuck| stuck.pid), Some(4711));
        drop(other);
        drop(mark);
        crate::child::mark::tests::until_released(program.path());
        assert_eq!(find(&helper), None);
    }

    #[test]
    fn own_hanging_child_is_found() {
        for state in ["D (disk sleep)", "R (running)"] {
            let proc = proc_with(NAME, state, &own());
            let stuck = found(proc.path()).unwrap();
            assert_eq!(stuck, Stuck { pid: 4711, start: 40_000, age: Some(600) });
            assert!(stuck.remains(&helper(proc.path())));
            fs::write(proc.path().join("4711/comm"), "sh\n").unwrap();
            assert!(!stuck.remains(&helper(proc.path())), "the PID was reused");
        }
    }

    #[test]
    fn helper_is_matched_by_executable_path() {
        let proc = proc_with(NAME, "D (disk sleep)", &own());
        let link = proc.path().join("4711/exe");
        fs::remove_file(&link).unwrap();
        symlink("/bin/sh", &link).unwrap();
        assert_eq!(found(proc.path()), None);
        let helper = Helper { proc: proc.path().to_owned(), ..Helper::new("/bin/sh") };
        assert!(search(&helper).is_some());
    }

    #[test]
    fn processes_of_other_users_are_ignored() {
        let user = rustix::process::getuid().as_raw();
        let stranger = user + 1;
        for (name, state, users) in [
            (NAME, "D (disk sleep)", format!("{stranger}\t{stranger}\t{stranger}\t{stranger}")),
            (NAME, "D (disk sleep)", format!("{user}\t{stranger}\t{stranger}\t{stranger}")),
            (NAME, "D (disk sleep)", format!("{stranger}\t{user}\t{user}\t{user}")),
            (NAME, "S (sleeping)", own()),
            (NAME, "T (stopped)", own()),
            (NAME, "Z (zombie)", own()),
            ("gpuws", "D (disk sleep)", own()),
            ("gpuws-stuck2", "D (disk sleep)", own()),
            ("gpuws-stuc", "D (disk sleep)", own()),
        ] {
            assert_eq!(
                found(proc_with(name, state, &users).path()),
                None,
                "{name} {state} {users}"
            );
        }
    }

    #[test]
    fn same_name_with_other_executable_is_ignored() {
        let proc = proc_with(NAME, "R (running)", &own());
        let link = proc.path().join("4711/exe");
        fs::remove_file(&link).unwrap();
        assert_eq!(found(proc.path()), None, "unknown executable");
        // A copy of the program has a different inode.
        let copy = proc.path().join("copy");
        fs::write(&copy, "").unwrap();
        symlink(&copy, &link).unwrap();
        assert_eq!(found(proc.path()), None);
    }

    #[test]
    fn process_in_other_namespace_is_ignored() {
        for kind in ["pid", "user"] {
            let proc = proc_with(NAME, "R (running)", &own());
            link_namespace(proc.path(), "4711", kind, 4_026_532_999);
            assert_eq!(found(proc.path()), None, "{kind}");
            fs::remove_file(proc.path().join("4711/ns").join(kind)).unwrap();
            assert_eq!(found(proc.path()), None, "unknown {kind} namespace");
        }
    }

    #[test]
    fn malformed_proc_files_are_ignored() {
        let proc = proc_with(NAME, "D (disk sleep)", &own());
        for (file, text) in [("stat", "4711 (x) D 1"), ("status", "State:\n"), ("comm", "")] {
            let path = proc.path().join("4711").join(file);
            let before = fs::read(&path).unwrap();
            fs::write(&path, text).unwrap();
            assert_eq!(found(proc.path()), None, "{file}");
            fs::write(&path, before).unwrap();
        }
        assert!(found(proc.path()).is_some());
        assert_eq!(found(&proc.path().join("nowhere")), None);
    }
}
