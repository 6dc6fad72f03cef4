//! How a device is set up.

use crate::call::reading;
use crate::device::{Data, Device};
use crate::session::Opened;
use crate::value::switch;
use gpu_core::{
    Absent, AddressingMode, ComputeMode, Modes, OperationMode, OperationModes, Reading, Result,
};
use nvml_wrapper_sys::bindings::nvmlDeviceAddressingMode_t;

impl Opened<'_> {
    pub(super) fn modes(self, device: Device<'_>) -> Result<Modes> {
        let functions = &self.caller.functions;
        let ecc = reading(device.get_two(&functions.nvmlDeviceGetEccMode))?;
        let compute = reading(device.get(&functions.nvmlDeviceGetComputeMode))?;
        let display = reading(device.get(&functions.nvmlDeviceGetDisplayMode))?;
        let accounting = reading(device.get(&functions.nvmlDeviceGetAccountingMode))?;
        Ok(Modes {
            compute_mode: compute.and_then(compute_mode),
            display_attached: display.and_then(switch),
            ecc: ecc.and_then(|(now, _): (u32, u32)| switch(now)),
            ecc_pending: ecc.and_then(|(_, pending)| switch(pending)),
            mig_pending: self.mig_mode(device)?.and_then(|(_, pending)| pending),
            accounting: accounting.and_then(switch),
            addressing: addressing_mode(device)?,
        })
    }
}

fn addressing_mode(device: Device<'_>) -> Result<Reading<AddressingMode>> {
    let version = size_of::<nvmlDeviceAddressingMode_t>() as u32 | 1 << 24;
    let asked = nvmlDeviceAddressingMode_t { version, ..Data::zeroed() };
    let answer = device.fill(&device.caller.functions.nvmlDeviceGetAddressingMode, asked);
    Ok(reading(answer)?.and_then(|mode| match mode.value {
        0 => Ok(AddressingMode::None),
        1 => Ok(AddressingMode::Hmm),
        2 => Ok(AddressingMode::Ats),
        _ => Err(Absent::Implausible),
    }))
}

pub(super) fn operation_modes(device: Device<'_>) -> Result<OperationModes> {
    let function = &device.caller.functions.nvmlDeviceGetGpuOperationMode;
    let modes = reading(device.get_two(function))?;
    Ok(OperationModes {
        current: modes.and_then(|(now, _): (u32, u32)| operation_mode(now)),
        pending: modes.and_then(|(_, pending)| operation_mode(pending)),
    })
}

/// Reads `nvmlGpuOperationMode_t`.
fn operation_mode(number: u32) -> Reading<OperationMode> {
    Ok(match number {
        0 => OperationMode::AllOn,
        1 => OperationMode::Compute,
        2 => OperationMode::LowDoublePrecision,
        _ => return Err(Absent::Implausible),
    })
}

/// Reads `nvmlComputeMode_t`.
fn compute_mode(number: u32) -> Reading<ComputeMode> {
    Ok(match number {
        0 => ComputeMode::Default,
        1 => ComputeMode::ExclusiveThread,
        2 => ComputeMode::Prohibited,
        3 => ComputeMode::ExclusiveProcess,
        _ => return Err(Absent::Implausible),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_decoded() {
        assert_eq!(compute_mode(0), Ok(ComputeMode::Default));
        assert_eq!(compute_mode(3), Ok(ComputeMode::ExclusiveProcess));
        assert_eq!(compute_mode(4), Err(Absent::Implausible));
        assert_eq!(operation_mode(0), Ok(OperationMode::AllOn));
        assert_eq!(operation_mode(2), Ok(OperationMode::LowDoublePrecision));
        assert_eq!(operation_mode(3), Err(Absent::Implausible));
    }
}
