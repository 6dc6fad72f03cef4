//! The child as a copy of the program, without the start of another one: what costs most of the
//! time of a short look.

use super::serve::{_exit, serve};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, chdir, setpgid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The child's ends of the conversation.
pub(crate) struct Ends {
    pub(crate) input: OwnedFd,
    pub(crate) output: OwnedFd,
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn c_fork() -> c_int;
}

/// Starts a copy of this process, which is to have one thread, as a child that serves. Nothing
/// that the program would do later is done there.
///
/// # Errors
/// Those of fork(2).
pub(crate) fn fork(ends: &Ends, library: Option<&Path>) -> io::Result<Pid> {
    // SAFETY: a copy has only the thread that forks. As this process has no other, nobody holds a
    // lock that the copy would wait for, and no data is half changed.
    let number = unsafe { c_fork() };
    if number == 0 {
        // The copy of the program must not go on where a panic would lead it.
        let _ = catch_unwind(AssertUnwindSafe(|| match stand_alone(ends) {
            Ok(()) => serve(library),
            Err(_) => _exit(1),
        }));
        _exit(1);
    }
    match number {
        1.. => Pid::from_raw(number).ok_or_else(|| io::ErrorKind::Other.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets go of what the program has: its terminal, its process group, its folder. What else it has
/// open, [`serve`] closes.
fn stand_alone(ends: &Ends) -> rustix::io::Result<()> {
    let nowhere = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&ends.input)?;
    dup2_stdout(&ends.output)?;
    dup2_stderr(&nowhere)?;
    setpgid(None, None)?;
    chdir("/")
}

/// Tells whether this process surely has no thread but the one that asks.
pub(crate) fn has_one_thread() -> bool {
    // A folder has a link from each folder in it, and two of its own.
    rustix::fs::stat("/proc/self/task").is_ok_and(|task| task.st_nlink == 3)
}
