//! The identity of a device.

use super::readings::groups;

groups! {
    /// The model of the device and its firmware.
    Product {
        /// Product line, such as `Tesla` or `GeForce`.
        brand: String,
        /// Architecture, such as `Ampere`.
        architecture: String,
        /// Serial number, printed on the board.
        serial: String,
        /// Part number of the board.
        part_number: String,
        /// Version of the video BIOS.
        vbios: String,
        /// CUDA compute capability, major and minor.
        compute_capability: (u32, u32),
        /// Number of CUDA cores.
        cores: u32,
        /// Width of the memory interface.
        memory_bus_width as "memory_bus_width_bits": u32,
        /// The nearest NUMA node of the host.
        numa_node: u32,
    }

    /// The contents of the board's inforom.
    Inforom {
        /// Version of the image as a whole.
        image: String,
        /// Version of the OEM object.
        oem: String,
        /// Version of the ECC object.
        ecc: String,
        /// Version of the power management object.
        power: String,
    }

    /// The driver's firmware on the device itself (GPU system processor).
    GspFirmware {
        /// It is in use.
        enabled: bool,
        /// It is used by default.
        enabled_by_default: bool,
    }
}
