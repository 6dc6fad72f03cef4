//! Virtual GPUs and memory that the host cannot read.

use crate::call::{reading, reading_by};
use crate::code::Code;
use crate::device::Device;
use crate::value::{bytes, number};
use gpu_core::{Absent, ErrorKind, ProtectedMemory, Reading, Result, VirtualGpus};
use nvml_wrapper_sys::bindings::nvmlMemory_t;

/// What a driver may be able to do (`nvmlVgpuDriverCapability_t`).
const HETEROGENEOUS: u32 = 0;
/// What a device may be able to do (`nvmlDeviceVgpuCapability_t`).
const FRACTIONAL: u32 = 0;
const TIMESLICE_PROFILES: u32 = 1;
const TIMESLICE_SIZES: u32 = 2;

pub(super) fn virtual_gpus(device: Device<'_>) -> Result<VirtualGpus> {
    let functions = &device.caller.functions;
    let can = |which| -> Result<Reading<u32>> {
        let answer = device.pick(&functions.nvmlDeviceGetVgpuCapabilities, which);
        Ok(reading(answer)?.and_then(number))
    };
    let mut of_driver = 0;
    // SAFETY: the number is what the function fills in.
    let answer = device.caller.call(&functions.nvmlGetVgpuDriverCapabilities, None, |f| unsafe {
        f(HETEROGENEOUS, &mut of_driver)
    });
    Ok(VirtualGpus {
        heterogeneous: reading_by(answer, of_driver_alone)?.and_then(|()| number(of_driver)),
        fractional: can(FRACTIONAL)?,
        timeslice_profiles: can(TIMESLICE_PROFILES)?,
        timeslice_sizes: can(TIMESLICE_SIZES)?,
    })
}

/// What a code means that answers a question about the driver: no fault of this device.
fn of_driver_alone(code: Code) -> ErrorKind {
    match code.of_value() {
        ErrorKind::Device(_) => Absent::Failed.into(),
        kind => kind,
    }
}

pub(super) fn protected_memory(device: Device<'_>) -> Result<ProtectedMemory> {
    let function = &device.caller.functions.nvmlDeviceGetConfComputeProtectedMemoryUsage;
    let told = reading(device.get(function))?;
    Ok(ProtectedMemory {
        total: told.and_then(|memory: nvmlMemory_t| bytes(memory.total)),
        used: told.and_then(|memory| bytes(memory.used)),
    })
}
