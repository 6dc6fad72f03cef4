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

/// Starts a copy of this process as a child that serves; nothing that the program would do later
/// is done there. `None` where a copy would not be safe: beside other threads, or with handlers of
/// signals, which would run in the copy too.
///
/// # Errors
/// Those of fork(2).
pub(crate) fn fork(ends: &Ends, library: Option<&Path>) -> io::Result<Option<Pid>> {
    if !is_plain() {
        return Ok(None);
    }
    // SAFETY: a copy has only the thread that forks. As this process has no other, nobody holds a
    // lock that the copy would wait for, and no data is half changed.
    let number = unsafe { c_fork() };
    if number == 0 {
        // The copy of the program must not go on where a panic would lead it.
        let _ = catch_unwind(AssertUnwindSafe(|| match detach_from_program(ends) {
            Ok(()) => serve(library),
            Err(_) => _exit(1),
        }));
        _exit(1);
    }
    match Pid::from_raw(number) {
        Some(pid) if number > 0 => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets go of what the program has: its terminal, its process group, its directory. What else it
/// has open, [`serve`] closes.
fn detach_from_program(ends: &Ends) -> rustix::io::Result<()> {
    let nowhere = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&ends.input)?;
    dup2_stdout(&ends.output)?;
    dup2_stderr(&nowhere)?;
    setpgid(None, None)?;
    chdir("/")
}

/// The signals that the standard library itself handles, to tell a stack that overflows: SIGBUS
/// and SIGSEGV, as bits of the masks in `/proc/PID/status`.
const OWN_HANDLERS: u64 = 1 << (7 - 1) | 1 << (11 - 1);

/// Tells whether this process surely has one thread, and no handler of signals but the standard
/// library's.
fn is_plain() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let caught = value("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        value("Threads:") == Some("1") && caught.is_some_and(|mask| mask & !OWN_HANDLERS == 0)
    })
}
