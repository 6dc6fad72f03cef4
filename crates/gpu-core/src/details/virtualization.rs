//! Virtual GPUs and protected memory.

use super::readings::groups;
use crate::units::Bytes;

groups! {
    /// Which kinds of virtual GPUs can coexist.
    VirtualGpus {
        /// Whether the driver supports different profiles side by side.
        heterogeneous: u32 => bool = |number| number != 0,
        /// Whether one guest can have fractions of this GPU alongside other GPUs.
        fractional: u32 => bool = |number| number != 0,
        /// Whether time-sliced profiles of different types can coexist.
        timeslice_profiles: u32 => bool = |number| number != 0,
        /// Whether time-sliced profiles of different sizes can coexist.
        timeslice_sizes: u32 => bool = |number| number != 0,
        /// Whether profiles of the same type can be placed without gaps.
        homogeneous_placements: u32 => bool = |number| number != 0,
        /// Whether guests can share a MIG instance by time slices.
        mig_timeslicing: u32 => bool = |number| number != 0,
        /// Whether guests share MIG instances by time slices now.
        mig_timeslicing_enabled: u32 => bool = |number| number != 0,
    }

    /// Memory that neither the host nor other guests can read (confidential computing).
    ProtectedMemory {
        /// Total protected memory, in bytes.
        total as "total_bytes": Bytes,
        /// Protected memory in use, in bytes.
        used as "used_bytes": Bytes,
    }
}
