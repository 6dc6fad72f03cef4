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

#[cfg(feature = "serde")]
pub mod reading;
