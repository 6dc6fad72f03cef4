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
        /// Packets sent again since the last reset.
        replays: u32,
        /// Vendor and device number.
        device_id: u32,
        /// Vendor and device number of the board.
        subsystem_id: u32,
        /// Memory of the device that the processor can reach at once (BAR1).
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
        /// The link works.
        active: bool,
        /// Version of NVLink, such as 3.
        version: u32,
        /// What is at the other end.
        remote: PciBusId,
        /// Packets sent again.
        replays: u64,
        /// Recoveries from an error.
        recoveries: u64,
        /// CRC errors in flits.
        crc_errors: u64,
    }

    /// The device's place in a fabric of NVLink switches.
    Fabric {
        /// How far it is registered.
        state: FabricState,
        /// What came of it, as NVML's return code: 0 is success; once it is complete.
        status as "status_code": u32,
    }
}

/// How far a device is registered with the fabric that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FabricState {
    /// It is part of none.
    None,
    /// Not begun.
    NotStarted,
    /// Begun.
    InProgress,
    /// Ended, well or not.
    Completed,
}
