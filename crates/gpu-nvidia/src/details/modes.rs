//! The configuration of a device.

use crate::call::reading;
use crate::device::Device;
use crate::session::Opened;
use crate::value::{part, switch};
use gpu_core::{
    Absent, AddressingMode, ComputeMode, Modes, OperationMode, OperationModes, RareModes, Reading,
    Result,
};

impl Opened<'_> {
    pub(super) fn modes(self, device: Device<'_>) -> Result<Modes> {
        let ecc =
            device.value("nvmlDeviceGetEccMode", "for its ECC mode", |d| d.is_ecc_enabled())?;
        let compute = device
            .value("nvmlDeviceGetComputeMode", "for its compute mode", |d| d.compute_mode())?;
        let purpose = "for its display mode";
        let display = device
            .value("nvmlDeviceGetDisplayMode", purpose, |device| device.is_display_connected())?;
        let accounting =
            device.value("nvmlDeviceGetAccountingMode", "for its accounting mode", |device| {
                device.is_accounting_enabled()
            })?;
        Ok(Modes {
            compute_mode: compute.and_then(|mode| compute_mode(mode.as_c())),
            display_attached: display,
            ecc: part(&ecc, |ecc| Ok(ecc.currently_enabled)),
            ecc_pending: ecc.map(|ecc| ecc.pending_enabled),
            mig_pending: self.mig_mode(device)?.and_then(|(_, pending)| pending),
            accounting,
            addressing: addressing_mode(device)?,
        })
    }
}

pub(super) fn rare_modes(device: Device<'_>) -> Result<RareModes> {
    let encryption = reading(device.memory_encryption())?;
    Ok(RareModes {
        c2c: reading(device.c2c())?.and_then(|mode| switch(mode.isC2cEnabled)),
        memory_encryption: encryption.and_then(|[now, _]| switch(now)),
        memory_encryption_pending: encryption.and_then(|[_, pending]| switch(pending)),
    })
}

fn addressing_mode(device: Device<'_>) -> Result<Reading<AddressingMode>> {
    Ok(reading(device.addressing_mode())?.and_then(|mode| match mode.value {
        0 => Ok(AddressingMode::None),
        1 => Ok(AddressingMode::Hmm),
        2 => Ok(AddressingMode::Ats),
        _ => Err(Absent::Implausible),
    }))
}

pub(super) fn operation_modes(device: Device<'_>) -> Result<OperationModes> {
    let modes =
        device.value("nvmlDeviceGetGpuOperationMode", "for its operation mode", |device| {
            device.gpu_operation_mode()
        })?;
    Ok(OperationModes {
        current: part(&modes, |modes| operation_mode(modes.current.as_c())),
        pending: part(&modes, |modes| operation_mode(modes.pending.as_c())),
    })
}

/// Decodes `nvmlGpuOperationMode_t`.
fn operation_mode(number: u32) -> Reading<OperationMode> {
    Ok(match number {
        0 => OperationMode::AllOn,
        1 => OperationMode::Compute,
        2 => OperationMode::LowDoublePrecision,
        _ => return Err(Absent::Implausible),
    })
}

/// Decodes `nvmlComputeMode_t`.
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
        use ComputeMode::{Default, ExclusiveProcess, ExclusiveThread, Prohibited};
        use OperationMode::{AllOn, Compute, LowDoublePrecision};
        let modes = [Default, ExclusiveThread, Prohibited, ExclusiveProcess].map(Ok);
        assert_eq!([0, 1, 2, 3].map(compute_mode), modes);
        assert_eq!(compute_mode(4), Err(Absent::Implausible));
        assert_eq!([0, 1, 2].map(operation_mode), [AllOn, Compute, LowDoublePrecision].map(Ok));
        assert_eq!(operation_mode(3), Err(Absent::Implausible));
    }
}
