//! The mark of a hanging child: a lock that the kernel keeps as long as the child exists.
//!
//! A machine may have thousands of processes, and hanging children are rare. To avoid reading the
//! names of all processes each time, a hanging child locks a byte of its program's file. Only if
//! that byte is locked are the processes searched.
//!
//! - Only processes that run the program of the caller or of its helper count as hanging children,
//!   and the locked file is one of these. All processes to which the child matters see the same
//!   file, in any directory, session or network namespace. Nothing has to be created or removed.
//! - It is a read lock on the open file description (`F_OFD_SETLK`). It ends with the process in
//!   any case. Only a write lock prevents it, which requires write permission for the program.
//! - The offset of the byte is the user ID. Every user who may read the program can lock it too,
//!   which only causes a search without a result.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::path::Path;

/// An offset beyond those of all users; a lock on it has no meaning.
const UNUSED_BYTE: i64 = 1 << 32;

/// A file that can be marked.
pub(crate) struct Mark(OwnedFd);

impl Mark {
    /// Opens the file of a program in advance, because a hanging child may be unable to open it.
    pub(crate) fn on(program: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        open(program, flags, Mode::empty()).map(Mark)
    }

    /// Sets the mark until all copies of the descriptor are closed.
    pub(crate) fn set(&self) {
        // An error cannot be handled here; `may_be_set` checks whether marks can be set.
        let _ = self.lock(own_byte());
    }

    fn lock(&self, byte: i64) -> nix::Result<()> {
        fcntl(&self.0, FcntlArg::F_OFD_SETLK(&range(F_RDLCK, byte))).map(drop)
    }

    fn is_set(&self) -> nix::Result<bool> {
        // A query for a write lock conflicts with any other lock.
        let mut answer = range(F_WRLCK, own_byte());
        fcntl(&self.0, FcntlArg::F_OFD_GETLK(&mut answer))?;
        Ok(i32::from(answer.l_type) != F_UNLCK)
    }
}

/// Returns whether a child of this user that runs this program may have set its mark. Also returns
/// `true` if this is unknown or marks cannot be set, but not if there is no such program.
pub(crate) fn may_be_set(program: &Path) -> bool {
    match Mark::on(program) {
        Ok(mark) => mark.lock(UNUSED_BYTE).is_err() || mark.is_set() != Ok(false),
        Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
    }
}

fn own_byte() -> i64 {
    rustix::process::getuid().as_raw().into()
}

fn range(kind: i32, byte: i64) -> flock {
    // The lock types are 0, 1 and 2; SEEK_SET is 0.
    flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: byte, l_len: 1, l_pid: 0 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn mark_lasts_until_its_file_is_closed() {
        let program = tempfile::NamedTempFile::new().unwrap();
        // Programs are not writable, and a read lock needs no write permission.
        std::fs::set_permissions(program.path(), Permissions::from_mode(0o555)).unwrap();
        assert!(!may_be_set(program.path()));
        let marks = [(); 2].map(|()| Mark::on(program.path()).unwrap());
        assert!(!may_be_set(program.path()), "opened but not marked");
        marks.iter().for_each(Mark::set);
        assert!(may_be_set(program.path()));
        let [first, second] = marks;
        drop(first);
        assert!(may_be_set(program.path()), "another child hangs");
        drop(second);
        until_released(program.path());
    }

    /// Waits until no child of another test, just forked, has an inherited copy of a closed mark.
    pub(in crate::child) fn until_released(program: &Path) {
        for _ in 0..10_000 {
            if !may_be_set(program) {
                return;
            }
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            rustix::event::poll(&mut [], Some(&timeout)).unwrap();
        }
        panic!("the closed mark is still set");
    }

    #[test]
    fn mark_is_own_byte_of_user() {
        let program = tempfile::NamedTempFile::new().unwrap();
        let other = Mark::on(program.path()).unwrap();
        for byte in [own_byte() + 1, UNUSED_BYTE] {
            other.lock(byte).unwrap();
        }
        assert!(!may_be_set(program.path()));
    }

    #[test]
    fn missing_mark_is_inconclusive_if_marks_cannot_be_set() {
        let program = tempfile::NamedTempFile::new().unwrap();
        let writer = std::fs::File::options().write(true).open(program.path()).unwrap();
        let all = flock { l_len: 0, ..range(F_WRLCK, 0) };
        fcntl(&writer, FcntlArg::F_OFD_SETLK(&all)).unwrap();
        assert!(may_be_set(program.path()));
        assert!(!may_be_set(Path::new("/nowhere/program")), "no such program");
    }
}
