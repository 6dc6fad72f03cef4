//! Forks the program as the child, because starting another program would dominate the time of a
//! short query.

use super::serve::{_exit, serve};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, chdir, setpgid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The child's ends of the protocol: its standard input, output and error.
pub(crate) struct Ends {
    pub(crate) requests: OwnedFd,
    pub(crate) replies: OwnedFd,
    pub(crate) orders: OwnedFd,
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn c_fork() -> c_int;
}

/// Forks this process as a child that serves queries and never returns to the program. Returns
/// `None` if a fork is not safe: with other threads, or with signal handlers that the child would
/// inherit.
///
/// # Errors
/// Those of fork(2).
pub(crate) fn fork(ends: &Ends, library: Option<&Path>) -> io::Result<Option<Pid>> {
    if !is_plain() {
        return Ok(None);
    }
    // SAFETY: the child has only the forking thread. This process has no other thread, so no lock
    // is held and no data is inconsistent.
    let number = unsafe { c_fork() };
    if number == 0 {
        // A panic must not unwind into the program's code.
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

/// Detaches from the program's terminal, process group and directory. [`serve`] closes the other
/// descriptors.
fn detach_from_program(ends: &Ends) -> rustix::io::Result<()> {
    dup2_stdin(&ends.requests)?;
    dup2_stdout(&ends.replies)?;
    dup2_stderr(&ends.orders)?;
    setpgid(None, None)?;
    chdir("/")
}

/// Signals whose handlers a fork may inherit, as bits of the masks in `/proc/PID/status`: SIGBUS
/// and SIGSEGV, which the standard library handles to detect stack overflows, and SIGXFSZ, where
/// the handler only makes a write beyond the file size limit fail.
const OWN_HANDLERS: u64 = 1 << (7 - 1) | 1 << (11 - 1) | 1 << (25 - 1);

/// Returns whether this process certainly has a single thread and no signal handlers other than
/// [`OWN_HANDLERS`].
fn is_plain() -> bool {
    // The file reports no size, so without a capacity it would be read in many small pieces.
    let mut status = String::with_capacity(4096);
    let read =
        File::open("/proc/self/status").and_then(|mut file| file.read_to_string(&mut status));
    read.is_ok_and(|_| {
        let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let caught = value("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        value("Threads:") == Some("1") && caught.is_some_and(|mask| mask & !OWN_HANDLERS == 0)
    })
}
