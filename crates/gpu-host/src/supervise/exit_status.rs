//! How a program that ran another ends.

use gpu_core::JobExit;
use rustix::process::getpid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

/// Ends the calling process by the signal that ended another, so that whoever waits for it (a
/// shell script) sees what happened; that is done for SIGINT, SIGTERM and SIGHUP.
///
/// Returns the code to end with where it has not ended: a signal's is 128 and its number, as
/// shells have it. The first process of a PID namespace cannot be ended by its own signal.
pub fn end_as(ending: JobExit) -> i32 {
    if let JobExit::Signal(signal @ (SIGINT | SIGTERM | SIGHUP)) = ending
        && !getpid().is_init()
    {
        // It is one of the signals that are known there.
        let _ = emulate_default_handler(signal);
    }
    ending.code()
}
