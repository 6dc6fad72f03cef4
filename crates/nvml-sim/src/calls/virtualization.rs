//! Virtual GPUs.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::pointer::Out;
use crate::view::View;
use std::ffi::c_uint;

/// The capabilities of a driver (`nvmlVgpuDriverCapability_t`).
const HETEROGENEOUS: c_uint = 0;
const WARM_UPDATE: c_uint = 1;
/// The capabilities of a device (`nvmlDeviceVgpuCapability_t`).
const FRACTIONAL: c_uint = 0;
const TIMESLICE_PROFILES: c_uint = 1;
const TIMESLICE_SIZES: c_uint = 2;
const HOMOGENEOUS_PLACEMENTS: c_uint = 9;
const MIG_TIMESLICING_SUPPORTED: c_uint = 10;
const MIG_TIMESLICING_ENABLED: c_uint = 11;
const CAPABILITIES: c_uint = 12;

/// Returns whether the driver supports several vGPU profiles at the same time: the value of the
/// first device that reports it.
fn heterogeneous(view: &View) -> Answer<c_uint> {
    let mut reported =
        view.subjects().filter_map(|gpu| gpu.virtual_gpus().ok()?.heterogeneous.ok());
    reported.next().ok_or(Code::NOT_SUPPORTED)
}

exports! {
    machine [nvmlGetVgpuDriverCapabilities](which: c_uint, can: Out<c_uint>) |view| {
        match which {
            HETEROGENEOUS => can.put(heterogeneous(view)?),
            WARM_UPDATE => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    gpu [nvmlDeviceGetVgpuCapabilities](which: c_uint, can: Out<c_uint>) |gpu| {
        let reported = gpu.virtual_gpus()?;
        match which {
            FRACTIONAL => can.put(reported.fractional?),
            TIMESLICE_PROFILES => can.put(reported.timeslice_profiles?),
            TIMESLICE_SIZES => can.put(reported.timeslice_sizes?),
            HOMOGENEOUS_PLACEMENTS => can.put(reported.homogeneous_placements?),
            MIG_TIMESLICING_SUPPORTED => can.put(reported.mig_timeslicing?),
            MIG_TIMESLICING_ENABLED => can.put(reported.mig_timeslicing_enabled?),
            which if which < CAPABILITIES => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }
}
