//! What can be set of TensorFlow's allocator.

use super::round;
use crate::totals::left;
use gpu_core::{Bytes, MemoryInfo};

/// How much longer than its request a chunk may be and stay whole, where no fraction is set.
const MAX_SLACK: u64 = 128 << 20;
/// How long the first region is, where regions grow.
const FIRST_REGION: u64 = 2 << 20;

/// What can be set of TensorFlow's allocator; the default is TensorFlow's own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Settings {
    /// The most that is taken of the device (`LogicalDeviceConfiguration(memory_limit=…)`); where
    /// nothing is set, what [`default_limit`] says of the memory that is free at the start.
    #[cfg_attr(feature = "serde", serde(rename = "limit_bytes"))]
    pub limit: Option<Bytes>,
    /// Takes regions as they are needed, each twice as long as the one before
    /// (`TF_FORCE_GPU_ALLOW_GROWTH`), in place of all at once.
    pub allow_growth: bool,
    /// Gives wholly free regions back before it fails (`TF_ENABLE_GPU_GARBAGE_COLLECTION`, which is
    /// on in TensorFlow and off in JAX).
    pub garbage_collection: bool,
    /// The share of the limit by which a chunk may be longer than its request and stay whole; 128
    /// MiB where it is 0 (`experimental.internal_fragmentation_fraction`).
    pub fragmentation_fraction: f64,
    /// How often it asks for less when the device refuses.
    pub back_off: BackOff,
    /// Takes pages at adjacent addresses, so that its regions merge; for devices with virtual
    /// memory (TensorFlow's virtual memory sub-allocator).
    pub adjacent_regions: bool,
    /// The major compute capability of the device, for [`default_limit`].
    pub compute_capability: u32,
}

/// How often an allocator asks for less when the device refuses a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BackOff {
    /// Once in its life, as TensorFlow's versions do.
    #[default]
    Once,
    /// At every region, as XLA does since 2025.
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

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("set '{key}': BFC has {}", Settings::KEYS.join(", "))]
    Unknown {
        /// What was to be set.
        key: String,
    },
    /// The setting does not take such a value.
    #[error("set '{key}' to '{value}': expected {takes}")]
    Value {
        /// What was to be set.
        key: String,
        /// What to.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
}

impl Settings {
    /// The names that [`set`](Settings::set) takes.
    pub const KEYS: [&'static str; 7] = [
        "limit",
        "allow_growth",
        "garbage_collection",
        "fragmentation_fraction",
        "back_off",
        "adjacent_regions",
        "compute_capability",
    ];

    /// Changes the setting of this name to what a text says.
    ///
    /// # Errors
    /// A [`SettingError`] for a name or a value that there is not; nothing is changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let refuse = |takes| SettingError::Value { key: key.into(), value: value.into(), takes };
        let boolean = || match value {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(refuse("true or false")),
        };
        match key {
            "limit" => {
                let bytes = bytes(value).ok_or_else(|| refuse("bytes, or MiB as in 6GiB"))?;
                self.limit = Some(bytes);
            }
            "allow_growth" => self.allow_growth = boolean()?,
            "garbage_collection" => self.garbage_collection = boolean()?,
            "adjacent_regions" => self.adjacent_regions = boolean()?,
            "fragmentation_fraction" => {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                self.fragmentation_fraction = share.ok_or_else(|| refuse("a share from 0 to 1"))?;
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

    /// Returns the most that is taken of a device whose memory is this; all there is where the
    /// device does not tell.
    pub(super) fn limit_on(&self, memory: MemoryInfo) -> u64 {
        let free = || left(memory);
        let limit = self.limit.or_else(|| Some(default_limit(free()?, self.compute_capability)));
        limit.map_or(u64::MAX, |limit| limit.0)
    }

    /// Returns how long the first region is.
    pub(super) fn first_region(&self, limit: u64) -> u64 {
        let first = if self.allow_growth { limit.min(FIRST_REGION) } else { limit };
        round(first).unwrap_or(first)
    }

    /// Returns how much longer than its request a chunk may be and stay whole.
    pub(super) fn most_slack(&self, limit: u64) -> u64 {
        if self.fragmentation_fraction > 0.0 {
            (self.fragmentation_fraction * limit as f64) as u64
        } else {
            MAX_SLACK
        }
    }
}

/// Returns what TensorFlow takes of a device that has this much free and is of this major compute
/// capability: it leaves some for the libraries (`MinSystemMemory` in `gpu_device.cc`).
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

/// Reads bytes, with a binary unit or without.
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
