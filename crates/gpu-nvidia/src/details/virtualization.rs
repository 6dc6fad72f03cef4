//! Virtual GPUs and protected memory.

use crate::call::{reading, reading_by};
use crate::code::Code;
use crate::device::Device;
use crate::session::Opened;
use crate::value::{bytes, number};
use gpu_core::{Absent, ErrorKind, ProtectedMemory, Reading, Result, VirtualGpus};

/// The capabilities of a device (`nvmlDeviceVgpuCapability_t`).
const FRACTIONAL: u32 = 0;
const TIMESLICE_PROFILES: u32 = 1;
const TIMESLICE_SIZES: u32 = 2;
const HOMOGENEOUS_PLACEMENTS: u32 = 9;
const MIG_TIMESLICING: u32 = 10;
const MIG_TIMESLICING_ENABLED: u32 = 11;
/// A capability of the driver (`nvmlVgpuDriverCapability_t`).
const HETEROGENEOUS: u32 = 0;

pub(super) fn virtual_gpus(nvml: Opened<'_>, device: Device<'_>) -> Result<VirtualGpus> {
    let can = |which| -> Result<Reading<u32>> {
        Ok(reading(device.virtual_gpu_capability(which))?.and_then(number))
    };
    let purpose = "for the driver's vGPU capabilities";
    let of_driver = nvml.caller.call("nvmlGetVgpuDriverCapabilities", purpose, None, || {
        nvml.session.nvml.vgpu_driver_capabilities(HETEROGENEOUS)
    });
    Ok(VirtualGpus {
        heterogeneous: reading_by(of_driver, of_driver_alone)?.and_then(number),
        fractional: can(FRACTIONAL)?,
        timeslice_profiles: can(TIMESLICE_PROFILES)?,
        timeslice_sizes: can(TIMESLICE_SIZES)?,
        homogeneous_placements: can(HOMOGENEOUS_PLACEMENTS)?,
        mig_timeslicing: can(MIG_TIMESLICING)?,
        mig_timeslicing_enabled: can(MIG_TIMESLICING_ENABLED)?,
    })
}

/// Returns the meaning of a code from a query of the driver, which is not a fault of this device.
fn of_driver_alone(code: Code) -> ErrorKind {
    match code.of_value() {
        ErrorKind::Device(_) => Absent::Failed.into(),
        kind => kind,
    }
}

pub(super) fn protected_memory(device: Device<'_>) -> Result<ProtectedMemory> {
    let reported = reading(device.protected_memory())?;
    Ok(ProtectedMemory {
        total: reported.and_then(|memory| bytes(memory.total)),
        used: reported.and_then(|memory| bytes(memory.used)),
    })
}
