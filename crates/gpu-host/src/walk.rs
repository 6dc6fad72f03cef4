//! The hot walk: finds which of the files one process has.
//!
//! Per descriptor it makes one system call and no allocation: a `statx` relative to the open `fd`
//! directory that follows the link. It costs as much as reading the link, and it returns the device
//! number, so it finds a container's own node, a renamed and a deleted file.

use crate::file_index::{Findings, Targets, file_id};
use crate::file_stat::FileStat;
use crate::maps::Mappings;
use crate::proc_dir::{ENTRIES, ProcDir, identify, number};
use crate::syscall::shares_files;
use gpu_core::{Access, Pid};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, RawDir};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Reads one process after another, with buffers that are allocated once.
pub(crate) struct Walker<'a> {
    targets: &'a Targets<'a>,
    mappings: Mappings,
    entries: Vec<MaybeUninit<u8>>,
    /// The PIDs here are those of the caller's system calls.
    has_own_numbers: bool,
}

/// The files found in one process.
pub(crate) struct Seen {
    pub(crate) findings: Findings,
    /// The live thread through which they were found: the first one is a zombie.
    pub(crate) through_thread: Option<Pid>,
    /// Why a part of it could not be read.
    pub(crate) blocked: Option<Errno>,
    /// All open descriptors were read.
    pub(crate) open_files_read: bool,
}

impl<'a> Walker<'a> {
    /// Creates a walker. `has_own_numbers`: the `/proc` shows the caller's own PID namespace.
    pub(crate) fn new(targets: &'a Targets<'a>, has_own_numbers: bool) -> Self {
        Walker {
            targets,
            mappings: Mappings::default(),
            entries: vec![MaybeUninit::uninit(); ENTRIES],
            has_own_numbers,
        }
    }

    /// Returns the files that are searched for.
    pub(crate) fn targets(&self) -> &'a Targets<'a> {
        self.targets
    }

    /// Reads the process with this PID.
    ///
    /// Threads share their descriptor table unless they unshare it, so the first one represents all
    /// others except those that certainly have their own table. A zombie first thread has empty
    /// tables, closed to all but root; the first live thread takes its place.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` when it has ended, `EACCES` or `EPERM` when no part of it may be read.
    pub(crate) fn scan(&mut self, process: &ProcDir, pid: u32) -> Result<Seen> {
        let mut seen = Seen {
            findings: Findings::default(),
            through_thread: None,
            blocked: None,
            open_files_read: true,
        };
        let first = self.scan_thread(process, &mut seen);
        if process.has_one_thread() {
            return first.map(|_| seen);
        }
        let first_lives = match first {
            Err(Errno::ACCESS | Errno::PERM) => false,
            first => first?,
        };
        let tasks = process.tasks()?;
        let mut stand_in: Option<(u32, ProcDir)> = None;
        for tid in tasks.threads()?.into_iter().filter(|tid| *tid != pid) {
            let speaker = match &stand_in {
                _ if first_lives => Some((pid, process)),
                stand_in => stand_in.as_ref().map(|(tid, thread)| (*tid, thread)),
            };
            let shares = speaker.map(|(speaker, _)| self.shares_files(speaker, tid));
            if shares == Some(Ok(true)) {
                continue;
            }
            let thread = match tasks.thread(tid) {
                Ok(thread) => thread,
                Err(errno) => {
                    seen.block_files(errno);
                    continue;
                }
            };
            if let Some((_, speaker)) = speaker
                && shares != Some(Ok(false))
                && !may_have_own_fd_table(speaker, &thread)
            {
                continue;
            }
            match self.scan_thread(&thread, &mut seen) {
                Ok(true) if speaker.is_none() => {
                    seen.through_thread = Some(Pid(tid));
                    stand_in = Some((tid, thread));
                }
                Ok(_) => {}
                Err(errno) => {
                    seen.block_files(errno);
                    // A process of another user: its other threads are closed as well.
                    if matches!(errno, Errno::ACCESS | Errno::PERM) {
                        break;
                    }
                }
            }
        }
        if stand_in.is_some() { Ok(seen) } else { first.map(|_| seen) }
    }

    /// Returns whether two threads certainly share their descriptor table.
    ///
    /// If a number was reused meanwhile, its process has ended, and the answer does not matter.
    fn shares_files(&self, one: u32, other: u32) -> Result<bool> {
        if self.has_own_numbers { shares_files(one, other) } else { Err(Errno::NOSYS) }
    }

    /// Reads everything of one thread, and returns whether it lives: a zombie and a kernel thread
    /// have neither descriptors nor mappings.
    fn scan_thread(&mut self, thread: &ProcDir, seen: &mut Seen) -> Result<bool> {
        let descriptors = self.descriptors(thread, seen)?;
        self.links(thread, seen);
        let mapped = self.mappings.scan(thread, self.targets, &mut seen.findings);
        let mapped = mapped.unwrap_or_else(|errno| {
            seen.block(errno);
            false
        });
        Ok(descriptors || mapped)
    }

    /// Reads the open descriptors, and returns whether there are any.
    fn descriptors(&mut self, thread: &ProcDir, seen: &mut Seen) -> Result<bool> {
        let table = thread.open_dir("fd")?;
        let mut any = false;
        let mut entries = RawDir::new(&table, &mut self.entries);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            any = true;
            let id = match identify(table.as_fd(), name) {
                Ok(stat) => file_id(&stat),
                Err(errno) => {
                    seen.block_files(errno);
                    continue;
                }
            };
            if self.targets.contains(id)
                && let Some(descriptor) = number(name.to_bytes())
            {
                seen.findings.note_open(id, open_access(&table, name), descriptor);
            }
        }
        Ok(any)
    }

    /// Reads the current directory, the root and the executable, if a target can be one of them.
    fn links(&self, thread: &ProcDir, seen: &mut Seen) {
        for (possible, link, access) in [
            (self.targets.dirs, c"cwd", Access::CURRENT_DIRECTORY),
            (self.targets.dirs, c"root", Access::ROOT),
            (self.targets.plain, c"exe", Access::EXECUTABLE),
        ] {
            if !possible {
                continue;
            }
            match thread.identify(link) {
                Ok(stat) if self.targets.contains(file_id(&stat)) => {
                    seen.findings.note(file_id(&stat), access);
                }
                Ok(_) => {}
                Err(errno) => seen.block(errno),
            }
        }
    }
}

impl Seen {
    /// Records that something could not be read, unless it is gone.
    fn block(&mut self, errno: Errno) {
        if !is_gone(errno) {
            self.blocked.get_or_insert(errno);
        }
    }

    /// Like [`block`](Self::block), for open descriptors.
    fn block_files(&mut self, errno: Errno) {
        self.block(errno);
        self.open_files_read &= is_gone(errno);
    }
}

/// Returns whether a descriptor, a thread or a process has ended meanwhile.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH)
}

/// Returns how a descriptor was opened, from the permissions that procfs gives its link: those of
/// the owner are the open mode.
fn open_access(table: &OwnedFd, name: &CStr) -> Access {
    let link = rustix::fs::statat(table, name, AtFlags::SYMLINK_NOFOLLOW);
    match link {
        Ok(link) if link.st_mode & 0o200 != 0 => Access::OPEN_FOR_WRITING,
        _ => Access::OPEN,
    }
}

/// Returns whether two threads have separate tables: their numbers of descriptors differ, and not
/// only because one was opened or closed between the two reads, or cannot be read.
///
/// This is for callers that may not compare the tables themselves. The number is the size of the
/// `fd` directory since Linux 6.2. Before, it is always zero, and a separate table is missed.
fn may_have_own_fd_table(speaker: &ProcDir, other: &ProcDir) -> bool {
    let size = |thread: &ProcDir| {
        FileStat::at(thread, c"fd", AtFlags::STATX_DONT_SYNC).map(|stat| stat.size)
    };
    match (size(speaker), size(other), size(speaker)) {
        (Ok(before), Ok(of_other), Ok(after)) => of_other != before && of_other != after,
        (_, other, _) => !other.is_err_and(is_gone),
    }
}
