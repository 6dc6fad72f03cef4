//! One error type; its kind says how much of a snapshot a failure affects.

use crate::absent::Absent;
use std::fmt;
use std::sync::Arc;

/// The result of a port.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause of a failure and, through [`ErrorKind::reach`], how much of a snapshot it affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", tag = "kind", content = "what"))]
pub enum ErrorKind {
    /// Nothing can be read of any device.
    Machine(MachineFault),
    /// One device is affected; the others are not.
    Device(DeviceFault),
    /// One value is absent.
    Field(Absent),
    /// The same call may succeed at once: a list that grew, an interrupted call.
    Again,
    /// No answer within the time allowed.
    TimedOut,
    /// An interrupt was requested.
    Interrupted,
    /// A process could not be read or signalled.
    Process(ProcessFault),
    /// A file could not be read or written.
    Io,
    /// The input is invalid.
    Invalid,
    /// The adapter cannot do this at all.
    Unsupported,
    /// The caller did not ask for it.
    NotRequested,
}

/// Why a whole machine reports nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MachineFault {
    /// The driver's library is not installed.
    NoLibrary,
    /// The library is installed and the kernel module is not loaded.
    DriverNotLoaded,
    /// The versions of the library and the kernel module differ: upgraded without a reboot.
    VersionMismatch,
    /// The operating system blocks the device, for example a container's cgroup.
    Blocked,
    /// The caller may not open the device files.
    NotPermitted,
    /// The driver is loaded and finds no device.
    NoDevices,
    /// Any other one, with the number that the driver returned.
    Unknown(u32),
}

/// Why one device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceFault {
    /// Fell off the bus.
    Lost,
    /// Requires a reset.
    ResetRequired,
    /// External power is not connected.
    InsufficientPower,
    /// Interrupt problem.
    Interrupt,
    /// No contiguous memory of that size is free.
    OutOfMemory,
    /// In use, where the call requires an unused device.
    InUse,
    /// Any other one, with the number that the driver returned.
    Unknown(u32),
}

/// Why a process could not be read or signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ProcessFault {
    /// It has ended (`ESRCH`).
    Gone,
    /// It belongs to another user (`EPERM`, `EACCES`).
    NotPermitted,
}

/// How much of a snapshot a failure affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole machine.
    Machine,
    /// One device.
    Device,
    /// One value, file or process.
    Field,
    /// Nothing yet: try again.
    Again,
}

impl ErrorKind {
    /// Returns how far the failure reaches.
    pub fn reach(self) -> Reach {
        match self {
            ErrorKind::Machine(_) => Reach::Machine,
            ErrorKind::Device(_) | ErrorKind::TimedOut => Reach::Device,
            ErrorKind::Again => Reach::Again,
            ErrorKind::Field(_)
            | ErrorKind::Process(_)
            | ErrorKind::Interrupted
            | ErrorKind::Io
            | ErrorKind::Invalid
            | ErrorKind::Unsupported
            | ErrorKind::NotRequested => Reach::Field,
        }
    }

    /// Returns the reason of absence for a value that could not be read because of this.
    pub fn absent(self) -> Absent {
        match self {
            ErrorKind::Field(absent) => absent,
            ErrorKind::Device(DeviceFault::Lost | DeviceFault::ResetRequired) => Absent::DeviceLost,
            ErrorKind::Machine(MachineFault::NotPermitted | MachineFault::Blocked)
            | ErrorKind::Process(ProcessFault::NotPermitted) => Absent::NotPermitted,
            ErrorKind::Process(ProcessFault::Gone) => Absent::NotFound,
            ErrorKind::Unsupported => Absent::NotSupported,
            ErrorKind::NotRequested => Absent::NotRecorded,
            ErrorKind::TimedOut => Absent::NoAnswer,
            _ => Absent::Failed,
        }
    }
}

impl From<MachineFault> for ErrorKind {
    fn from(fault: MachineFault) -> Self {
        ErrorKind::Machine(fault)
    }
}

impl From<DeviceFault> for ErrorKind {
    fn from(fault: DeviceFault) -> Self {
        ErrorKind::Device(fault)
    }
}

impl From<ProcessFault> for ErrorKind {
    fn from(fault: ProcessFault) -> Self {
        ErrorKind::Process(fault)
    }
}

impl From<Absent> for ErrorKind {
    fn from(absent: Absent) -> Self {
        ErrorKind::Field(absent)
    }
}

/// A failure of a port: a fragment that names the object and completes 'failed to …', the kind, and
/// the source if there is one.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Returns a failure to do `what`: a lowercase fragment such as `open process 4711`.
    pub fn new(kind: impl Into<ErrorKind>, what: impl Into<String>) -> Self {
        Error { kind: kind.into(), what: what.into(), source: None }
    }

    /// Adds the underlying failure; the fragment must not repeat it.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the failure as plain data, with the messages of its sources joined.
    pub fn fault(&self) -> Fault {
        let mut text = self.what.clone();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        Fault { kind: self.kind, text }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// A failure as plain data, kept in a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fault {
    /// Its cause and how far it reaches.
    pub kind: ErrorKind,
    /// A fragment that completes 'failed to …', sources included.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_includes_source_chain_but_display_does_not() {
        let inner = Error::new(ErrorKind::Io, "read '/proc/1/maps'");
        let outer = Error::new(ProcessFault::Gone, "inspect process 1").with_source(inner);
        assert_eq!(outer.to_string(), "inspect process 1");
        assert_eq!(outer.fault().text, "inspect process 1: read '/proc/1/maps'");
        assert_eq!(outer.kind().reach(), Reach::Field);
    }

    #[test]
    fn error_kinds_map_to_reach() {
        assert_eq!(ErrorKind::from(MachineFault::DriverNotLoaded).reach(), Reach::Machine);
        assert_eq!(ErrorKind::from(DeviceFault::Lost).reach(), Reach::Device);
        assert_eq!(ErrorKind::from(Absent::NotSupported).reach(), Reach::Field);
        assert_eq!(ErrorKind::Again.reach(), Reach::Again);
    }
}
