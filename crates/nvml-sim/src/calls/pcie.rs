//! The PCI Express link.

use crate::code::Code;
use crate::entry::exports;
use crate::pointer::Out;
use std::ffi::c_uint;

/// Directions (`nvmlPcieUtilCounter_t`): to the host, from the host.
const SENT: c_uint = 0;
const RECEIVED: c_uint = 1;

exports! {
    gpu [nvmlDeviceGetCurrPcieLinkGeneration](generation: Out<c_uint>) |gpu| {
        generation.put(gpu.pcie()?.generation?)
    }

    gpu [nvmlDeviceGetMaxPcieLinkGeneration](generation: Out<c_uint>) |gpu| {
        generation.put(gpu.pcie()?.generation_max?)
    }

    gpu [nvmlDeviceGetGpuMaxPcieLinkGeneration](generation: Out<c_uint>) |gpu| {
        generation.put(gpu.pcie()?.device_generation_max?)
    }

    gpu [nvmlDeviceGetCurrPcieLinkWidth](width: Out<c_uint>) |gpu| {
        width.put(gpu.pcie()?.width?)
    }

    gpu [nvmlDeviceGetMaxPcieLinkWidth](width: Out<c_uint>) |gpu| {
        width.put(gpu.pcie()?.width_max?)
    }

    gpu [nvmlDeviceGetPcieReplayCounter](replays: Out<c_uint>) |gpu| {
        replays.put(gpu.pcie()?.replays?)
    }

    gpu [nvmlDeviceGetPcieThroughput](direction: c_uint, throughput: Out<c_uint>) |gpu| {
        throughput.put(match direction {
            SENT => gpu.pcie_throughput()?.sent?,
            RECEIVED => gpu.pcie_throughput()?.received?,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }
}
