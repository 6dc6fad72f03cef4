//! Error messages of a driver in the kernel log, as data.

use crate::clock::Timestamp;
use crate::driver_error::{DriverError, DriverErrorCode};
use crate::id::{PciBusId, Pid};
use std::time::Duration;

/// An error message of the driver in the kernel log, about one device or one switch between devices.
///
/// The same fault may cause many messages: for example, one for each channel that it stops.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DriverMessage {
    /// The time at which it was logged, on the wall clock, or [`DriverMessage::UNDATED`].
    #[cfg_attr(feature = "serde", serde(rename = "at_unix_ms"))]
    pub at: Timestamp,
    /// The time of a message without a date, on the clock of its log: since boot, or since the
    /// start of an unknown year. Only the difference between two messages of one log is meaningful.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub elapsed: Option<Duration>,
    /// The log has no time zone: `at` is its local time as if that were UTC.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub is_local: bool,
    /// The device, or the switch. The function is always 0, because not every message has one.
    pub bus: PciBusId,
    /// The code, as printed.
    #[cfg_attr(feature = "serde", serde(rename = "kind"))]
    pub code: DriverErrorCode,
    /// The process that met the error, in the initial PID namespace. It may have ended. A server
    /// that runs the work of other processes stands for them.
    pub pid: Option<Pid>,
    /// The name of that process, which its user chooses: without control characters, at most
    /// [`DriverMessage::MAX_NAME`] characters.
    pub process: Option<String>,
    /// The partition of the device (MIG: the GPU instance).
    pub gpu_instance: Option<u32>,
    /// The part of that partition (MIG: the compute instance).
    pub compute_instance: Option<u32>,
    /// The rest of the message, possibly empty: without control characters, at most
    /// [`DriverMessage::MAX_TEXT`] characters.
    pub text: String,
    /// The error that the message is about. It is not recorded, because it follows from the code and
    /// the text: after reading a record, call [`Snapshot::explain`](crate::Snapshot::explain).
    #[cfg_attr(feature = "serde", serde(skip))]
    pub error: DriverError,
}

impl DriverMessage {
    /// The time of a message without one in its text.
    pub const UNDATED: Timestamp = Timestamp(0);
    /// The maximum length of a process name, in characters.
    pub const MAX_NAME: usize = 100;
    /// The maximum length of the text, in characters: that of a record of the kernel.
    pub const MAX_TEXT: usize = 1024;
}
