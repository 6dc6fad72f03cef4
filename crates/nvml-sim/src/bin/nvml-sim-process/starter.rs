//! Closes the inherited descriptors that another process could wait for.

use gpu_sim::Session;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Replaces standard input, output and error, because another process may wait for the end of these
/// pipes, and closes the session's lock file, which would keep the session alive. Other descriptors
/// stay open, because one may hold a lease.
///
/// # Errors
/// If `/dev/null` or `/proc` cannot be opened.
pub(crate) fn detach(dir: &Path) -> io::Result<()> {
    let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    quiet()?;
    for number in locks(dir)? {
        // SAFETY: the descriptor was inherited, so nothing in this program owns it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
    Ok(())
}

/// Replaces standard output and error.
///
/// # Errors
/// If `/dev/null` cannot be opened.
pub(crate) fn quiet() -> io::Result<()> {
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}

/// Returns the inherited descriptors of the lock file of a session.
fn locks(dir: &Path) -> io::Result<Vec<RawFd>> {
    let lock = match stat(dir.join(Session::ALIVE)) {
        Ok(lock) => lock,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    let is_lock = |number: &RawFd| {
        // SAFETY: the descriptor is only used here; if it is invalid, `fstat` fails.
        let file = fstat(unsafe { BorrowedFd::borrow_raw(*number) });
        file.is_ok_and(|file| (file.st_dev, file.st_ino) == (lock.st_dev, lock.st_ino))
    };
    let names = fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<RawFd>().ok());
    Ok(numbers.filter(|number| *number > 2).filter(is_lock).collect())
}

/// Returns whether a session has ended: its directory is gone, or it was killed and no process
/// locks its lock file. A session created by hand has no lock file.
pub(crate) fn is_over(dir: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_unlocked = || {
        let lock = open(dir.join(Session::ALIVE), flags, Mode::empty());
        lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
    };
    !dir.join(Session::FILE).exists() || is_unlocked()
}
