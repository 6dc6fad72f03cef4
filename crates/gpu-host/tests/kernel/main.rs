//! gpu-host against the running kernel: real processes that hold files in every way.
//!
//! If root runs the tests, everything runs twice: once as root, and once as nobody, because
//! visibility and detection differ.

mod bpf;
mod child;
mod handles;
mod holders;
mod processes;
mod programs;
mod threads;
mod unprivileged;

use gpu_host::{LinuxHost, Roots};
use gpu_nvidia_driver::drivers;
use std::io::Write;

/// Returns the machine that runs the tests.
fn host() -> LinuxHost {
    let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
    LinuxHost::with_drivers(roots, drivers())
}

/// Prints that a test was skipped, past the capture of the test harness.
fn skip(test: &str, why: &str) {
    writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("standard error is open");
}
