//! The progress of an action that takes longer than a second.

use super::{clean, localized};
use gpu_core::{Clock, Pid};
use gpu_host::SystemClock;
use gpu_host::supervise::process_group;
use rustix::termios::tcgetpgrp;
use std::io::{self, Write};
use std::time::Duration;

/// The time until progress is first shown, and between updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// A line on a terminal at standard error that is rewritten repeatedly, and erased at the end.
pub(crate) struct Progress {
    clock: SystemClock,
    quiet: bool,
    /// When it was last shown, and how often.
    shown: (Duration, usize),
}

impl Progress {
    /// Returns progress that begins now; `quiet` suppresses it.
    pub(crate) fn start(quiet: bool) -> Self {
        let clock = SystemClock::new();
        let shown = (clock.monotonic(), 0);
        Progress { clock, quiet, shown }
    }

    /// Erases the progress line.
    pub(crate) fn erase(&self) {
        if self.shown.1 > 0 {
            redraw("");
        }
    }

    /// Shows the progress, if an update is due.
    pub(crate) fn show(&mut self, what: impl FnOnce() -> String) {
        let now = self.clock.monotonic();
        if !self.quiet && now - self.shown.0 >= INTERVAL {
            redraw(&what());
            self.shown = (now, self.shown.1 + 1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Replaces the last line of progress by this one if this job is in the foreground of its terminal,
/// and standard error is that terminal.
fn redraw(text: &str) {
    let mut stderr = io::stderr();
    let front = tcgetpgrp(&stderr).ok().map(|id| Pid(id.as_raw_nonzero().get().unsigned_abs()));
    if front.is_some() && front == process_group() {
        // An error here must not fail the command.
        let _ = write!(stderr, "\r\x1b[K{}", localized(clean(text).into_owned()));
    }
}
