//! Locks on open file descriptions (`F_OFD_SETLK`), which end with the last descriptor of the
//! description, in whichever process.
//!
//! They conflict with POSIX record locks, which `fcntl.lockf` takes, and are not dropped when
//! another descriptor of the same file is closed. `flock` is independent of both.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};
use rustix::fd::AsFd;
use rustix::io::{Errno, Result};

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Exclusive.
    Write,
    /// Shared with other read locks, but not with [`Write`](Lock::Write).
    Read,
}

/// Locks a whole file, without waiting; returns false if another description has locked it.
pub(crate) fn try_lock(file: impl AsFd, lock: Lock) -> Result<bool> {
    match set(file, if lock == Lock::Write { F_WRLCK } else { F_RDLCK }) {
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        set => set.map(|()| true),
    }
}

/// Unlocks a file, for all owners of the same open file description.
pub(super) fn unlock(file: impl AsFd) -> Result<()> {
    set(file, F_UNLCK)
}

/// Returns whether another open file description has locked a file for writing.
pub(super) fn is_write_locked(file: impl AsFd) -> Result<bool> {
    Ok(write_locker(file)?.is_some())
}

/// Returns the `l_pid` of a foreign write lock on a file (fcntl(2)).
///
/// The query is for a read lock, which another's read lock does not block: any user who may read a
/// file could take one, so it means nothing.
pub(super) fn write_locker(file: impl AsFd) -> Result<Option<i32>> {
    let mut answer = whole_file(F_RDLCK);
    fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut answer)).map_err(errno)?;
    Ok((i32::from(answer.l_type) == F_WRLCK).then_some(answer.l_pid))
}

fn set(file: impl AsFd, kind: i32) -> Result<()> {
    fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&whole_file(kind))).map(|_| ()).map_err(errno)
}

fn whole_file(kind: i32) -> flock {
    // The kinds are 0, 1 and 2, the start of a file is 0.
    flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_foreign_write_lock_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let first = File::create_new(&path).unwrap();
        let second = File::options().read(true).write(true).open(&path).unwrap();
        assert!(!is_write_locked(&second).unwrap());
        assert!(try_lock(&second, Lock::Read).unwrap());
        let third = File::open(&path).unwrap();
        assert!(!is_write_locked(&third).unwrap(), "a reader's lock means nothing");
        assert!(!try_lock(&first, Lock::Write).unwrap());
        unlock(&second).unwrap();
        assert!(try_lock(&first, Lock::Write).unwrap());
        assert!(is_write_locked(&third).unwrap());
        assert!(!try_lock(&second, Lock::Read).unwrap());

        // The lock belongs to the open file description: it survives one of its descriptors, and a
        // second open.
        let copy = first.try_clone().unwrap();
        drop((first, second));
        assert!(is_write_locked(&third).unwrap());
        drop(copy);
        assert!(!is_write_locked(&third).unwrap());
    }
}
