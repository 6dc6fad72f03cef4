//! `/proc` and its process directories, read through open descriptors.

use crate::file_stat::FileStat;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, PROC_SUPER_MAGIC, RawDir};
use rustix::io::{Errno, Result};
use rustix::path::{Arg, DecInt};
use std::mem::MaybeUninit;
use std::path::Path;

/// Room for some hundred directory entries per `getdents` call.
pub(crate) const ENTRIES: usize = 32 << 10;

/// No `status` or `stat` of a process is longer, with 65,536 supplementary groups.
const STATUS_LIMIT: usize = 1 << 20;

/// The maximum length of what a driver reports about a descriptor: a few dozen short lines.
const FDINFO_LIMIT: usize = 8 << 10;

/// The open root of a `/proc`.
pub(crate) struct ProcRoot(OwnedFd);

impl ProcRoot {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(ProcRoot)
    }

    /// Returns the PIDs of all processes shown here, in order.
    pub(crate) fn pids(&self) -> Result<Vec<u32>> {
        numbers_in(&open_dir(self.0.as_fd(), ".")?)
    }

    /// Opens the directory of the process that has this PID now.
    pub(crate) fn process(&self, pid: u32) -> Result<ProcDir> {
        let fd = open_path(self.0.as_fd(), DecInt::new(pid))?;
        Ok(ProcDir(fd))
    }

    /// Returns the beginning of a file below the root.
    pub(crate) fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>> {
        read(self.0.as_fd(), path, limit, Short::Pause)
    }

    /// Opens `stat` of the process that has this PID now.
    pub(crate) fn open_stat(&self, pid: u32) -> Result<OwnedFd> {
        open_file(self.0.as_fd(), format!("{pid}/stat"))
    }

    /// Returns the target of a symbolic link below the root.
    pub(crate) fn link(&self, path: &str) -> Result<Vec<u8>> {
        rustix::fs::readlinkat(&self.0, path, Vec::new()).map(|target| target.into_bytes())
    }

    /// Returns whether this is the kernel's own procfs, not a directory that imitates it.
    ///
    /// # Errors
    /// That of fstatfs(2), which a seccomp filter may refuse.
    pub(crate) fn is_real_proc(&self) -> Result<bool> {
        rustix::fs::fstatfs(&self.0).map(|stat| stat.f_type == PROC_SUPER_MAGIC)
    }
}

/// The open directory of one process or of one of its threads.
///
/// The kernel ties the directory to the process, not to its PID: once the process is gone, every
/// read below it fails with `ESRCH` or `ENOENT`, and never shows a process that reuses the PID.
pub(crate) struct ProcDir(OwnedFd);

impl ProcDir {
    /// Returns the beginning of a file.
    pub(crate) fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>> {
        read(self.0.as_fd(), name, limit, Short::Pause)
    }

    /// Returns what the driver behind a descriptor reports about it.
    pub(crate) fn fdinfo(&self, descriptor: u32) -> Option<String> {
        let text = self.read(&format!("fdinfo/{descriptor}"), FDINFO_LIMIT).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the beginning of a file of one record, such as `cgroup`, which takes one read less.
    pub(crate) fn read_record(&self, name: &str, limit: usize) -> Result<Vec<u8>> {
        read(self.0.as_fd(), name, limit, Short::End)
    }

    /// Returns all of `stat` or `status`.
    pub(crate) fn read_status(&self, name: &str) -> Result<Vec<u8>> {
        self.read_record(name, STATUS_LIMIT)
    }

    /// Returns the effective user of the process, which the kernel shows as the owner of its
    /// directory, whether it is dumpable or not (`task_dump_owner` of the kernel).
    pub(crate) fn user(&self) -> Result<u32> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        FileStat::at(&self.0, c"", flags).map(|stat| stat.owner)
    }

    /// Opens a file to read it in pieces.
    pub(crate) fn open(&self, name: &str) -> Result<OwnedFd> {
        open_file(self.0.as_fd(), name)
    }

    /// Opens a directory to list it.
    pub(crate) fn open_dir(&self, name: &str) -> Result<OwnedFd> {
        open_dir(self.0.as_fd(), name)
    }

    /// Returns the target of a link such as `exe`, as [`identify`] does.
    pub(crate) fn identify(&self, link: impl Arg) -> Result<FileStat> {
        identify(self.0.as_fd(), link)
    }

    /// Returns the text of a symbolic link.
    pub(crate) fn link(&self, name: &str) -> Result<Vec<u8>> {
        rustix::fs::readlinkat(&self.0, name, Vec::new()).map(|target| target.into_bytes())
    }

    /// Returns the IDs of its threads, the first one included.
    pub(crate) fn threads(&self) -> Result<Vec<u32>> {
        self.tasks()?.threads()
    }

    /// Opens the directory of its threads.
    pub(crate) fn tasks(&self) -> Result<TaskDir> {
        self.open_dir("task").map(TaskDir)
    }

    /// Returns whether it certainly has one thread: `task` then has at most one subdirectory.
    pub(crate) fn has_one_thread(&self) -> bool {
        let stat = FileStat::at(&self.0, c"task", AtFlags::STATX_DONT_SYNC);
        stat.is_ok_and(|stat| stat.links == 3)
    }
}

/// The open directory of the threads of one process.
pub(crate) struct TaskDir(OwnedFd);

impl TaskDir {
    /// Returns the IDs of the threads, the first one included.
    pub(crate) fn threads(&self) -> Result<Vec<u32>> {
        numbers_in(&self.0)
    }

    /// Opens the directory of one of the threads.
    pub(crate) fn thread(&self, tid: u32) -> Result<ProcDir> {
        open_path(self.0.as_fd(), DecInt::new(tid)).map(ProcDir)
    }
}

impl AsFd for ProcDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the identity of a path's target, from the kernel's cached data.
pub(crate) fn identify(dir: BorrowedFd<'_>, path: impl Arg) -> Result<FileStat> {
    FileStat::at(dir, path, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT)
}

fn open_path(dir: BorrowedFd<'_>, path: impl Arg) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, path, flags, Mode::empty())
}

fn open_dir(dir: BorrowedFd<'_>, path: impl Arg) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, path, flags, Mode::empty())
}

fn open_file(dir: BorrowedFd<'_>, path: impl Arg) -> Result<OwnedFd> {
    rustix::fs::openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The meaning of a read that returns less than requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Short {
    /// The end: the file has one record, such as `stat`.
    End,
    /// A pause: the next record of a list, such as `children` or `locks`, did not fit.
    Pause,
}

fn read(dir: BorrowedFd<'_>, path: &str, limit: usize, short: Short) -> Result<Vec<u8>> {
    let file = open_file(dir, path)?;
    let mut text = Vec::with_capacity(limit.min(4096));
    let mut piece = [0; 4096];
    while text.len() < limit {
        let wanted = piece.len().min(limit - text.len());
        match rustix::io::read(&file, &mut piece[..wanted]) {
            Ok(0) => break,
            Ok(count) => {
                text.extend_from_slice(&piece[..count]);
                if count < wanted && short == Short::End {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(text)
}

fn numbers_in(dir: &OwnedFd) -> Result<Vec<u32>> {
    let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
    let mut numbers = Vec::new();
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        numbers.extend(number(entry?.file_name().to_bytes()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Parses a decimal number that spans all of `digits`.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_WRLCK, SEEK_SET, flock};
    use std::os::unix::fs::MetadataExt;

    /// The kernel returns the list in pieces of less than a page.
    #[test]
    fn list_of_many_records_is_read_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        for byte in 0..300 {
            let (l_type, l_whence) = (F_WRLCK as i16, SEEK_SET as i16);
            // Adjacent locks would become one.
            let lock = flock { l_type, l_whence, l_start: 2 * byte, l_len: 1, l_pid: 0 };
            fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
        }
        let inode = file.metadata().unwrap().ino();
        let root = ProcRoot::open(Path::new("/proc")).unwrap();
        let list = String::from_utf8(root.read("locks", 1 << 20).unwrap()).unwrap();
        // Other processes change the list meanwhile, so a record may appear twice.
        let missing =
            (0..300).find(|byte| !list.contains(&format!(":{inode} {0} {0}\n", 2 * byte)));
        assert_eq!(missing, None);
    }
}
