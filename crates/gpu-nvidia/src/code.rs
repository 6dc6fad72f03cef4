//! NVML's return codes, their meaning and their reach.
//!
//! The reach follows NVML's documentation (`nvmlReturn_t`) and depends on the call: the same code
//! affects the machine if the initialisation returns it, but only one value if the query of that
//! value returns it.

use gpu_core::{Absent, DeviceFault, ErrorKind, MachineFault};
use nvml_wrapper::error::NvmlError;
use std::fmt;

/// The cause of a failed call, from nvml-wrapper's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The function returned this code, or the library lacks the function.
    Code(Code),
    /// The function returned a value unknown to nvml-wrapper.
    UnknownValue(u32),
    /// The function returned text that is not UTF-8.
    UnreadableText,
}

impl From<Code> for Cause {
    fn from(code: Code) -> Self {
        Cause::Code(code)
    }
}

impl From<NvmlError> for Cause {
    /// nvml-wrapper uses one error for unknown codes and unknown values. A number that is a known
    /// code must be a value: an unknown brand 18 is not a version mismatch.
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::FailedToLoadSymbol(_) => Code::FUNCTION_NOT_FOUND.into(),
            NvmlError::LibloadingError(_) => Code::LIBRARY_NOT_FOUND.into(),
            NvmlError::Utf8Error(_) => Cause::UnreadableText,
            NvmlError::UnexpectedVariant(value @ (0 | u32::MAX)) => Cause::UnknownValue(value),
            NvmlError::UnexpectedVariant(number) => match NvmlError::from(number) {
                NvmlError::UnexpectedVariant(code) => Code(code).into(),
                _ => Cause::UnknownValue(number),
            },
            error => Code(error.into()).into(),
        }
    }
}

impl Cause {
    /// Returns the kind of the failure; `kind` maps the code. A value that cannot be decoded
    /// affects only that value.
    pub(crate) fn kind(self, kind: impl FnOnce(Code) -> ErrorKind) -> ErrorKind {
        match self {
            Cause::Code(code) => kind(code),
            // All ones mean that the value is absent.
            Cause::UnknownValue(u32::MAX) => Absent::NotSupported.into(),
            Cause::UnknownValue(_) | Cause::UnreadableText => Absent::Implausible.into(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Code(code) => code.fmt(f),
            Cause::UnknownValue(value) => write!(f, "unknown value {value}"),
            Cause::UnreadableText => f.write_str("text that is not UTF-8"),
        }
    }
}

/// A return code other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const UNINITIALIZED: Code = Code(1);
    pub(crate) const INVALID_ARGUMENT: Code = Code(2);
    pub(crate) const NOT_SUPPORTED: Code = Code(3);
    pub(crate) const NO_PERMISSION: Code = Code(4);
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
    pub(crate) const NO_DATA: Code = Code(21);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Code = Code(25);
    pub(crate) const DEPRECATED: Code = Code(26);

    /// Returns the meaning of a code from the initialisation or a query of the machine.
    pub(crate) fn of_machine(self) -> ErrorKind {
        let fault = match self {
            Code::NO_PERMISSION => MachineFault::NotPermitted,
            Code::NOT_FOUND => MachineFault::NoDevices,
            code => code.machine_fault().unwrap_or(MachineFault::Unknown(self.0)),
        };
        fault.into()
    }

    /// Returns the meaning of a code from a query of one value of the driver. A machine whose
    /// driver cannot report its own version is not usable.
    pub(crate) fn of_driver(self) -> ErrorKind {
        self.absent().map_or_else(|| self.of_machine(), ErrorKind::from)
    }

    /// Returns the meaning of a code from a query of a device.
    pub(crate) fn of_device(self) -> ErrorKind {
        let device = || self.device_fault().map(ErrorKind::from);
        let machine = || self.machine_fault().map(ErrorKind::from);
        let field = || self.absent().map(ErrorKind::from);
        let known = device().or_else(machine).or_else(field);
        known.unwrap_or(match self {
            Code::INSUFFICIENT_SIZE => ErrorKind::Again,
            Code::IN_USE => DeviceFault::InUse.into(),
            Code(code) => DeviceFault::Unknown(code).into(),
        })
    }

    /// Returns the meaning of a code from a query of a device handle. A denied permission then
    /// affects only this device, although the code usually concerns the machine.
    pub(crate) fn of_handle(self) -> ErrorKind {
        match self {
            Code::OPERATING_SYSTEM => Absent::NotPermitted.into(),
            code => code.of_device(),
        }
    }

    /// Returns the meaning of a code from a query of one value of a device. A code affects only the
    /// value if it does not concern the device or the machine. This includes unknown codes, because
    /// drivers return 999 for a single broken sensor.
    pub(crate) fn of_value(self) -> ErrorKind {
        match self {
            // An old driver does not support this limit, clock or counter.
            Code::INVALID_ARGUMENT => Absent::NotSupported.into(),
            code => match code.of_device() {
                ErrorKind::Device(DeviceFault::Unknown(_) | DeviceFault::InUse)
                | ErrorKind::Again => Absent::Failed.into(),
                kind => kind,
            },
        }
    }

    /// Returns whether NVML must be initialised again after this failure, because the driver is
    /// gone or other code in the process shut NVML down.
    pub(crate) fn ends_session(kind: ErrorKind) -> bool {
        use MachineFault::{DriverNotLoaded, NoDevices, Unknown, VersionMismatch};
        let ends = [DriverNotLoaded, VersionMismatch, NoDevices, Unknown(Code::UNINITIALIZED.0)];
        ends.into_iter().any(|fault| kind == fault.into())
    }

    fn machine_fault(self) -> Option<MachineFault> {
        Some(match self {
            Code::DRIVER_NOT_LOADED => MachineFault::DriverNotLoaded,
            Code::LIBRARY_NOT_FOUND => MachineFault::NoLibrary,
            Code::LIB_RM_VERSION_MISMATCH => MachineFault::VersionMismatch,
            Code::OPERATING_SYSTEM => MachineFault::Blocked,
            Code(code) if self == Code::UNINITIALIZED => MachineFault::Unknown(code),
            _ => return None,
        })
    }

    fn device_fault(self) -> Option<DeviceFault> {
        Some(match self {
            Code::GPU_IS_LOST => DeviceFault::Lost,
            Code::RESET_REQUIRED => DeviceFault::ResetRequired,
            Code::INSUFFICIENT_POWER => DeviceFault::InsufficientPower,
            Code::IRQ_ISSUE => DeviceFault::Interrupt,
            _ => return None,
        })
    }

    fn absent(self) -> Option<Absent> {
        Some(match self {
            Code::NOT_SUPPORTED => Absent::NotSupported,
            Code::DEPRECATED => Absent::Deprecated,
            Code::NO_PERMISSION => Absent::NotPermitted,
            Code::NOT_FOUND | Code::NO_DATA => Absent::NotFound,
            Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION_MISMATCH => Absent::TooOld,
            _ => return None,
        })
    }
}

impl fmt::Display for Code {
    /// Writes a description of the code, followed by the code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            1 => "not initialised",
            2 => "invalid argument",
            3 => "not supported",
            4 => "insufficient permissions",
            5 => "already initialised",
            6 => "not found",
            7 => "the buffer is too small",
            8 => "external power is not connected",
            9 => "the driver is not loaded",
            10 => "timeout",
            11 => "the kernel detected an interrupt issue with the GPU",
            12 => "a driver library was not found",
            13 => "the driver does not implement the function",
            14 => "the infoROM is corrupted",
            15 => "the GPU is lost",
            16 => "the GPU requires a reset",
            17 => "the operating system blocks it",
            18 => "library and driver versions differ",
            19 => "the GPU is in use",
            20 => "insufficient memory",
            21 => "no data",
            22 => "not supported on a vGPU with ECC",
            23 => "insufficient resources",
            24 => "that frequency is not supported",
            25 => "argument version mismatch",
            26 => "deprecated",
            27 => "not ready",
            28 => "no GPU found",
            29 => "invalid state",
            30 => "this kind of reset is not supported",
            999 => "internal driver error",
            _ => "unknown error",
        };
        write!(f, "{words} (code {})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn kinds(code: u32) -> [ErrorKind; 3] {
        [Code(code).of_machine(), Code(code).of_device(), Code(code).of_value()]
    }

    #[test]
    fn machine_codes_map_to_machine_faults() {
        for (code, fault) in [
            (1, MachineFault::Unknown(1)),
            (9, MachineFault::DriverNotLoaded),
            (12, MachineFault::NoLibrary),
            (17, MachineFault::Blocked),
            (18, MachineFault::VersionMismatch),
        ] {
            assert_eq!(kinds(code), [fault.into(); 3], "{code}");
        }
    }

    #[test]
    fn device_codes_map_to_device_faults() {
        for (code, fault) in [
            (8, DeviceFault::InsufficientPower),
            (11, DeviceFault::Interrupt),
            (15, DeviceFault::Lost),
            (16, DeviceFault::ResetRequired),
        ] {
            assert_eq!(kinds(code)[1..], [fault.into(); 2], "{code}");
        }
    }

    #[test]
    fn value_codes_map_to_absence_reasons() {
        for (code, absent) in [
            (3, Absent::NotSupported),
            (4, Absent::NotPermitted),
            (6, Absent::NotFound),
            (13, Absent::TooOld),
            (21, Absent::NotFound),
            (25, Absent::TooOld),
            (26, Absent::Deprecated),
        ] {
            assert_eq!(kinds(code)[1..], [absent.into(); 2], "{code}");
        }
    }

    #[test]
    fn ambiguous_code_reach_depends_on_query() {
        assert_eq!(
            kinds(999),
            [
                MachineFault::Unknown(999).into(),
                DeviceFault::Unknown(999).into(),
                Absent::Failed.into()
            ]
        );
        assert_eq!(Code(4).of_machine(), MachineFault::NotPermitted.into());
        assert_eq!(Code(4).of_driver(), Absent::NotPermitted.into());
        assert_eq!(Code(999).of_driver(), MachineFault::Unknown(999).into());
        assert_eq!(Code(4).of_handle(), Absent::NotPermitted.into());
        assert_eq!(Code(17).of_handle(), Absent::NotPermitted.into());
        assert_eq!(Code(15).of_handle(), DeviceFault::Lost.into());
        assert_eq!(Code(7).of_device(), ErrorKind::Again);
        assert_eq!(Code(2).of_value(), Absent::NotSupported.into());
        assert_eq!(Code(6).of_machine(), MachineFault::NoDevices.into());
        assert_eq!(Code(19).of_device(), DeviceFault::InUse.into());
        for code in [7, 19] {
            assert_eq!(Code(code).of_value(), Absent::Failed.into(), "{code}");
        }
    }

    #[test]
    fn every_code_survives_nvml_wrapper() {
        for code in (1..=40).chain([999, 4242]) {
            assert_eq!(Cause::from(NvmlError::from(code)), Code(code).into(), "{code}");
        }
        let missing = NvmlError::FailedToLoadSymbol("undefined symbol".into());
        assert_eq!(Cause::from(missing), Code::FUNCTION_NOT_FOUND.into());
    }

    #[test]
    fn unknown_value_is_not_read_as_code() {
        // Brands, architectures or modes newer than nvml-wrapper.
        for value in [0, 9, 11, 15, 18, 999, u32::MAX] {
            let cause = Cause::from(NvmlError::UnexpectedVariant(value));
            assert_eq!(cause, Cause::UnknownValue(value));
            assert_eq!(cause.kind(Code::of_value).reach(), gpu_core::Reach::Field);
        }
        let unreported = Cause::UnknownValue(u32::MAX).kind(Code::of_machine);
        assert_eq!(unreported, Absent::NotSupported.into());
        let text = String::from_utf8(vec![0xff]).unwrap_err().utf8_error();
        let text = Cause::from(NvmlError::Utf8Error(text)).kind(Code::of_driver);
        assert_eq!(text, Absent::Implausible.into());
    }

    #[test]
    fn only_driver_loss_ends_session() {
        for (code, ends) in [(1, true), (9, true), (18, true), (6, true), (17, false), (999, false)]
        {
            assert_eq!(Code::ends_session(Code(code).of_machine()), ends, "{code}");
        }
        assert!(!Code::ends_session(DeviceFault::Lost.into()));
    }

    #[test]
    fn unknown_codes_are_kept() {
        for code in [31, 77, u32::MAX] {
            assert_eq!(Code(code).of_machine(), MachineFault::Unknown(code).into());
            assert_eq!(Code(code).of_device(), DeviceFault::Unknown(code).into());
            assert!(Code(code).to_string().ends_with(&format!("(code {code})")));
        }
    }

    #[test]
    fn every_documented_code_has_its_own_description() {
        let words = |code: u32| {
            let text = Code(code).to_string();
            let words = text.strip_suffix(&format!(" (code {code})")).map(str::to_owned);
            words.unwrap_or_else(|| panic!("{text} names its code"))
        };
        let documented: BTreeSet<String> = (1..=30).chain([999]).map(words).collect();
        assert_eq!(documented.len(), 31, "{documented:?}");
        assert!(!documented.contains(&words(31)), "an unknown code has other words");
    }
}
