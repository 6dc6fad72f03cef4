//! NVML's return codes, and the code for each reason for a missing value.

use gpu_core::{Absent, DeviceFault, ErrorKind, Fault, MachineFault, ProcessFault};
use std::ffi::CStr;

/// A return code other than success (`nvmlReturn_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// The result of a function: success, or the error code to return.
pub(crate) type Answer<T = ()> = Result<T, Code>;

pub(crate) const SUCCESS: u32 = 0;

impl Code {
    pub(crate) const UNINITIALIZED: Code = Code(1);
    pub(crate) const INVALID_ARGUMENT: Code = Code(2);
    pub(crate) const NOT_SUPPORTED: Code = Code(3);
    pub(crate) const NO_PERMISSION: Code = Code(4);
    pub(crate) const ALREADY_INITIALIZED: Code = Code(5);
    pub(crate) const NOT_FOUND: Code = Code(6);
    pub(crate) const INSUFFICIENT_SIZE: Code = Code(7);
    pub(crate) const INSUFFICIENT_POWER: Code = Code(8);
    pub(crate) const DRIVER_NOT_LOADED: Code = Code(9);
    pub(crate) const TIMEOUT: Code = Code(10);
    pub(crate) const IRQ_ISSUE: Code = Code(11);
    pub(crate) const LIBRARY_NOT_FOUND: Code = Code(12);
    pub(crate) const FUNCTION_NOT_FOUND: Code = Code(13);
    pub(crate) const CORRUPTED_INFOROM: Code = Code(14);
    pub(crate) const GPU_IS_LOST: Code = Code(15);
    pub(crate) const RESET_REQUIRED: Code = Code(16);
    pub(crate) const OPERATING_SYSTEM: Code = Code(17);
    pub(crate) const LIB_RM_VERSION_MISMATCH: Code = Code(18);
    pub(crate) const IN_USE: Code = Code(19);
    pub(crate) const MEMORY: Code = Code(20);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Code = Code(25);
    pub(crate) const DEPRECATED: Code = Code(26);
    pub(crate) const UNKNOWN: Code = Code(999);
}

impl From<Absent> for Code {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::NotSupported | Absent::NotRecorded => Code::NOT_SUPPORTED,
            Absent::NotPermitted => Code::NO_PERMISSION,
            Absent::NotFound => Code::NOT_FOUND,
            Absent::TooOld => Code::FUNCTION_NOT_FOUND,
            Absent::Deprecated => Code::DEPRECATED,
            Absent::DeviceLost => Code::GPU_IS_LOST,
            Absent::Failed | Absent::NoAnswer | Absent::Implausible | Absent::Asleep => {
                Code::UNKNOWN
            }
        }
    }
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            // A loaded library cannot report that it does not exist; with this code, callers do so
            // anyway.
            ErrorKind::Machine(MachineFault::NoLibrary) => Code::LIBRARY_NOT_FOUND,
            ErrorKind::Machine(MachineFault::DriverNotLoaded) => Code::DRIVER_NOT_LOADED,
            ErrorKind::Machine(MachineFault::VersionMismatch) => Code::LIB_RM_VERSION_MISMATCH,
            ErrorKind::Machine(MachineFault::Blocked) => Code::OPERATING_SYSTEM,
            ErrorKind::Machine(MachineFault::NotPermitted)
            | ErrorKind::Process(ProcessFault::NotPermitted) => Code::NO_PERMISSION,
            ErrorKind::Machine(MachineFault::NoDevices)
            | ErrorKind::Process(ProcessFault::Gone) => Code::NOT_FOUND,
            ErrorKind::Machine(MachineFault::Unknown(code))
            | ErrorKind::Device(DeviceFault::Unknown(code)) => Code::kept(code),
            ErrorKind::Device(DeviceFault::Lost) => Code::GPU_IS_LOST,
            ErrorKind::Device(DeviceFault::ResetRequired) => Code::RESET_REQUIRED,
            ErrorKind::Device(DeviceFault::InsufficientPower) => Code::INSUFFICIENT_POWER,
            ErrorKind::Device(DeviceFault::Interrupt) => Code::IRQ_ISSUE,
            ErrorKind::Device(DeviceFault::OutOfMemory) => Code::MEMORY,
            ErrorKind::Device(DeviceFault::InUse) => Code::IN_USE,
            ErrorKind::Field(absent) => absent.into(),
            ErrorKind::Again => Code::INSUFFICIENT_SIZE,
            ErrorKind::TimedOut => Code::TIMEOUT,
            ErrorKind::Unsupported | ErrorKind::NotRequested => Code::NOT_SUPPORTED,
            ErrorKind::Invalid => Code::INVALID_ARGUMENT,
            ErrorKind::Interrupted | ErrorKind::Io => Code::UNKNOWN,
        }
    }
}

impl From<&Fault> for Code {
    fn from(fault: &Fault) -> Self {
        fault.kind.into()
    }
}

impl Code {
    /// Returns a recorded code; a recorded failure is never `SUCCESS`.
    fn kept(code: u32) -> Self {
        if code == SUCCESS { Code::UNKNOWN } else { Code(code) }
    }
}

/// Returns the meaning of a code.
pub(crate) fn text(code: u32) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"Operating System Blocked Request",
        18 => c"RM has detected an NVML/RM version mismatch.",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"Operation not supported on vGPU with ECC",
        23 => c"Insufficient resources",
        24 => c"Requested frequency not supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated function",
        27 => c"System not ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_absence_has_its_code() {
        for (absent, code) in [
            (Absent::NotSupported, 3),
            (Absent::NotRecorded, 3),
            (Absent::NotPermitted, 4),
            (Absent::NotFound, 6),
            (Absent::TooOld, 13),
            (Absent::DeviceLost, 15),
            (Absent::Deprecated, 26),
            (Absent::Failed, 999),
            (Absent::NoAnswer, 999),
            (Absent::Implausible, 999),
        ] {
            assert_eq!(Code::from(absent), Code(code), "{absent:?}");
            assert_eq!(Code::from(ErrorKind::Field(absent)), Code(code), "{absent:?}");
        }
    }

    #[test]
    fn every_failure_has_its_code() {
        for (kind, code) in [
            (MachineFault::NoLibrary.into(), 12),
            (MachineFault::DriverNotLoaded.into(), 9),
            (MachineFault::VersionMismatch.into(), 18),
            (MachineFault::Blocked.into(), 17),
            (MachineFault::NotPermitted.into(), 4),
            (MachineFault::NoDevices.into(), 6),
            (MachineFault::Unknown(77).into(), 77),
            (MachineFault::Unknown(0).into(), 999),
            (DeviceFault::Lost.into(), 15),
            (DeviceFault::ResetRequired.into(), 16),
            (DeviceFault::InsufficientPower.into(), 8),
            (DeviceFault::Interrupt.into(), 11),
            (DeviceFault::OutOfMemory.into(), 20),
            (DeviceFault::InUse.into(), 19),
            (DeviceFault::Unknown(78).into(), 78),
            (ProcessFault::NotPermitted.into(), 4),
            (ProcessFault::Gone.into(), 6),
            (ErrorKind::Again, 7),
            (ErrorKind::TimedOut, 10),
            (ErrorKind::Unsupported, 3),
            (ErrorKind::Invalid, 2),
            (ErrorKind::Interrupted, 999),
            (ErrorKind::Io, 999),
        ] {
            assert_eq!(Code::from(&Fault { kind, text: String::new() }), Code(code), "{kind:?}");
        }
    }
}
