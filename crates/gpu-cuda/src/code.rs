//! The driver's error codes as errors of gpu-core.
//!
//! cudarc's codes are an enum of one CUDA version. This module treats them as numbers.

use cudarc::driver::DriverError;
use gpu_core::{DeviceFault, Error, ErrorKind, MachineFault};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const STUB_LIBRARY: u32 = 34;
const NO_DEVICE: u32 = 100;
const OPERATING_SYSTEM: u32 = 304;
const NOT_SUPPORTED: u32 = 801;
const SYSTEM_DRIVER_MISMATCH: u32 = 803;

/// Returns an error that concerns the whole machine.
pub(crate) fn of_machine(code: DriverError, what: String) -> Error {
    let kind = match code.0 as u32 {
        STUB_LIBRARY => MachineFault::NoLibrary,
        NO_DEVICE => MachineFault::NoDevices,
        OPERATING_SYSTEM => MachineFault::Blocked,
        SYSTEM_DRIVER_MISMATCH => MachineFault::VersionMismatch,
        code => MachineFault::Unknown(code),
    };
    let error = Error::new(kind, what);
    match code.0 as u32 {
        STUB_LIBRARY => error.with_source(
            "libcuda.so is the toolkit's stub; remove its directory from LD_LIBRARY_PATH \
             (CUDA error 34)",
        ),
        code => error.with_source(words(code)),
    }
}

/// Returns an error that concerns one device or one call.
pub(crate) fn of_device(code: DriverError, what: String) -> Error {
    let kind = match code.0 as u32 {
        INVALID_VALUE => ErrorKind::Invalid,
        OUT_OF_MEMORY => DeviceFault::OutOfMemory.into(),
        NOT_SUPPORTED => ErrorKind::Unsupported,
        code => DeviceFault::Unknown(code).into(),
    };
    Error::new(kind, what).with_source(words(code.0 as u32))
}

fn words(code: u32) -> String {
    format!("CUDA error {code}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUresult;

    #[test]
    fn codes_map_by_reach() {
        let machine = |code| of_machine(DriverError(code), "list".into()).kind();
        let device = |code| of_device(DriverError(code), "reserve".into()).kind();
        for (code, fault) in [
            (CUresult::CUDA_ERROR_STUB_LIBRARY, MachineFault::NoLibrary),
            (CUresult::CUDA_ERROR_NO_DEVICE, MachineFault::NoDevices),
            (CUresult::CUDA_ERROR_OPERATING_SYSTEM, MachineFault::Blocked),
            (CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, MachineFault::VersionMismatch),
            (CUresult::CUDA_ERROR_UNKNOWN, MachineFault::Unknown(999)),
        ] {
            assert_eq!(machine(code), fault.into(), "{code:?}");
        }
        for (code, kind) in [
            (CUresult::CUDA_ERROR_INVALID_VALUE, ErrorKind::Invalid),
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, DeviceFault::OutOfMemory.into()),
            (CUresult::CUDA_ERROR_NOT_SUPPORTED, ErrorKind::Unsupported),
            (CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE, DeviceFault::Unknown(46).into()),
        ] {
            assert_eq!(device(code), kind, "{code:?}");
        }
        let text = of_device(DriverError(CUresult::CUDA_ERROR_UNKNOWN), "reserve".into()).fault();
        assert_eq!(text.text, "reserve: CUDA error 999");
    }
}
