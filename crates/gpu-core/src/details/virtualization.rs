//! What a device does for machines that share or must not see it: virtual GPUs and protected
//! memory.

use super::readings::groups;
use crate::units::Bytes;

groups! {
    /// What kinds of virtual GPUs can be made at once, as NVML's numbers: 0 is that they cannot.
    VirtualGpus {
        /// Of the driver: kinds of several profiles beside each other.
        heterogeneous: u32,
        /// Parts of a device in one guest with other devices.
        fractional: u32,
        /// Profiles of different types that take turns.
        timeslice_profiles: u32,
        /// Profiles of different sizes that take turns.
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
