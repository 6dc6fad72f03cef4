//! The identity of a device.

use super::readings::groups;

groups! {
    /// The identity of the GPU.
    Product {
        /// Product line, such as Tesla or GeForce.
        brand: String,
        /// Architecture, such as Ampere.
        architecture: String,
        /// Serial number of the board.
        serial: String,
        /// Part number of the board.
        part_number: String,
        /// Version of the video BIOS.
        vbios: String,
        /// CUDA compute capability, such as 8.0.
        compute_capability: (u32, u32) => String = |(major, minor)| format!("{major}.{minor}"),
        /// Number of CUDA cores.
        cores json "core_count": u32,
        /// Width of the memory bus, in bits.
        memory_bus_width as "memory_bus_width_bits": u32,
        /// Nearest NUMA node of the host.
        numa_node json "numa_node_id": u32,
    }

    /// Versions of the contents of the inforom.
    Inforom {
        /// Version of the image.
        image: String,
        /// Version of the OEM object.
        oem: String,
        /// Version of the ECC object.
        ecc: String,
        /// Version of the power management object.
        power: String,
        /// Whether the checksums are right.
        valid: bool,
    }

    /// Firmware of the GPU system processor (GSP).
    GspFirmware {
        /// Whether the firmware is in use.
        enabled: bool,
        /// Whether the firmware is in use by default.
        enabled_by_default: bool,
    }
}
