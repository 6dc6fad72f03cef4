//! How a device is set up.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::pointer::Out;
use gpu_core::{ComputeMode, Reading};
use std::ffi::c_uint;

/// Returns a switch as NVML shows it (`nvmlEnableState_t`).
fn switch(on: Reading<bool>) -> Answer<c_uint> {
    Ok(on?.into())
}

exports! {
    gpu [nvmlDeviceGetPersistenceMode](mode: Out<c_uint>) |gpu| {
        mode.put(switch(gpu.state.info.persistence)?)
    }

    gpu [nvmlDeviceGetDisplayActive](active: Out<c_uint>) |gpu| {
        active.put(switch(gpu.state.info.display_active)?)
    }

    gpu [nvmlDeviceGetDisplayMode](mode: Out<c_uint>) |gpu| {
        mode.put(switch(gpu.modes()?.display_attached)?)
    }

    gpu [nvmlDeviceGetComputeMode](mode: Out<c_uint>) |gpu| {
        mode.put(match gpu.modes()?.compute_mode? {
            ComputeMode::Default => 0,
            ComputeMode::ExclusiveThread => 1,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        })
    }

    gpu [nvmlDeviceGetEccMode](current: Out<c_uint>, pending: Out<c_uint>) |gpu| {
        let modes = gpu.modes()?;
        let now = switch(modes.ecc)?;
        let next = switch(modes.ecc_pending.or(modes.ecc))?;
        if current.is_null() || pending.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        current.put(now)?;
        pending.put(next)
    }
}
