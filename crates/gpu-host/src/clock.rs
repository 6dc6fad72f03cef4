//! The only clock that is not an argument.

use gpu_core::{Clock, Timestamp};
use std::time::{Duration, Instant, SystemTime};

/// No caller waits longer, and the kernel can add it to the current time without overflow.
const LONGEST_SLEEP: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// The clock of this machine.
///
/// Everything else takes a [`Clock`]; only the program creates this one.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    made: Instant,
}

impl SystemClock {
    /// Returns the machine's clock, its monotonic time counted from this call.
    #[expect(clippy::new_without_default, reason = "two of them do not agree")]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    pub fn new() -> Self {
        SystemClock { made: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let millis = since.unwrap_or_default().as_millis();
        Timestamp(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.made.elapsed()
    }

    /// Sleeps for `duration`, a century at most.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration.min(LONGEST_SLEEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_advances_monotonic_clock() {
        let clock = SystemClock::new();
        let (wall, monotonic) = (clock.wall(), clock.monotonic());
        clock.sleep(Duration::from_millis(5));
        assert!(clock.monotonic() >= monotonic + Duration::from_millis(5));
        assert!(wall > Timestamp(1_600_000_000_000), "{wall} lies before this was written");
    }
}
