//! How the device is connected.

use super::{Noted, view};
use gpu_core::FabricState;
use serde::Serialize;

/// PCI Express link.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pcie {
    /// Generation in use. Null if unknown.
    pub generation: Option<String>,
    /// Highest generation of GPU and slot. Null if unknown.
    pub generation_max: Option<String>,
    /// Highest generation of the GPU. Null if unknown.
    pub device_generation_max: Option<String>,
    /// Number of lanes in use. Null if unknown.
    pub lane_count: Option<u32>,
    /// Highest number of lanes. Null if unknown.
    pub lane_max_count: Option<u32>,
    /// Number of packets replayed since the last reset. Null if unknown.
    pub replay_count: Option<u32>,
    /// PCI device and vendor ID of the GPU. Null if unknown.
    pub device_id: Option<u32>,
    /// PCI device and vendor ID of the board. Null if unknown.
    pub subsystem_id: Option<u32>,
    /// Total BAR1 memory, which the CPU can address directly, in bytes. Null if unknown.
    pub bar1_total_bytes: Option<u64>,
    /// BAR1 memory in use, in bytes. Null if unknown.
    pub bar1_used_bytes: Option<u64>,
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

/// Traffic on the PCI Express link over 20 ms.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PcieThroughput {
    /// Traffic to the host, in KiB per second. Null if unknown.
    pub sent_kib_per_s: Option<u32>,
    /// Traffic from the host, in KiB per second. Null if unknown.
    pub received_kib_per_s: Option<u32>,
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

/// NVLink of the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NvLink {
    /// Index of the link. Null if unknown.
    pub link_index: usize,
    /// Whether the link is active. Null if unknown.
    pub active: Option<bool>,
    /// Version of NVLink. Null if unknown.
    pub version: Option<String>,
    /// PCI bus ID of the remote device. Null if unknown.
    pub remote_bus_id: Option<String>,
    /// Number of replayed packets. Null if unknown.
    pub replay_count: Option<u64>,
    /// Number of recoveries from an error. Null if unknown.
    pub recovery_count: Option<u64>,
    /// Number of CRC errors in flits. Null if unknown.
    pub crc_error_count: Option<u64>,
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

/// NVLink fabric of the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fabric {
    /// State of the registration. Null if unknown.
    pub state: Option<FabricState>,
    /// Result of the registration, as an NVML return code: 0 is success. Null if unknown.
    pub status_code: Option<u32>,
}

impl Fabric {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Fabric) -> Self {
        view!(noted, "fabric", Fabric { state: group.state, status_code: group.status })
    }
}
