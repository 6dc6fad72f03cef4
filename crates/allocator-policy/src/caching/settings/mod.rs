//! The settings of PyTorch's allocator.

#[cfg(feature = "serde")]
mod stored;
mod text;

use gpu_core::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
pub(crate) use text::nearest;
use text::{divisions, in_force, mebibytes, number, pairs, plain, truth};

/// The number of sizes with divisions of their own: from 1 MiB to 32 GiB and above.
const INTERVALS: usize = 16;
/// The default of `large_segment_size_mb`.
const LARGE_SEGMENT_MIB: u64 = 20;
/// A request of at least this size gets a segment of its own size; smaller requests share larger
/// segments.
const ABOVE_MIB: u64 = 10;
/// The variables from which PyTorch reads its settings; the later one takes precedence.
const VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

const MEBIBYTES: &str = "a number of MiB, at least large_segment_size_mb (20 by default)";
const SEGMENT_MEBIBYTES: &str =
    "a number of MiB above 10 and not above max_split_size_mb or max_non_split_rounding_mb";
const BYTES: &str = "a number of bytes, at least a large segment (20 MiB), or -1 for none";
const DIVISIONS: &str = "a power of two, or a list such as [256:1,512:2,>:4] of powers of two";

/// PyTorch parses this setting first, because it bounds the others.
const LARGE_SEGMENT: &str = "large_segment_size_mb";

/// The settings that this allocator honours.
const OBEYED: [&str; 7] = [
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    LARGE_SEGMENT,
    "garbage_collection_threshold",
    "expandable_segments",
    "roundup_power2_divisions",
    "per_process_memory_fraction",
];
/// PyTorch's settings that do not affect which memory is taken from the device.
const PASSED_ON: [&str; 9] = [
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "graph_capture_record_stream_reuse",
];

/// The settings of PyTorch's allocator, as in `PYTORCH_CUDA_ALLOC_CONF`, and a limit in bytes.
///
/// [`str::parse`] and `to_string` use PyTorch's own form. Keys and ranges are those of PyTorch's
/// `AllocatorConfig` and `CUDAAllocatorConfig`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "stored::Written", into = "stored::Written"))]
pub struct Settings {
    max_split_size: Option<Bytes>,
    /// The maximum rounding of blocks that are not split; the size of a large segment if not set.
    max_non_split_rounding: Option<Bytes>,
    large_segment_size: Bytes,
    garbage_collection_threshold: Option<f64>,
    expandable_segments: bool,
    roundup_power2_divisions: Box<[u64; INTERVALS]>,
    per_process_memory_fraction: Option<f64>,
    limit: Option<Bytes>,
    others: BTreeMap<String, String>,
}

/// A setting that PyTorch would reject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such setting exists.
    #[error("parse the allocator setting '{key}': unknown setting; {}", hint(.nearest.as_deref()))]
    Unknown {
        /// The unknown name.
        key: String,
        /// A similar known name.
        nearest: Option<String>,
    },
    /// The value is not valid for the setting.
    #[error("parse the allocator setting '{key}': '{value}' is not {expected}")]
    Value {
        /// The setting.
        key: String,
        /// The value.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// The text is not of the form `key:value,key:value`.
    #[error("parse the allocator settings: expected key:value, found '{rest}'")]
    Form {
        /// The text found instead.
        rest: String,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_split_size: None,
            max_non_split_rounding: None,
            large_segment_size: Bytes::from_mib(LARGE_SEGMENT_MIB),
            garbage_collection_threshold: None,
            expandable_segments: false,
            roundup_power2_divisions: Box::new([0; INTERVALS]),
            per_process_memory_fraction: None,
            limit: None,
            others: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Returns the defaults with expandable segments.
    pub(crate) fn expandable() -> Self {
        Settings { expandable_segments: true, ..Settings::default() }
    }

    /// Returns the names of all known settings.
    pub fn known() -> impl Iterator<Item = &'static str> {
        OBEYED.into_iter().chain(PASSED_ON)
    }

    /// Reads the settings of a recording: PyTorch's text under the name of its variable, and each
    /// effective setting under its name in snapshots. Unknown settings go to
    /// [`others`](Settings::others), because a newer version may have written them.
    ///
    /// # Errors
    /// [`SettingError`] for malformed text, or a value that PyTorch would reject.
    pub fn from_recording(recorded: &BTreeMap<String, String>) -> Result<Self, SettingError> {
        let mut settings = Settings::default();
        for name in VARIABLES {
            for (key, value) in in_order(recorded.get(name).map_or("", String::as_str))? {
                settings.set_or_keep(key, value)?;
            }
        }
        let least = settings.large_segment_size;
        for (key, value) in recorded {
            let wrong =
                |expected| SettingError::Value { key: plain(key), value: plain(value), expected };
            match key.as_str() {
                name if VARIABLES.contains(&name) => {}
                "max_split_size" => {
                    settings.max_split_size = in_force(value, least).ok_or_else(|| wrong(BYTES))?;
                }
                "max_non_split_rounding_size" => {
                    let size = in_force(value, least).ok_or_else(|| wrong(BYTES))?;
                    settings.max_non_split_rounding = Some(size.unwrap_or(Bytes(u64::MAX)));
                }
                "garbage_collection_threshold" if number(value) == Some(0.0) => {
                    settings.garbage_collection_threshold = None;
                }
                "expandable_segments" => {
                    settings.expandable_segments = match value.as_str() {
                        "True" | "true" | "1" => true,
                        "False" | "false" | "0" => false,
                        _ => return Err(wrong("True or False")),
                    };
                }
                "roundup_power2_divisions" if value.contains(':') => {
                    let list = value.trim_matches(['[', ']']);
                    settings.set(key, &format!("[{list}]"))?;
                }
                _ => settings.set_or_keep(key, value)?,
            }
        }
        Ok(settings)
    }

    fn set_or_keep(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        match self.set(key, value) {
            Err(SettingError::Unknown { .. }) => {
                self.others.insert(plain(key), plain(value));
                Ok(())
            }
            done => done,
        }
    }

    /// Changes one setting by its PyTorch name.
    ///
    /// # Errors
    /// [`SettingError`] if PyTorch has no such setting or would reject the value; the settings are
    /// then unchanged.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let wrong =
            |expected| SettingError::Value { key: plain(key), value: plain(value), expected };
        match key {
            "max_split_size_mb" => {
                let size = mebibytes(value).filter(|size| *size >= self.large_segment_size);
                self.max_split_size = Some(size.ok_or_else(|| wrong(MEBIBYTES))?);
            }
            "max_non_split_rounding_mb" => {
                let size = mebibytes(value).filter(|size| *size >= self.large_segment_size);
                self.max_non_split_rounding = Some(size.ok_or_else(|| wrong(MEBIBYTES))?);
            }
            LARGE_SEGMENT => {
                let most = self.max_split_size.into_iter().chain(self.max_non_split_rounding).min();
                let size = mebibytes(value).filter(|size| *size > Bytes::from_mib(ABOVE_MIB));
                let size = size.filter(|size| most.is_none_or(|most| *size <= most));
                self.large_segment_size = size.ok_or_else(|| wrong(SEGMENT_MEBIBYTES))?;
            }
            "garbage_collection_threshold" => {
                let share = number(value).filter(|share| 0.0 < *share && *share < 1.0);
                self.garbage_collection_threshold =
                    Some(share.ok_or_else(|| wrong("a number between 0 and 1"))?);
            }
            "per_process_memory_fraction" => {
                let share = number(value).filter(|share| (0.0..=1.0).contains(share));
                self.per_process_memory_fraction =
                    Some(share.ok_or_else(|| wrong("a number from 0 to 1"))?);
            }
            "expandable_segments" => {
                self.expandable_segments = truth(value).ok_or_else(|| wrong("True or False"))?;
            }
            "roundup_power2_divisions" => {
                *self.roundup_power2_divisions =
                    divisions(value).ok_or_else(|| wrong(DIVISIONS))?;
            }
            _ if PASSED_ON.contains(&key) => {
                self.others.insert(key.to_owned(), plain(value));
            }
            _ => {
                let nearest = nearest(key, Settings::known()).map(str::to_owned);
                return Err(SettingError::Unknown { key: plain(key), nearest });
            }
        }
        Ok(())
    }

    /// Returns the minimum size of blocks that are not split, if set.
    pub fn max_split_size(&self) -> Option<Bytes> {
        self.max_split_size
    }

    /// Returns by how much a block may exceed a request if it is not split.
    pub fn max_non_split_rounding(&self) -> Bytes {
        self.max_non_split_rounding.unwrap_or(self.large_segment_size)
    }

    /// Returns the size of the segments for large requests below 10 MiB, and of the pages of
    /// expandable segments for large requests.
    pub fn large_segment_size(&self) -> Bytes {
        self.large_segment_size
    }

    /// Returns the fraction of the limit above which garbage is collected, if set.
    pub fn garbage_collection_threshold(&self) -> Option<f64> {
        self.garbage_collection_threshold
    }

    /// Returns whether new memory comes from mapped pages.
    pub fn expandable_segments(&self) -> bool {
        self.expandable_segments
    }

    /// Returns the number of steps between two powers of two, for sizes starting at 1 MiB, 2 MiB, …
    /// 32 GiB; with 0 or 1 steps, sizes are rounded to 512 bytes.
    pub fn roundup_power2_divisions(&self) -> &[u64; INTERVALS] {
        &self.roundup_power2_divisions
    }

    /// Returns the limit as a fraction of the device's memory, if set.
    pub fn per_process_memory_fraction(&self) -> Option<f64> {
        self.per_process_memory_fraction
    }

    /// Returns the limit in bytes, if set.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Sets the limit in bytes. PyTorch itself has no such setting, only a fraction.
    pub fn set_limit(&mut self, limit: Option<Bytes>) {
        self.limit = limit;
    }

    /// Returns the given settings that do not affect which memory is taken from the device.
    pub fn others(&self) -> &BTreeMap<String, String> {
        &self.others
    }
}

impl FromStr for Settings {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut settings = Settings::default();
        for (key, value) in in_order(text)? {
            settings.set(key, value)?;
        }
        Ok(settings)
    }
}

impl fmt::Display for Settings {
    /// Writes the settings that differ from the defaults, in PyTorch's form. Omits the limit in
    /// bytes, which PyTorch would reject.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Settings::default();
        let mut pairs: Vec<(&str, String)> = Vec::new();
        if let Some(size) = self.max_split_size {
            pairs.push(("max_split_size_mb", size.mib().to_string()));
        }
        if let Some(size) = self.max_non_split_rounding {
            pairs.push(("max_non_split_rounding_mb", size.mib().to_string()));
        }
        if self.large_segment_size != default.large_segment_size {
            pairs.push((LARGE_SEGMENT, self.large_segment_size.mib().to_string()));
        }
        if let Some(threshold) = self.garbage_collection_threshold {
            pairs.push(("garbage_collection_threshold", threshold.to_string()));
        }
        if self.expandable_segments {
            pairs.push(("expandable_segments", "True".to_owned()));
        }
        if self.roundup_power2_divisions != default.roundup_power2_divisions {
            let intervals = self.roundup_power2_divisions.iter().enumerate();
            let list: Vec<_> =
                intervals.map(|(i, parts)| format!("{}:{parts}", 1u64 << i)).collect();
            pairs.push(("roundup_power2_divisions", format!("[{}]", list.join(","))));
        }
        if let Some(fraction) = self.per_process_memory_fraction {
            pairs.push(("per_process_memory_fraction", fraction.to_string()));
        }
        pairs.extend(self.others.iter().map(|(key, value)| (key.as_str(), value.clone())));
        for (index, (key, value)) in pairs.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}:{value}")?;
        }
        Ok(())
    }
}

/// Splits text into settings, in the order in which PyTorch parses them.
fn in_order(text: &str) -> Result<Vec<(&str, &str)>, SettingError> {
    let mut pairs = pairs(text)?;
    pairs.sort_by_key(|(key, _)| *key != LARGE_SEGMENT);
    Ok(pairs)
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("expected one of {}", Settings::known().collect::<Vec<_>>().join(", ")),
    }
}
