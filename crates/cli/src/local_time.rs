//! The time zone of this machine.

use gpu_report::TimeZone;

/// The time zone that `TZ` or else `/etc/localtime` names, UTC where neither does.
pub(crate) fn zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}
