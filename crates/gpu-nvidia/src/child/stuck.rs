//! A child of an earlier look that hangs in the driver and cannot be ended.
//!
//! It says so by its name, which it can still change and which others can see, and sets a
//! [mark](super::mark): without one no process is looked at. Anybody can give a process that name,
//! so the name alone means nothing. A process is taken for such a child only if
//!
//! - its real, effective and saved user are the caller's, root's own for root: another user's
//!   child costs the caller one child of its own at most, which bars the looks that follow;
//! - it lives in the caller's PID and user namespace, since root of a container may be root here;
//! - its executable is the one that the caller would start as a child, or the caller's own, by
//!   file system and inode: the kernel tells it, and no process can choose it without becoming
//!   that program;
//! - it neither sleeps nor is stopped, twice: a process that hangs in a driver is in an
//!   uninterruptible wait or runs inside of the kernel, and one that is only just ending is gone
//!   at the second look.
//!
//! Where the kernel does not tell one of these, the process does not count. What is lost then (the
//! program was replaced meanwhile, say) is one more child that hangs; what a forger could gain is
//! that nobody looks at the devices.

use super::Helper;
use super::mark::may_be_set;
use rustix::event::{Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat, openat, readlinkat, stat, statat};
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

/// The executables that a child may have, by file system and inode.
struct Programs(Vec<(u64, u64)>);

impl Programs {
    /// Returns the caller's own, of which a child may be a copy, and the one that is started as a
    /// child where a path names it.
    fn of(helper: &Helper) -> Self {
        let files = Programs::paths(helper).into_iter().filter_map(|path| stat(path).ok());
        Programs(files.map(identity).collect())
    }

    fn paths(helper: &Helper) -> [&Path; 2] {
        [Path::new("/proc/self/exe"), &helper.program]
    }

    /// Tells whether a process runs one of them; not where the kernel does not tell.
    fn has(&self, root: BorrowedFd<'_>, pid: u32) -> bool {
        let executable = statat(root, format!("{pid}/exe"), AtFlags::empty());
        executable.is_ok_and(|file| self.0.contains(&identity(file)))
    }
}

fn identity(file: Stat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
}

/// Tells whether a process shares the caller's numbers and users; not where the kernel does not
/// tell.
fn is_of_own_namespaces(root: BorrowedFd<'_>, pid: u32) -> bool {
    let link = |path: String| readlinkat(root, path, Vec::new());
    ["pid", "user"].iter().all(|kind| {
        let own = link(format!("self/ns/{kind}"));
        own.is_ok_and(|own| link(format!("{pid}/ns/{kind}")).is_ok_and(|its| its == own))
    })
}

impl Stuck {
    /// Tells whether it is still there.
    pub(crate) fn remains(&self, helper: &Helper) -> bool {
        let root = open(rustix::fs::CWD, &helper.proc, OFlags::DIRECTORY);
        let programs = Programs::of(helper);
        root.is_ok_and(|root| {
            look(root.as_fd(), self.pid, &programs).is_some_and(|now| now.same(self))
        })
    }

    fn same(&self, other: &Self) -> bool {
        (self.pid, self.start) == (other.pid, other.start)
    }
}

/// Returns a child of an earlier look that hangs; none where `/proc` cannot be read.
///
/// Costs some ten system calls. Where a mark is set, it costs three more per process that is not
/// the kernel's own, and 100 ms where one has the name.
pub(crate) fn find(helper: &Helper) -> Option<Stuck> {
    let is_marked = Programs::paths(helper).into_iter().any(may_be_set);
    if is_marked { search(helper) } else { None }
}

/// Looks at the names of all processes.
fn search(helper: &Helper) -> Option<Stuck> {
    let proc = &helper.proc;
    let root = open(rustix::fs::CWD, proc, OFlags::DIRECTORY).ok()?;
    let kernel = kernel_threads(root.as_fd(), proc);
    let named = named(root.as_fd(), &kernel).ok()?;
    if named.is_empty() {
        return None;
    }
    let programs = Programs::of(helper);
    let look = |pid| look(root.as_fd(), pid, &programs);
    let suspects: Vec<_> = named.into_iter().filter_map(look).collect();
    if suspects.is_empty() {
        return None;
    }
    // An interrupted wait is a shorter one, and a suspect that is ending delays one look more.
    let _ = poll(&mut [], Some(&ENDING));
    suspects.into_iter().find(|before| look(before.pid).is_some_and(|after| after.same(before)))
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
fn look(root: BorrowedFd<'_>, pid: u32, programs: &Programs) -> Option<Stuck> {
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
    use crate::child::mark::Mark;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A directory made to look like `/proc`, with one process in it that hangs and whose
    /// executable is the test's own.
    fn made(name: &str, state: &str, users: &str) -> TempDir {
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
        for whose in ["self", "4711"] {
            for kind in ["pid", "user"] {
                link_namespace(dir.path(), whose, kind, 4_026_531_836);
            }
        }
        dir
    }

    fn link_namespace(proc: &Path, whose: &str, kind: &str, inode: u64) {
        let dir = proc.join(whose).join("ns");
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

    #[test]
    fn processes_are_scanned_only_if_a_mark_is_set() {
        let made = made(NAME, "D (disk sleep)", &own());
        let program = tempfile::NamedTempFile::new().unwrap();
        let link = made.path().join("4711/exe");
        fs::remove_file(&link).unwrap();
        symlink(program.path(), &link).unwrap();
        let helper = Helper { proc: made.path().to_owned(), ..Helper::new(program.path()) };
        assert_eq!(find(&helper), None);
        let mark = Mark::on(program.path()).unwrap();
        mark.set();
        assert_eq!(find(&helper).map(|stuck| stuck.pid), Some(4711));
        drop(mark);
        assert_eq!(find(&helper), None);
    }

    #[test]
    fn own_hanging_child_is_found() {
        for state in ["D (disk sleep)", "R (running)"] {
            let made = made(NAME, state, &own());
            let stuck = found(made.path()).unwrap();
            assert_eq!(stuck, Stuck { pid: 4711, start: 40_000, age: Some(600) });
            assert!(stuck.remains(&helper(made.path())));
            fs::write(made.path().join("4711/comm"), "sh\n").unwrap();
            assert!(!stuck.remains(&helper(made.path())), "the number is another's now");
        }
    }

    #[test]
    fn helper_is_matched_by_executable_path() {
        let made = made(NAME, "D (disk sleep)", &own());
        let link = made.path().join("4711/exe");
        fs::remove_file(&link).unwrap();
        symlink("/bin/sh", &link).unwrap();
        assert_eq!(found(made.path()), None);
        let helper = Helper { proc: made.path().to_owned(), ..Helper::new("/bin/sh") };
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
            assert_eq!(found(made(name, state, &users).path()), None, "{name} {state} {users}");
        }
    }

    #[test]
    fn same_name_with_other_executable_is_ignored() {
        let made = made(NAME, "R (running)", &own());
        let link = made.path().join("4711/exe");
        fs::remove_file(&link).unwrap();
        assert_eq!(found(made.path()), None, "its executable is not told");
        // A copy of the program is another file.
        let copy = made.path().join("copy");
        fs::write(&copy, "").unwrap();
        symlink(&copy, &link).unwrap();
        assert_eq!(found(made.path()), None);
    }

    #[test]
    fn process_in_other_namespace_is_ignored() {
        for kind in ["pid", "user"] {
            let made = made(NAME, "R (running)", &own());
            link_namespace(made.path(), "4711", kind, 4_026_532_999);
            assert_eq!(found(made.path()), None, "{kind}");
            fs::remove_file(made.path().join("4711/ns").join(kind)).unwrap();
            assert_eq!(found(made.path()), None, "{kind} is not told");
        }
    }

    #[test]
    fn only_real_kernel_threads_are_skipped() {
        let made = made(NAME, "D (disk sleep)", &own());
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
            assert_eq!(found(made.path()).is_some(), is_found, "{flags:#x} {children_of}");
        }
        fs::remove_file(&children).unwrap();
        assert!(found(made.path()).is_some(), "not every kernel tells the children");
    }

    #[test]
    fn malformed_proc_files_are_ignored() {
        let made = made(NAME, "D (disk sleep)", &own());
        for (file, text) in [("stat", "4711 (x) D 1"), ("status", "State:\n"), ("comm", "")] {
            let path = made.path().join("4711").join(file);
            let before = fs::read(&path).unwrap();
            fs::write(&path, text).unwrap();
            assert_eq!(found(made.path()), None, "{file}");
            fs::write(&path, before).unwrap();
        }
        assert!(found(made.path()).is_some());
        assert_eq!(found(&made.path().join("nowhere")), None);
    }
}
