//! The links of a device: PCI Express and NVLink.

use super::readings::groups;
use crate::id::PciBusId;
use crate::units::Bytes;

groups! {
    /// The PCI Express link.
    Pcie {
        /// Generation in use.
        generation: u32,
        /// Highest generation of device and slot.
        generation_max: u32,
        /// Highest generation of the device alone.
        device_generation_max: u32,
        /// Lanes in use.
        width: u32,
        /// Highest number of lanes.
        width_max: u32,
        /// Packets replayed since the last reset.
        replays: u32,
        /// Vendor and device ID.
        device_id: u32,
        /// Vendor and device ID of the board.
        subsystem_id: u32,
        /// Device memory that the CPU can address directly (BAR1).
        bar1_total as "bar1_total_bytes": Bytes,
        /// How much of it is mapped.
        bar1_used as "bar1_used_bytes": Bytes,
    }

    /// Traffic on the PCI Express link over 20 ms.
    PcieThroughput {
        /// To the host.
        sent as "sent_kib_s": u32,
        /// From the host.
        received as "received_kib_s": u32,
    }

    /// One NVLink; the speed and counters of its own side.
    NvLink {
        /// The link is active.
        active: bool,
        /// Version of NVLink, such as 3.
        version: u32,
        /// The remote end.
        remote: PciBusId,
        /// Replayed packets.
        replays: u64,
        /// Recoveries from an error.
        recoveries: u64,
        /// CRC errors in flits.
        crc_errors: u64,
    }

    /// The device's place in a fabric of NVLink switches.
    Fabric {
        /// The state of its registration.
        state: FabricState,
        /// The result of the registration, once complete, as NVML's return code: 0 is success.
        status as "status_code": u32,
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
