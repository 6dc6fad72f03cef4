//! How the device is connected.

use super::{Noted, view};
use gpu_core::FabricState;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Pcie {
    generation: Option<String>,
    generation_max: Option<String>,
    device_generation_max: Option<String>,
    lane_count: Option<u32>,
    lane_max_count: Option<u32>,
    replay_count: Option<u32>,
    device_id: Option<u32>,
    subsystem_id: Option<u32>,
    bar1_total_bytes: Option<u64>,
    bar1_used_bytes: Option<u64>,
}

impl Pcie {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Pcie) -> Self {
        view!(
            noted,
            "pcie",
            Pcie {
                generation: group.generation.map(|number| number.to_string()),
                generation_max: group.generation_max.map(|number| number.to_string()),
                device_generation_max: group.device_generation_max.map(|number| number.to_string()),
                lane_count: group.width,
                lane_max_count: group.width_max,
                replay_count: group.replays,
                device_id: group.device_id,
                subsystem_id: group.subsystem_id,
                bar1_total_bytes: group.bar1_total.map(|bytes| bytes.0),
                bar1_used_bytes: group.bar1_used.map(|bytes| bytes.0),
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct PcieThroughput {
    sent_kib_per_s: Option<u32>,
    received_kib_per_s: Option<u32>,
}

impl PcieThroughput {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::PcieThroughput) -> Self {
        view!(
            noted,
            "pcie_throughput",
            PcieThroughput { sent_kib_per_s: group.sent, received_kib_per_s: group.received }
        )
    }
}

#[derive(Serialize)]
pub(super) struct NvLink {
    link_index: usize,
    active: Option<bool>,
    version: Option<String>,
    remote_bus_id: Option<String>,
    replay_count: Option<u64>,
    recovery_count: Option<u64>,
    crc_error_count: Option<u64>,
}

impl NvLink {
    pub(super) fn of((link_index, link): (usize, &gpu_core::NvLink)) -> Self {
        NvLink {
            link_index,
            active: link.active.ok(),
            version: link.version.ok().map(|version| version.to_string()),
            remote_bus_id: link.remote.ok().map(|bus| bus.to_string()),
            replay_count: link.replays.ok(),
            recovery_count: link.recoveries.ok(),
            crc_error_count: link.crc_errors.ok(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Fabric {
    state: Option<FabricState>,
    /// NVML's return code: 0 is success.
    status_code: Option<u32>,
}

impl Fabric {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Fabric) -> Self {
        view!(noted, "fabric", Fabric { state: group.state, status_code: group.status })
    }
}
