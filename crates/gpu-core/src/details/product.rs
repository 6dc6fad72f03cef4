//! What a device is.

use super::readings::groups;

groups! {
    /// What the device is and which firmware it runs.
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
        /// NUMA node of the host that is nearest.
        numa_node: u32,
    }

    /// What is written into the memory of the board that holds its own settings.
    Inforom {
        /// Version of the image as a whole.
        image: String,
        /// Version of the settings of whoever sells the board.
        oem: String,
        /// Version of the record of memory errors.
        ecc: String,
        /// Version of the settings of power.
        power: String,
    }

    /// The driver's part that runs on the device itself (GPU system processor).
    GspFirmware {
        /// It is in use.
        enabled: bool,
        /// It would be where nobody chose.
        enabled_by_default: bool,
    }
}
