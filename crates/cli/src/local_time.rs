//! The time zone of this machine.

use gpu_report::TimeZone;

/// Returns the time zone of `TZ` or `/etc/localtime`, or UTC.
pub(crate) fn zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}
