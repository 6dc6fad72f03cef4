//! The configuration of a device.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{AddressingMode1, C2cModeInfo1, DramEncryptionInfo1};
use crate::pointer::{Out, Versioned, put_all};
use gpu_core::{AddressingMode, ComputeMode, OperationMode, Reading};
use std::ffi::c_uint;

/// Returns the GPU operation mode in NVML's encoding (`nvmlGpuOperationMode_t`).
fn operation_mode(mode: Reading<OperationMode>) -> Answer<c_uint> {
    Ok(match mode? {
        OperationMode::AllOn => 0,
        OperationMode::Compute => 1,
        OperationMode::LowDoublePrecision => 2,
    })
}

exports! {
    gpu [nvmlDeviceGetPersistenceMode](mode: Out<c_uint>) |gpu| {
        mode.put(gpu.state.info.persistence?.into())
    }

    gpu [nvmlDeviceGetDisplayActive](active: Out<c_uint>) |gpu| {
        active.put(gpu.state.info.display_active?.into())
    }

    gpu [nvmlDeviceGetDisplayMode](mode: Out<c_uint>) |gpu| {
        mode.put(gpu.modes()?.display_attached?.into())
    }

    gpu [nvmlDeviceGetComputeMode](mode: Out<c_uint>) |gpu| {
        mode.put(match gpu.modes()?.compute_mode? {
            ComputeMode::Default => 0,
            ComputeMode::ExclusiveThread => 1,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        })
    }

    gpu [nvmlDeviceGetGpuOperationMode](current: Out<c_uint>, pending: Out<c_uint>) |gpu| {
        let modes = gpu.operation_modes()?;
        let now = operation_mode(modes.current)?;
        let next = operation_mode(modes.pending.or(modes.current))?;
        if current.is_null() && pending.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // nvidia-smi queries one of the two at a time and passes null for the other.
        for (out, mode) in [(current, now), (pending, next)] {
            if !out.is_null() {
                out.put(mode)?;
            }
        }
        Ok(())
    }

    gpu [nvmlDeviceGetEccMode](current: Out<c_uint>, pending: Out<c_uint>) |gpu| {
        let modes = gpu.modes()?;
        let next = modes.ecc_pending.or(modes.ecc);
        put_all([(current, modes.ecc?.into()), (pending, next?.into())])
    }

    gpu [nvmlDeviceGetC2cModeInfoV](mode: Out<C2cModeInfo1>) |gpu| {
        mode.put(C2cModeInfo1 { is_c2c_enabled: gpu.rare_modes()?.c2c?.into() })
    }

    gpu [nvmlDeviceGetDramEncryptionMode](
        current: Out<DramEncryptionInfo1>, pending: Out<DramEncryptionInfo1>,
    ) |gpu| {
        current.check_version()?;
        pending.check_version()?;
        let modes = gpu.rare_modes()?;
        let (now, next) = (modes.memory_encryption?, modes.memory_encryption_pending?);
        put_all([(current, now), (pending, next)].map(|(out, enabled)| {
            let version = DramEncryptionInfo1::VERSION;
            (out, DramEncryptionInfo1 { version, encryption_state: enabled.into() })
        }))
    }

    gpu [nvmlDeviceGetAddressingMode](mode: Out<AddressingMode1>) |gpu| {
        mode.check_version()?;
        let value = match gpu.modes()?.addressing? {
            AddressingMode::None => 0,
            AddressingMode::Hmm => 1,
            AddressingMode::Ats => 2,
        };
        mode.put(AddressingMode1 { version: AddressingMode1::VERSION, value })
    }
}
