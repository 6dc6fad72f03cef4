//! The mark of a hanging child: a lock that the kernel holds for as long as the child exists.
//!
//! A machine may have thousands of processes, and hanging children are rare. To avoid reading the
//! names of all processes, a hanging child locks a byte of its program's file at an offset that
//! encodes its PID.
//!
//! - Only processes that run the program of the caller or of its helper count as hanging children,
//!   and the locked file is one of these two. All processes that need to detect the child see the
//!   same file, in any directory, session or network namespace. No file has to be created or
//!   removed.
//! - It is a read lock on the open file description (`F_OFD_SETLK`). It always ends with the
//!   process. Only a write lock can prevent it, and that requires write permission for the program.
//! - The offset of the byte encodes the user ID and the PID. Every user who may read the program
//!   can lock any byte, so a mark only shows which processes to inspect. If there are more than 64
//!   marks, or a mark covers several bytes, the result is unknown.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// Bits of a PID (`PID_MAX_LIMIT` of the kernel's linux/threads.h is 2²²).
const PID_BITS: u32 = 22;

/// An offset beyond those of all users; a lock on it is meaningless.
const UNUSED_BYTE: i64 = 1 << 60;

/// The maximum number of marks; more are never needed.
const MOST: usize = 64;

/// A file that can be marked.
pub(crate) struct Mark(OwnedFd);

impl Mark {
    /// Opens the file of a program in advance, because a hanging child may be unable to open it.
    pub(crate) fn on(program: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        open(program, flags, Mode::empty()).map(Mark)
    }

    /// Marks a process; the mark lasts until all copies of the descriptor are closed.
    pub(crate) fn set(&self, pid: u32) {
        // An error cannot be handled here; `marked` detects whether marks can be set.
        let _ = self.lock(bytes_of_user().start + i64::from(pid));
    }

    fn lock(&self, byte: i64) -> nix::Result<()> {
        fcntl(&self.0, FcntlArg::F_OFD_SETLK(&range(F_RDLCK, &(byte..byte + 1)))).map(drop)
    }

    /// Returns a locked range that overlaps this one.
    fn locked_in(&self, bytes: &Range<i64>) -> nix::Result<Option<Range<i64>>> {
        // A query for a write lock conflicts with any other lock.
        let mut answer = range(F_WRLCK, bytes);
        fcntl(&self.0, FcntlArg::F_OFD_GETLK(&mut answer))?;
        let is_free = i32::from(answer.l_type) == F_UNLCK;
        Ok((!is_free).then(|| answer.l_start..answer.l_start.saturating_add(answer.l_len)))
    }

    /// Returns this user's marked PIDs; `None` if there are too many.
    fn marked(&self) -> nix::Result<Option<Vec<u32>>> {
        let own = bytes_of_user();
        let (mut ranges, mut pids) = (vec![own.clone()], Vec::new());
        while let Some(bytes) = ranges.pop() {
            let Some(locked) = self.locked_in(&bytes)? else { continue };
            let offset = locked.start - own.start;
            let pid = u32::try_from(offset).ok().filter(|_| locked.end == locked.start + 1);
            let Some(pid) = pid.filter(|_| pids.len() < MOST) else { return Ok(None) };
            pids.push(pid);
            let parts = [bytes.start..locked.start, locked.end..bytes.end];
            ranges.extend(parts.into_iter().filter(|part| !part.is_empty()));
        }
        pids.sort_unstable();
        Ok(Some(pids))
    }
}

/// Returns the PIDs of this user's children that run this program and may have set their mark.
/// Empty if the program does not exist; `None` if the marks are unknown or cannot be set.
pub(crate) fn marked(program: &Path) -> Option<Vec<u32>> {
    match Mark::on(program) {
        Ok(mark) => mark.lock(UNUSED_BYTE).and_then(|()| mark.marked()).ok().flatten(),
        Err(Errno::NOENT | Errno::NOTDIR) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Returns the bytes for all PIDs of this user.
fn bytes_of_user() -> Range<i64> {
    let user = i64::from(rustix::process::getuid().as_raw());
    user << PID_BITS..(user + 1) << PID_BITS
}

fn range(kind: i32, bytes: &Range<i64>) -> flock {
    flock {
        // The lock types are 0, 1 and 2; SEEK_SET is 0.
        l_type: kind as i16,
        l_whence: SEEK_SET as i16,
        l_start: bytes.start,
        l_len: bytes.end - bytes.start,
        l_pid: 0,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn mark_lasts_until_its_file_is_closed() {
        let program = tempfile::NamedTempFile::new().unwrap();
        // Programs are not writable, but a read lock needs no write permission.
        std::fs::set_permissions(program.path(), Permissions::from_mode(0o555)).unwrap();
        assert_eq!(marked(program.path()), Some(vec![]));
        let marks = [(); 4].map(|()| Mark::on(program.path()).unwrap());
        assert_eq!(marked(program.path()), Some(vec![]), "opened but not marked");
        let last = (1 << PID_BITS) - 1;
        marks.iter().zip([4711, last, 1, 4712]).for_each(|(mark, pid)| mark.set(pid));
        assert_eq!(marked(program.path()), Some(vec![1, 4711, 4712, last]));
        drop(marks);
        until_released(program.path());
    }

    /// Waits until no newly forked child of another test has an inherited copy of a closed mark.
    pub(in crate::child) fn until_released(program: &Path) {
        for _ in 0..10_000 {
            if marked(program) == Some(Vec::new()) {
                return;
            }
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            rustix::event::poll(&mut [], Some(&timeout)).unwrap();
        }
        panic!("the closed mark is still set");
    }

    #[test]
    fn marks_of_other_users_do_not_count() {
        let program = tempfile::NamedTempFile::new().unwrap();
        let other = Mark::on(program.path()).unwrap();
        let own = bytes_of_user();
        for byte in [own.end, UNUSED_BYTE] {
            other.lock(byte).unwrap();
        }
        assert_eq!(marked(program.path()), Some(vec![]));
        assert!(own.end < UNUSED_BYTE);
        assert!(i64::from(u32::MAX) << PID_BITS < UNUSED_BYTE, "the last user has its bytes too");
    }

    #[test]
    fn marks_are_unknown_if_forged_or_impossible() {
        let own = bytes_of_user();
        let program = tempfile::NamedTempFile::new().unwrap();
        let forger = Mark::on(program.path()).unwrap();
        fcntl(&forger.0, FcntlArg::F_OFD_SETLK(&range(F_RDLCK, &(own.start..own.end)))).unwrap();
        assert_eq!(marked(program.path()), None, "one lock of all bytes");

        let program = tempfile::NamedTempFile::new().unwrap();
        // The kernel merges adjacent locks on one file.
        let forger = Mark::on(program.path()).unwrap();
        (0..MOST as u32).for_each(|index| forger.set(2 * index));
        assert_eq!(marked(program.path()).map(|pids| pids.len()), Some(MOST));
        forger.set(1_000_001);
        assert_eq!(marked(program.path()), None, "more than there are");

        let program = tempfile::NamedTempFile::new().unwrap();
        let writer = std::fs::File::options().write(true).open(program.path()).unwrap();
        let all = flock { l_len: 0, ..range(F_WRLCK, &(0..1)) };
        fcntl(&writer, FcntlArg::F_OFD_SETLK(&all)).unwrap();
        assert_eq!(marked(program.path()), None);
        assert_eq!(marked(Path::new("/nowhere/program")), Some(vec![]), "no such program");
    }
}
