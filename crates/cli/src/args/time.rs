//! Durations as command-line arguments.

use jiff::SpanRelativeTo;
use std::time::Duration;

/// Parses a duration such as `10m`; a number without a unit is in seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds_within(seconds);
    }
    let time: Option<jiff::Span> = text.parse().ok();
    let time = time.and_then(|time| time.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let time = time.ok_or("invalid duration; expected e.g. 90s, 10m, 1h 30m or 2d")?;
    seconds_within(time.as_secs_f64())
}

/// Parses a duration that may be zero.
pub(crate) fn time_or_zero(text: &str) -> Result<Duration, String> {
    let is_zero = text.trim_end_matches('s').parse() == Ok(0.0);
    if is_zero { Ok(Duration::ZERO) } else { time(text) }
}

fn seconds_within(seconds: f64) -> Result<Duration, String> {
    const YEAR: f64 = 366.0 * 86_400.0;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= YEAR => Ok(time),
        _ => Err("must be positive and at most one year".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_defaults_to_seconds() {
        for (text, millis) in [
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("2", 2_000),
            ("0.5", 500),
            ("250ms", 250),
            ("2d", 172_800_000),
            ("1d 12h", 129_600_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0", "0.0", "0s", "00"] {
            assert_eq!(time_or_zero(text), Ok(Duration::ZERO), "{text}");
        }
        for text in ["s", "", "-1s", "1w3"] {
            assert!(time_or_zero(text).is_err(), "{text}");
        }
        assert_eq!(time_or_zero("2m"), Ok(Duration::from_secs(120)));
        assert!(time_or_zero("-1").is_err());
        for text in ["0", "0s", "-5s", "soon", "", "1e400", "inf", "NaN", "999999d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
