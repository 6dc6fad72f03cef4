//! A missing value, with the reason.

use std::fmt;

/// A value, or the reason why the machine does not report it.
pub type Reading<T> = Result<T, Absent>;

/// Why a value is missing.
///
/// Missing values are ordinary: NVML answers `NOT_SUPPORTED` for whole groups of fields on consumer
/// cards, a pasted table has no start times, and `/proc` hides the descriptors of other users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Absent {
    /// The device or the kernel does not have it (NVML code 3, `N/A`, `[Not Supported]`).
    NotSupported,
    /// The caller may not read it (NVML code 4, `EACCES`, `EPERM`, `[Insufficient Permissions]`).
    NotPermitted,
    /// The object does not exist or is gone (NVML code 6, `ENOENT`, `ESRCH`).
    NotFound,
    /// The installed driver is too old to support the query (NVML codes 13 and 25).
    TooOld,
    /// The installed driver no longer supports the query (NVML code 26, `[Requested functionality
    /// has been deprecated]`).
    Deprecated,
    /// The device answered with an error instead of a value (`ERR!`, `[Unknown Error]`).
    Failed,
    /// The driver did not answer in time, or was not queried again after a timeout.
    NoAnswer,
    /// The device sleeps and was not queried, because a query would wake it.
    Asleep,
    /// The device is lost or waits for a reset (`[GPU is lost]`, `[GPU requires reset]`).
    DeviceLost,
    /// The recording or the pasted text does not contain it.
    NotRecorded,
    /// The value made no sense (37,100 % utilisation, a field that is not a number).
    Implausible,
}

impl Absent {
    /// Every reason.
    pub const ALL: [Absent; 11] = [
        Absent::NotSupported,
        Absent::NotPermitted,
        Absent::NotFound,
        Absent::TooOld,
        Absent::Deprecated,
        Absent::Failed,
        Absent::NoAnswer,
        Absent::Asleep,
        Absent::DeviceLost,
        Absent::NotRecorded,
        Absent::Implausible,
    ];
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Absent::NotSupported => "not supported",
            Absent::NotPermitted => "not permitted",
            Absent::NotFound => "not found",
            Absent::TooOld => "driver too old",
            Absent::Deprecated => "deprecated",
            Absent::Failed => "device error",
            Absent::NoAnswer => "no answer",
            Absent::Asleep => "asleep",
            Absent::DeviceLost => "device lost",
            Absent::NotRecorded => "not recorded",
            Absent::Implausible => "implausible",
        })
    }
}

impl std::error::Error for Absent {}

/// Writes a [`Reading`] as the bare value or as `{"absent": "not-supported"}`; for
/// `#[serde(with = "gpu_core::reading")]`.
///
/// A format for machines has no bare values to tell apart: there it is the enum [`NAME`](
/// reading::NAME) with the variants `value` and `absent`.
#[cfg(feature = "serde")]
pub mod reading {
    use super::{Absent, Reading};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// The name of the enum in formats that are not readable by people.
    pub const NAME: &str = "Reading";

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Missing {
        absent: Absent,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wire<T> {
        // The value first: a list such as `["failed"]` would also parse as a `Missing`.
        Present(T),
        Missing(Missing),
    }

    #[derive(Deserialize)]
    #[serde(rename = "Reading", rename_all = "kebab-case")]
    enum Tagged<T> {
        Value(T),
        Absent(Absent),
    }

    /// Serializes the value, or why it is missing.
    pub fn serialize<T: Serialize, S: Serializer>(
        reading: &Reading<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match (reading, serializer.is_human_readable()) {
            (Ok(value), true) => value.serialize(serializer),
            (Err(absent), true) => Missing { absent: *absent }.serialize(serializer),
            (Ok(value), false) => serializer.serialize_newtype_variant(NAME, 0, "value", value),
            (Err(absent), false) => serializer.serialize_newtype_variant(NAME, 1, "absent", absent),
        }
    }

    /// Deserializes the output of [`serialize`].
    ///
    /// # Errors
    /// The deserializer's own, when the input is neither a value nor an absence.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Reading<T>, D::Error> {
        if !deserializer.is_human_readable() {
            return Ok(match Tagged::deserialize(deserializer)? {
                Tagged::Value(value) => Ok(value),
                Tagged::Absent(absent) => Err(absent),
            });
        }
        Ok(match Wire::deserialize(deserializer)? {
            Wire::Missing(missing) => Err(missing.absent),
            Wire::Present(value) => Ok(value),
        })
    }
}
