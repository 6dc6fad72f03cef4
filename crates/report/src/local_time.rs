//! Local times in the formats of nvidia-smi and Python.

use gpu_core::Timestamp;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};

/// Formats a time as nvidia-smi does: `2026/11/21 04:35:24.123`.
pub fn as_nvidia_smi(at: Timestamp, zone: &TimeZone) -> String {
    format(at, zone, "%Y/%m/%d %H:%M:%S.%3f")
}

/// Formats a time for people: `2026-11-23 10:05:07`.
pub fn readable(at: Timestamp, zone: &TimeZone) -> String {
    format(at, zone, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time as Python's `datetime.isoformat` does: `2026-11-21T04:35:24.123000`. The fraction
/// is printed even if it is zero.
pub fn as_python(at: Timestamp, zone: &TimeZone) -> String {
    format(at, zone, "%Y-%m-%dT%H:%M:%S.%6f")
}

/// Parses a point in time: RFC 3339, or a date with or without a time of day in this time zone, such
/// as `2026-11-24 10:00`.
///
/// # Errors
/// A fragment that says what was expected.
pub fn parse(text: &str, zone: &TimeZone) -> Result<Timestamp, String> {
    let instant = text.parse::<Instant>().ok().or_else(|| {
        let local: jiff::civil::DateTime = text.parse().ok()?;
        Some(local.to_zoned(zone.clone()).ok()?.timestamp())
    });
    let at = instant.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    let expected = || "expected e.g. 2026-11-24, '2026-11-24 10:00' or 2026-11-24T10:00:00Z";
    at.map(Timestamp).ok_or_else(|| format!("'{text}' is no time; {}", expected()))
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
    fn times_are_parsed_in_the_zone() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let hour = 3_600_000;
        for (text, at) in [
            ("2026-11-24", 1_795_474_800_000),
            ("2026-11-24 10:00", 1_795_474_800_000 + 10 * hour),
            ("2026-11-24T10:00:30", 1_795_474_830_000 + 10 * hour),
            ("2026-11-24T10:00:00Z", 1_795_474_800_000 + 11 * hour),
            ("2026-07-01", 1_782_856_800_000),
        ] {
            assert_eq!(parse(text, &berlin), Ok(Timestamp(at)), "{text}");
        }
        for text in ["", "yesterday", "24.11.2026", "1969-01-01", "2026-13-01"] {
            assert!(parse(text, &berlin).is_err(), "{text}");
        }
    }

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
