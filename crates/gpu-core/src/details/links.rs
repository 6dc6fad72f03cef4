//! The links of a device: PCI Express and NVLink.

use super::readings::groups;
use crate::id::PciBusId;
use crate::units::Bytes;

groups! {
    /// PCI Express link.
    Pcie {
        /// Generation in use.
        generation: u32 => String = |number| number.to_string(),
        /// Highest generation of GPU and slot.
        generation_max: u32 => String = |number| number.to_string(),
        /// Highest generation of the GPU.
        device_generation_max: u32 => String = |number| number.to_string(),
        /// Number of lanes in use.
        width json "lane_count": u32,
        /// Highest number of lanes.
        width_max json "lane_max_count": u32,
        /// Number of packets replayed since the last reset.
        replays json "replay_count": u32,
        /// PCI device and vendor ID of the GPU.
        device_id: u32,
        /// PCI device and vendor ID of the board.
        subsystem_id: u32,
        /// PCI base class: 3 for display controllers.
        base_class: u32,
        /// PCI subclass, such as 2 for a controller without display.
        sub_class: u32,
        /// Total BAR1 memory, which the CPU can address directly, in bytes.
        bar1_total as "bar1_total_bytes": Bytes,
        /// BAR1 memory in use, in bytes.
        bar1_used as "bar1_used_bytes": Bytes,
        /// Traffic to the host so far, in bytes. The counter may start again at 0.
        sent as "sent_bytes": Bytes,
        /// Traffic from the host so far, in bytes. The counter may start again at 0.
        received as "received_bytes": Bytes,
    }

    /// Traffic on the PCI Express link over 20 ms.
    PcieThroughput {
        /// Traffic to the host, in KiB per second.
        sent file "sent_kib_s" json "sent_kib_per_s": u32,
        /// Traffic from the host, in KiB per second.
        received file "received_kib_s" json "received_kib_per_s": u32,
    }

    /// NVLink of the GPU.
    NvLink {
        /// Whether the link is active.
        active: bool,
        /// Version of NVLink.
        version: u32 => String = |number| number.to_string(),
        /// PCI bus ID of the remote device.
        remote json "remote_bus_id": PciBusId,
        /// Number of replayed packets.
        replays json "replay_count": u64,
        /// Number of recoveries from an error.
        recoveries json "recovery_count": u64,
        /// Number of CRC errors in flits.
        crc_errors json "crc_error_count": u64,
    }

    /// NVLink fabric of the GPU.
    Fabric {
        /// State of the registration.
        state: FabricState,
        /// Result of the registration, as an NVML return code: 0 is success.
        status as "status_code": u32,
        ;
        /// Number of the clique: GPUs of the cluster that can reach each other.
        clique: u32,
        /// UUID of the cluster.
        cluster: String,
        /// The health as a whole, in nvidia-smi's words.
        health: String,
        /// The bandwidth is degraded.
        bandwidth_degraded: bool,
        /// The recovery of a route is in progress.
        route_recovery: bool,
        /// A route is unhealthy.
        route_unhealthy: bool,
        /// The recovery from a timeout of an access is in progress.
        access_timeout_recovery: bool,
        /// What is wrong with the configuration, in nvidia-smi's words; empty if nothing is.
        incorrect_configuration: String,
    }

    /// Place of the GPU in its rack.
    Platform {
        /// Serial number of the chassis; empty if it has none.
        chassis_serial: String,
        /// Slot in the chassis.
        slot json "slot_number": u32,
        /// Tray in the slot.
        tray json "tray_index": u32,
        /// Host in the slot.
        host json "host_id": u32,
        /// Whether NVLink connects the GPU to a switch; otherwise, to its peers.
        switched: bool,
        /// Module in the host.
        module json "module_id": u32,
        /// Identifier of the GPU in the fabric.
        fabric_guid: u64 => String = |guid| format!("0x{guid:016X}"),
    }
}

/// State of a device's registration with its NVLink fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FabricState {
    /// The device is part of no fabric.
    None,
    /// Not started.
    NotStarted,
    /// In progress.
    InProgress,
    /// Completed, successfully or not.
    Completed,
}
