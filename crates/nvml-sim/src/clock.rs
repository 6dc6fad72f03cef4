//! The clock that all processes of a session share, and waiting.

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Returns the time since boot (`CLOCK_BOOTTIME`).
pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

/// Waits.
pub(crate) fn sleep(duration: Duration) {
    let mut left = Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    };
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// Waits for ever; a signal that ends the process still does.
pub(crate) fn hang() -> ! {
    loop {
        sleep(Duration::from_secs(3600));
    }
}
