//! Error messages of a driver in the kernel log, as data.

use crate::clock::Timestamp;
use crate::id::{PciBusId, Pid};
use std::time::Duration;

/// An error message of the driver in the kernel log, about one GPU or one NVSwitch.
///
/// The same fault may cause many messages: an exception is logged for each multiprocessor and
/// channel, a device that falls off the bus is logged with an Xid and without, and an SXid has
/// further lines with its number, its severity and its data.
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
    /// The GPU, or the NVSwitch of an SXid. The function is always 0, because the driver prints no
    /// function in a message with an Xid.
    pub bus: PciBusId,
    /// The error.
    pub kind: DriverMessageKind,
    /// The process that allocated the channel, or the current one of an error without a channel,
    /// in the initial PID namespace. It may have ended. Under MPS it is the server.
    pub pid: Option<Pid>,
    /// The name of that process, which its user chooses: without control characters, at most
    /// [`DriverMessage::MAX_NAME`] characters. A name that contains `, ` ends there, and its rest
    /// is in `text`.
    pub process: Option<String>,
    /// The MIG GPU instance.
    pub gpu_instance: Option<u32>,
    /// The MIG compute instance.
    pub compute_instance: Option<u32>,
    /// The rest of the message, possibly empty: without control characters, at most
    /// [`DriverMessage::MAX_TEXT`] characters.
    pub text: String,
}

/// The error that a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", tag = "kind", content = "xid"))]
pub enum DriverMessageKind {
    /// An error with this number in NVIDIA's Xid catalog.
    Xid(u32),
    /// An error of an NVSwitch, with its number in the appendix of NVIDIA's Fabric Manager User
    /// Guide.
    #[cfg_attr(feature = "serde", serde(rename = "sxid"))]
    SXid(u32),
    /// The device no longer answers on the bus, in a message without an Xid. Its meaning is that
    /// of Xid 79.
    FallenOffBus,
}

impl DriverMessage {
    /// The time of a message without one in its text.
    pub const UNDATED: Timestamp = Timestamp(0);
    /// The maximum length of a process name, in characters: that of the driver's own buffer.
    pub const MAX_NAME: usize = 100;
    /// The maximum length of the text, in characters: that of a record of the kernel.
    pub const MAX_TEXT: usize = 1024;
}
