//! The mark of a child that hangs: a lock that the kernel keeps for as long as the child is there.
//!
//! A machine may have thousands of processes, and a child that hangs is rare. So nobody reads the
//! names of all processes to find none: such a child locks a byte of its own program's file, and
//! only where that byte is locked are the processes looked through.
//!
//! - Only processes that run the program of the caller or of its helper count as such a child, and
//!   each file that is asked about is one of these. It is the same file for everybody to whom the
//!   child counts, in any directory, session or network namespace. Nothing has to be created or
//!   removed.
//! - The lock is one for reading, on the open file (`F_OFD_SETLK`). It ends with the process, in
//!   whatever way. Only a lock for writing keeps it away, which takes the right to write to the
//!   program.
//! - The byte is numbered by the user. Anybody who may read the program may lock it too, and causes
//!   by that a search that finds nobody: the mark decides only whether to look.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::path::Path;

/// Above the bytes of all users: locks of this part mean nothing.
const TRIAL: i64 = 1 << 32;

/// A mark that can be set.
pub(crate) struct Mark(OwnedFd);

impl Mark {
    /// Opens the file of a program, so that nothing has to be opened when the mark is to be set.
    pub(crate) fn on(program: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        open(program, flags, Mode::empty()).map(Mark)
    }

    /// Sets the mark, until this process and all that have its open file are gone.
    pub(crate) fn set(&self) {
        // Nothing is left to do where it fails. `may_be_set` tries whether it can.
        let _ = self.lock(own_byte());
    }

    fn lock(&self, byte: i64) -> nix::Result<()> {
        fcntl(&self.0, FcntlArg::F_OFD_SETLK(&range(F_RDLCK, byte))).map(drop)
    }

    fn is_set(&self) -> nix::Result<bool> {
        // Asked as if for a lock for writing, which any other lock keeps away.
        let mut answer = range(F_WRLCK, own_byte());
        fcntl(&self.0, FcntlArg::F_OFD_GETLK(&mut answer))?;
        Ok(i32::from(answer.l_type) != F_UNLCK)
    }
}

/// Tells whether a child of this user that runs a program may have set its mark: also where that
/// cannot be found out, or no mark can be set. Not where there is no such program.
pub(crate) fn may_be_set(program: &Path) -> bool {
    match Mark::on(program) {
        Ok(mark) => mark.lock(TRIAL).is_err() || mark.is_set() != Ok(false),
        Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
    }
}

fn own_byte() -> i64 {
    rustix::process::getuid().as_raw().into()
}

fn range(kind: i32, byte: i64) -> flock {
    // The kinds are 0, 1 and 2, the start of a file is 0.
    flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: byte, l_len: 1, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn mark_lasts_until_its_file_is_closed() {
        let program = tempfile::NamedTempFile::new().unwrap();
        // A program is not to be written, and nobody needs to.
        std::fs::set_permissions(program.path(), Permissions::from_mode(0o555)).unwrap();
        assert!(!may_be_set(program.path()));
        let marks = [(); 2].map(|()| Mark::on(program.path()).unwrap());
        assert!(!may_be_set(program.path()), "it is only prepared");
        marks.iter().for_each(Mark::set);
        assert!(may_be_set(program.path()));
        let [first, second] = marks;
        drop(first);
        assert!(may_be_set(program.path()), "another child hangs");
        drop(second);
        assert!(!may_be_set(program.path()));
    }

    #[test]
    fn mark_is_own_byte_of_user() {
        let program = tempfile::NamedTempFile::new().unwrap();
        let other = Mark::on(program.path()).unwrap();
        for byte in [own_byte() + 1, TRIAL] {
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
        assert!(!may_be_set(Path::new("/nowhere/program")), "nobody runs it");
    }
}
