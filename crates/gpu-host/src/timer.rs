//! The kernel's clocks, for waits that only the kernel can end early.

use rustix::event::{PollFd, poll};
use rustix::io::{Errno, Result};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Returns the time since boot, the same for all processes of a machine, suspended time included.
pub(crate) fn since_boot() -> Duration {
    duration(clock_gettime(ClockId::Boottime))
}

/// Returns the monotonic time.
pub(crate) fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Returns the wall clock, in seconds since 1970.
pub(crate) fn wall_seconds() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

/// Returns the clock that stamps files, in seconds and nanoseconds since 1970.
pub(crate) fn wall() -> (i64, i64) {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::RealtimeCoarse);
    (tv_sec, tv_nsec)
}

/// Waits until one of these is readable, or a signal arrives, at most `at_most`; without it,
/// indefinitely.
///
/// # Errors
/// Those of the kernel; without files there are none.
pub(crate) fn pause(files: &mut [PollFd<'_>], at_most: Option<Duration>) -> Result<()> {
    match poll(files, at_most.map(timespec).as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Waits, or returns earlier when a signal arrives.
pub(crate) fn sleep(time: Duration) {
    let _ = pause(&mut [], Some(time));
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX / 2),
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;
    use gpu_core::Clock;

    #[test]
    fn wall_clock_matches_system_clock() {
        let seconds = || i64::try_from(SystemClock::new().wall().0 / 1000).unwrap();
        let (before, now, after) = (seconds(), wall_seconds(), seconds());
        assert!((before..=after).contains(&now), "{before} {now} {after}");
    }

    #[test]
    fn time_survives_conversion() {
        for time in [Duration::ZERO, Duration::new(7, 999_999_999), Duration::from_secs(1 << 40)] {
            assert_eq!(duration(timespec(time)), time);
        }
        assert!(timespec(Duration::MAX).tv_sec > 1 << 40, "a wait without end");
        assert_eq!(duration(Timespec { tv_sec: -1, tv_nsec: 0 }), Duration::ZERO);
    }
}
