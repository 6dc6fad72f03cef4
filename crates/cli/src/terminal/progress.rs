//! The progress of something that takes longer than a second.

use super::{localized, said};
use gpu_core::Clock;
use gpu_host::SystemClock;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// From then on it is shown, and as often.
const INTERVAL: Duration = Duration::from_secs(1);

/// A line on a terminal at standard error that is written again and again, and erased at the end.
pub(crate) struct Progress {
    clock: SystemClock,
    next: Duration,
    is_shown: bool,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        let clock = SystemClock::new();
        let next = clock.monotonic() + INTERVAL;
        Progress { clock, next, is_shown: false, is_terminal: io::stderr().is_terminal() }
    }

    /// Shows what is done, if it is time to.
    pub(crate) fn show(&mut self, what: impl FnOnce() -> String) {
        if self.is_terminal && self.clock.monotonic() >= self.next {
            // An error here must not fail the command.
            let _ = write!(io::stderr(), "\r\x1b[K{}", localized(said(&what())));
            self.next = self.clock.monotonic() + INTERVAL;
            self.is_shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
