//! Local times in the formats of nvidia-smi and Python.

use gpu_core::Timestamp;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};

/// Formats a time as nvidia-smi does: `2026/11/21 04:35:24.123`.
pub(crate) fn as_nvidia_smi(at: Timestamp, zone: &TimeZone) -> String {
    format(at, zone, "%Y/%m/%d %H:%M:%S.%3f")
}

/// Formats a time for people: `2026-11-23 10:05:07`.
pub fn readable(at: Timestamp, zone: &TimeZone) -> String {
    format(at, zone, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time as Python's `datetime.isoformat` does: `2026-11-21T04:35:24.123000`. The fraction
/// is printed even if it is zero.
pub(crate) fn as_python(at: Timestamp, zone: &TimeZone) -> String {
    format(at, zone, "%Y-%m-%dT%H:%M:%S.%6f")
}

pub(crate) fn format(at: Timestamp, zone: &TimeZone, form: &str) -> String {
    let instant = i64::try_from(at.0).ok().and_then(|at| Instant::from_millisecond(at).ok());
    let instant = instant.unwrap_or(Instant::MAX);
    Zoned::new(instant, zone.clone()).strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_include_fraction() {
        let at = Timestamp(1_795_235_724_007);
        let nvidia_smi = "%Y/%m/%d %H:%M:%S.%3f";
        assert_eq!(format(at, &TimeZone::UTC, nvidia_smi), "2026/11/21 04:35:24.007");
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(format(at, &berlin, nvidia_smi), "2026/11/21 05:35:24.007");
        let python = "%Y-%m-%dT%H:%M:%S.%6f";
        let whole = Timestamp(1_795_235_724_000);
        assert_eq!(format(whole, &TimeZone::UTC, python), "2026-11-21T04:35:24.000000");
        assert!(format(Timestamp(u64::MAX), &TimeZone::UTC, python).starts_with("9999"));
    }
}
