//! Amounts of memory and durations as command-line arguments.

use gpu_core::Bytes;
use std::time::Duration;

const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// Returns an amount of memory in the largest unit that represents it exactly.
pub(super) fn written(bytes: Bytes) -> String {
    match UNITS.iter().find(|(_, unit)| bytes.0.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes.0 / unit),
        // Division by a power of two is exact.
        None => format!("{}KiB", bytes.0 as f64 / 1024.0),
    }
}

/// Parses an amount of memory with its unit.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let (_, unit) = unit.ok_or("missing unit, e.g. 6GiB or 500MiB")?;
    let amount: f64 = number.parse().map_err(|_| format!("'{number}' is not a number"))?;
    let bytes = amount * *unit as f64;
    // `f64` represents every whole number up to 2^53, here 8 PiB.
    match bytes >= 1.0 && bytes <= (1_u64 << 53) as f64 {
        true => Ok(Bytes(bytes as u64)),
        false => Err("must be positive and at most 8192TiB".to_owned()),
    }
}

/// Parses a duration such as `10m`; a number without a unit is in seconds.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds_within(seconds);
    }
    let time: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "invalid duration; expected e.g. 90s, 10m, 2h or 1h 30m".to_owned())?;
    seconds_within(time.as_secs_f64())
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
    fn memory_size_requires_unit() {
        for (text, bytes) in [
            ("6GiB", 6 << 30),
            ("500 MiB", 500 << 20),
            ("1.5gib", 3 << 29),
            ("2GB", 2_000_000_000),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["0", "0GiB", "6", "6G", "-1GiB", "GiB", "1e9GiB", "9999999TiB", ".GiB", ""] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_size_round_trips() {
        for (bytes, text) in [
            (6 << 30, "6GiB"),
            (3 << 29, "1536MiB"),
            (2_000_000_000, "1953125KiB"),
            (300_000_001, "292968.7509765625KiB"),
            (1_000, "1KB"),
        ] {
            assert_eq!(written(Bytes(bytes)), text);
            assert_eq!(size(text), Ok(Bytes(bytes)));
        }
    }

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
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0", "0s", "-5s", "soon", "", "1e400", "inf", "NaN", "999999d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
