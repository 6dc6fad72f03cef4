//! gpu-host against the running kernel: real processes that hold files in every way.
//!
//! All of it runs twice where the tests are run by root: once as root, and once more as nobody,
//! since what may be seen and how it is found out differ.

mod child;
mod handles;
mod holders;
mod processes;
mod programs;
mod threads;
mod unprivileged;

use gpu_host::{LinuxHost, Roots};
use std::io::Write;

/// Returns the machine that the tests run on.
fn host() -> LinuxHost {
    LinuxHost::new(Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() })
}

/// Says that a test was not run, past the capture of the test harness.
fn skip(test: &str, why: &str) {
    writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("standard error is open");
}
