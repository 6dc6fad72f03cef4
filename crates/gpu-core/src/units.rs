//! Quantities with their units in the type.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

/// An amount of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Bytes(pub u64);

impl Bytes {
    /// One mebibyte.
    pub const MIB: u64 = 1 << 20;

    /// Returns `mib` mebibytes (2^20 bytes), saturating at the largest representable amount.
    pub const fn from_mib(mib: u64) -> Self {
        Bytes(mib.saturating_mul(Self::MIB))
    }

    /// Returns the amount in whole mebibytes, rounded down.
    pub const fn mib(self) -> u64 {
        self.0 / Self::MIB
    }

    /// Returns the amount in gibibytes.
    pub fn gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// Subtracts, saturating at zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Bytes(0), Add::add)
    }
}

impl fmt::Display for Bytes {
    /// Writes whole mebibytes with thousands separated, as in `15,849 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.mib().to_string();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        f.write_str(" MiB")
    }
}

/// The units of amounts of memory in user input. `G` is `GiB`, as for docker, ulimit and Slurm.
const UNITS: [(&str, u64); 12] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

impl FromStr for Bytes {
    type Err = String;

    /// Parses an amount of memory with its unit, such as `6GiB`, `6G` or `500 MiB`: positive, and at
    /// most 8192 TiB.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..digits], text[digits..].trim());
        let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let (_, unit) = unit.ok_or("missing unit, e.g. 6G or 500MiB")?;
        let amount: f64 = number.parse().map_err(|_| format!("'{number}' is not a number"))?;
        let bytes = amount * *unit as f64;
        // `f64` represents every whole number up to 2^53, here 8 PiB.
        if bytes >= 1.0 && bytes <= (1_u64 << 53) as f64 {
            Ok(Bytes(bytes as u64))
        } else {
            Err("must be positive and at most 8192TiB".to_owned())
        }
    }
}

impl Bytes {
    /// Writes the amount in the largest unit that represents it exactly, as [`Bytes::from_str`]
    /// parses it.
    pub fn exact(self) -> String {
        match UNITS.iter().find(|(_, unit)| self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => format!("{}{name}", self.0 / unit),
            // Division by a power of two is exact.
            None => format!("{}KiB", self.0 as f64 / 1024.0),
        }
    }
}

/// Writes an amount with a suitable unit: `5.96 GiB`, `256 MiB`, `12.5 KiB`, `0`.
pub fn amount(bytes: Bytes) -> String {
    let Bytes(count) = bytes;
    let shown = |unit: u32, name: &str| {
        let value = count as f64 / (1u64 << unit) as f64;
        let text = format!("{value:.2}");
        let text = if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.')
        } else {
            &text
        };
        format!("{text} {name}")
    };
    match count {
        0 => "0".to_owned(),
        1..0x400 => format!("{count} bytes"),
        0x400..0x10_0000 => shown(10, "KiB"),
        0x10_0000..0x4000_0000 => shown(20, "MiB"),
        _ => shown(30, "GiB"),
    }
}

/// Power, in milliwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Milliwatts(pub u64);

impl fmt::Display for Milliwatts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} W", self.0.saturating_add(500) / 1000)
    }
}

/// Temperature, in degrees Celsius.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Celsius(pub i32);

impl fmt::Display for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}°C", self.0)
    }
}

/// A share of time or of a range, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Percent(u8);

impl Percent {
    /// Returns the percentage, or `None` above 100: NVML's process samples are known to contain
    /// garbage such as 37,100 %.
    pub fn new(value: u64) -> Option<Self> {
        u8::try_from(value).ok().filter(|v| *v <= 100).map(Percent)
    }

    /// Returns the percentage as a number from 0 to 100.
    pub const fn get(self) -> u8 {
        self.0
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Percent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(deserializer)?;
        Percent::new(value).ok_or_else(|| serde::de::Error::custom("a percentage above 100"))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
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
            ("6G", 6 << 30),
            ("512m", 512 << 20),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["0", "0GiB", "6", "6Q", "-1GiB", "GiB", "1e9GiB", "9999999TiB", ".GiB", ""] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
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
            assert_eq!(Bytes(bytes).exact(), text);
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn mib_display_groups_thousands() {
        assert_eq!(Bytes::from_mib(0).to_string(), "0 MiB");
        assert_eq!(Bytes::from_mib(999).to_string(), "999 MiB");
        assert_eq!(Bytes::from_mib(15_849).to_string(), "15,849 MiB");
        assert_eq!(Bytes::from_mib(1_234_567).to_string(), "1,234,567 MiB");
    }

    #[test]
    fn amount_picks_suitable_unit() {
        for (bytes, text) in [
            (0, "0"),
            (7, "7 bytes"),
            (12_800, "12.5 KiB"),
            (256 << 20, "256 MiB"),
            (6_399_500_000, "5.96 GiB"),
            (80 << 30, "80 GiB"),
        ] {
            assert_eq!(amount(Bytes(bytes)), text);
        }
    }

    #[test]
    fn byte_sums_saturate() {
        assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
        assert_eq!([Bytes(u64::MAX), Bytes(7)].into_iter().sum::<Bytes>(), Bytes(u64::MAX));
        assert_eq!(Bytes(1).saturating_sub(Bytes(2)), Bytes(0));
    }

    #[test]
    fn maximum_values_can_be_formatted() {
        assert_eq!(Milliwatts(u64::MAX).to_string(), "18446744073709551 W");
        assert_eq!(Milliwatts(312_499).to_string(), "312 W");
        assert_eq!(Bytes(u64::MAX).to_string(), "17,592,186,044,415 MiB");
    }

    #[test]
    fn percent_above_100_is_rejected() {
        assert_eq!(Percent::new(37_100), None);
        assert_eq!(Percent::new(100).map(Percent::get), Some(100));
    }
}
