//! The kernel's clocks, for waits that a lock needs.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Returns the time since boot, the same for all processes of a machine, sleep included.
pub(super) fn since_boot() -> Duration {
    duration(clock_gettime(ClockId::Boottime))
}

/// Returns a time that never goes back.
pub(super) fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Returns the wall clock, in seconds since 1970.
pub(super) fn wall_seconds() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

/// Waits, or returns earlier when a signal came.
pub(super) fn pause(time: Duration) {
    let _ = rustix::event::poll(&mut [], Some(&timespec(time)));
}

pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
