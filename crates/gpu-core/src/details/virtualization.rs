//! Virtual GPUs and protected memory.

use super::readings::groups;
use crate::units::Bytes;

groups! {
    /// Which kinds of virtual GPUs can coexist, as NVML's numbers: 0 means unsupported.
    VirtualGpus {
        /// Of the driver: several profiles side by side.
        heterogeneous: u32,
        /// Fractions of a device in one guest with other devices.
        fractional: u32,
        /// Time-sliced profiles of different types.
        timeslice_profiles: u32,
        /// Time-sliced profiles of different sizes.
        timeslice_sizes: u32,
    }

    /// Memory that neither the host nor other guests can read (confidential computing).
    ProtectedMemory {
        /// All of it.
        total as "total_bytes": Bytes,
        /// What is in use.
        used as "used_bytes": Bytes,
    }
}
