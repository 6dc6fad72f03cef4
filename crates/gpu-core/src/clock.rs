//! Time as an argument.

use std::fmt;
use std::time::Duration;

/// A point on the wall clock, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time from `earlier` to this point, zero if it lies before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC, `2026-11-21T01:04:43.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Days to a civil date, after Howard Hinnant's `civil_from_days` (chrono-compatible
        // low-level date algorithms), for dates from 1970 on.
        let (days, millis) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let of_era = shifted % 146_097;
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let seconds = millis / 1000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            millis % 1000
        )
    }
}

/// Reads and passes time; a simulated clock moves only on request.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Clock: Send + Sync {
    /// Returns the wall clock.
    fn wall(&self) -> Timestamp;
    /// Returns the time since some fixed point; never goes back.
    fn monotonic(&self) -> Duration;
    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn timestamps_format_across_leap_years() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_583_020_799_999, "2020-02-29T23:59:59.999Z"),
            (1_583_020_800_000, "2020-03-01T00:00:00.000Z"),
            (1_795_223_083_000, "2026-11-21T01:04:43.000Z"),
        ] {
            assert_eq!(Timestamp(millis).to_string(), text);
        }
    }
}
