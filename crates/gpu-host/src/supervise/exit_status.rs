//! The exit status of a program that ran another.

use gpu_core::JobExit;
use rustix::process::getpid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

/// Ends the calling process by the signal that ended another, so that its parent (a shell script)
/// sees the cause; this applies to SIGINT, SIGTERM and SIGHUP.
///
/// Returns the exit code to use if it has not ended: 128 plus the signal number for a signal, as in
/// shells. The first process of a PID namespace cannot be ended by its own signal.
pub fn end_as(ending: JobExit) -> i32 {
    if let JobExit::Signal(signal @ (SIGINT | SIGTERM | SIGHUP)) = ending
        && !getpid().is_init()
    {
        // It is one of the signals known there.
        let _ = emulate_default_handler(signal);
    }
    ending.code()
}
