//! A missing value, with the reason.

use std::fmt;

/// A value, or the reason why the machine does not report it.
///
/// Missing values are ordinary: NVML answers `NOT_SUPPORTED` for whole groups of fields on consumer
/// cards, a pasted table has no start times, and `/proc` hides the descriptors of other users.
pub type Reading<T> = Result<T, Absent>;

/// Why a value is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Absent {
    /// The device, the driver or the kernel does not support it.
    NotSupported,
    /// The caller lacks the permission to read it.
    NotPermitted,
    /// The object does not exist or is gone.
    NotFound,
    /// The installed driver is too old to report it.
    TooOld,
    /// The installed driver no longer reports it.
    Deprecated,
    /// The device returned an error instead of a value.
    Failed,
    /// The driver did not answer in time.
    NoAnswer,
    /// The device sleeps and was not queried.
    Asleep,
    /// The device is lost or requires a reset.
    DeviceLost,
    /// The recording or the pasted text does not contain it.
    NotRecorded,
    /// The reported value is impossible.
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

#[cfg(feature = "serde")]
pub mod reading;
