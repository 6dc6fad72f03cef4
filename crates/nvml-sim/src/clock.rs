//! The clock shared by all processes of a session, and waiting.

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Returns the time since boot (`CLOCK_BOOTTIME`).
pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

/// Returns the wall clock, in microseconds since 1970 (`CLOCK_REALTIME`).
///
/// This is the time of the real machine, not of the simulated one, because callers query the last
/// second of their own time.
pub(crate) fn wall_micros() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, nanos) = (now.tv_sec.try_into(), now.tv_nsec.try_into());
    let since = Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0));
    since.as_micros().try_into().unwrap_or(u64::MAX)
}

pub(crate) fn sleep(duration: Duration) {
    let mut left = Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    };
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// Waits forever; a fatal signal still ends the process.
pub(crate) fn hang() -> ! {
    loop {
        sleep(Duration::from_secs(3600));
    }
}
