//! The settings of TensorFlow's allocator.

use super::round;
use crate::totals::left;
use gpu_core::{Bytes, MemoryInfo};

/// The maximum unused remainder of a chunk that is not split, if no fraction is set.
const MAX_SLACK: u64 = 128 << 20;
/// The size of the first region when growth is allowed.
const FIRST_REGION: u64 = 2 << 20;

/// The settings of TensorFlow's allocator; the default is TensorFlow's own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Settings {
    /// The maximum memory to take from the device (`LogicalDeviceConfiguration(memory_limit=…)`);
    /// if not set, [`default_limit`] of the free memory at startup.
    #[cfg_attr(feature = "serde", serde(rename = "limit_bytes"))]
    pub limit: Option<Bytes>,
    /// Takes regions as needed, each twice as long as the previous one, instead of one region at
    /// once (`TF_FORCE_GPU_ALLOW_GROWTH`).
    pub allow_growth: bool,
    /// Frees completely free regions before a request fails (`TF_ENABLE_GPU_GARBAGE_COLLECTION`; on
    /// in TensorFlow, off in JAX).
    pub garbage_collection: bool,
    /// The maximum unused remainder of a chunk that is not split, as a fraction of the limit; 0
    /// means 128 MiB (`experimental.internal_fragmentation_fraction`).
    pub fragmentation_fraction: f64,
    /// When to request less after the device refuses a region.
    pub back_off: BackOff,
    /// Maps pages at adjacent addresses, so that regions merge; for devices with virtual memory
    /// (TensorFlow's virtual memory sub-allocator).
    pub adjacent_regions: bool,
    /// The major compute capability of the device, for [`default_limit`].
    pub compute_capability: u32,
}

/// When an allocator requests less after the device refuses a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BackOff {
    /// Once in its lifetime, as TensorFlow does.
    #[default]
    Once,
    /// For every region, as XLA has done since 2025.
    Always,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limit: None,
            allow_growth: false,
            garbage_collection: true,
            fragmentation_fraction: 0.0,
            back_off: BackOff::Once,
            adjacent_regions: false,
            compute_capability: 8,
        }
    }
}

/// Why a setting was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such setting exists.
    #[error("set '{key}': BFC has {}", Settings::KEYS.join(", "))]
    Unknown {
        /// The setting.
        key: String,
    },
    /// The setting does not accept this value.
    #[error("set '{key}' to '{value}': expected {takes}")]
    Value {
        /// The setting.
        key: String,
        /// The value.
        value: String,
        /// The accepted values.
        takes: &'static str,
    },
}

impl Settings {
    /// The names that [`set`](Settings::set) accepts.
    pub const KEYS: [&'static str; 7] = [
        "limit",
        "allow_growth",
        "garbage_collection",
        "fragmentation_fraction",
        "back_off",
        "adjacent_regions",
        "compute_capability",
    ];

    /// Parses a value and assigns it to the setting with this name.
    ///
    /// # Errors
    /// A [`SettingError`] for an unknown name or an invalid value; the settings are then unchanged.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let refuse = |takes| SettingError::Value { key: key.into(), value: value.into(), takes };
        let boolean = || match value {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(refuse("true or false")),
        };
        match key {
            "limit" => {
                let bytes = bytes(value)
                    .ok_or_else(|| refuse("a size, such as 6GiB or a number of bytes"))?;
                self.limit = Some(bytes);
            }
            "allow_growth" => self.allow_growth = boolean()?,
            "garbage_collection" => self.garbage_collection = boolean()?,
            "adjacent_regions" => self.adjacent_regions = boolean()?,
            "fragmentation_fraction" => {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                self.fragmentation_fraction =
                    share.ok_or_else(|| refuse("a fraction from 0 to 1"))?;
            }
            "back_off" => {
                self.back_off = match value {
                    "once" => BackOff::Once,
                    "always" => BackOff::Always,
                    _ => return Err(refuse("once or always")),
                }
            }
            "compute_capability" => {
                let major = value.split('.').next().and_then(|major| major.parse().ok());
                self.compute_capability = major.ok_or_else(|| refuse("a number, as in 8.6"))?;
            }
            _ => return Err(SettingError::Unknown { key: key.into() }),
        }
        Ok(())
    }

    /// Returns the limit on a device with this memory: all of it if the device does not report its
    /// size.
    pub(super) fn limit_on(&self, memory: MemoryInfo) -> u64 {
        let free = || left(memory);
        let limit = self.limit.or_else(|| Some(default_limit(free()?, self.compute_capability)));
        limit.map_or(u64::MAX, |limit| limit.0)
    }

    /// Returns the size of the first region.
    pub(super) fn first_region(&self, limit: u64) -> u64 {
        let first = if self.allow_growth { limit.min(FIRST_REGION) } else { limit };
        round(first).unwrap_or(first)
    }

    /// Returns the maximum unused remainder of a chunk that is not split.
    pub(super) fn most_slack(&self, limit: u64) -> u64 {
        if self.fragmentation_fraction > 0.0 {
            (self.fragmentation_fraction * limit as f64) as u64
        } else {
            MAX_SLACK
        }
    }
}

/// Returns TensorFlow's default limit for a device with this much free memory and this major
/// compute capability. It leaves a reserve for libraries (`MinSystemMemory` in `gpu_device.cc`).
pub fn default_limit(free: Bytes, compute_capability: u32) -> Bytes {
    let left = match compute_capability {
        _ if free < Bytes::from_mib(2048) => 225,
        ..=6 => 500,
        7 => 1050,
        8 => 1536,
        _ => 1800,
    };
    let left = Bytes::from_mib(left);
    if left < free { free.saturating_sub(left) } else { free }
}

/// Parses bytes, with or without a binary unit.
fn bytes(text: &str) -> Option<Bytes> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];
    let unit = units.into_iter().find(|(name, _)| text.ends_with(name));
    let (name, shift) = unit.unwrap_or(("", 0));
    let number: u64 = text.strip_suffix(name)?.trim_end().parse().ok()?;
    number.checked_mul(1 << shift).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;

    #[test]
    fn default_limit_reserves_same_amount_as_tensorflow() {
        let limit = |free, capability| default_limit(Bytes::from_mib(free), capability).mib();
        for (capability, left) in [(3, 500), (6, 500), (7, 1050), (8, 1536), (9, 1800), (12, 1800)]
        {
            assert_eq!(limit(16_000, capability), 16_000 - left);
            assert_eq!(limit(2047, capability), 2047 - 225);
        }
        assert_eq!((limit(225, 8), limit(226, 8)), (225, 1));
    }

    #[test]
    fn default_limit_is_based_on_free_memory() {
        let memory = MemoryInfo {
            total: Ok(Bytes::from_mib(16_000)),
            used: Ok(Bytes::from_mib(100)),
            reserved: Ok(Bytes::from_mib(400)),
        };
        let settings = Settings::default();
        assert_eq!(settings.limit_on(memory), (15_500 - 1536) << 20);
        let silent = MemoryInfo { total: Err(Absent::NotSupported), ..memory };
        assert_eq!(settings.limit_on(silent), u64::MAX);
        let set = Settings { limit: Some(Bytes(1000)), ..settings };
        assert_eq!(set.limit_on(silent), 1000);
    }

    #[test]
    fn settings_parse_from_text() {
        let mut settings = Settings::default();
        for (key, value) in [
            ("limit", "6GiB"),
            ("allow_growth", "true"),
            ("garbage_collection", "0"),
            ("fragmentation_fraction", "0.25"),
            ("back_off", "always"),
            ("adjacent_regions", "1"),
            ("compute_capability", "9.0"),
        ] {
            assert!(Settings::KEYS.contains(&key));
            settings.set(key, value).expect("it is a setting");
        }
        let expected = Settings {
            limit: Some(Bytes::from_mib(6 << 10)),
            allow_growth: true,
            garbage_collection: false,
            fragmentation_fraction: 0.25,
            back_off: BackOff::Always,
            adjacent_regions: true,
            compute_capability: 9,
        };
        assert_eq!(settings, expected);
        for (key, value) in [
            ("limit", "6 monkeys"),
            ("limit", "99999999999GiB"),
            ("allow_growth", "yes"),
            ("fragmentation_fraction", "NaN"),
            ("fragmentation_fraction", "1.5"),
            ("back_off", "2"),
            ("compute_capability", ""),
            ("growth", "true"),
        ] {
            assert!(settings.set(key, value).is_err(), "{key}={value}");
        }
        assert_eq!(settings, expected);
    }
}
