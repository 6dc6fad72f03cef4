//! The health of device memory.

use super::readings::{Readings, groups};
use crate::absent::Absent;

groups! {
    /// Errors of device memory and what was done about them.
    MemoryHealth {
        /// Corrected errors since the driver was loaded.
        corrected: u64,
        /// Uncorrected errors since the driver was loaded.
        uncorrected: u64,
        /// Corrected errors in the device's life.
        corrected_lifetime: u64,
        /// Uncorrected errors in the device's life.
        uncorrected_lifetime: u64,
        /// Pages retired after several single-bit errors.
        retired_single_bit: u32,
        /// Pages retired after a double-bit error.
        retired_double_bit: u32,
        /// A page waits for a reset to be retired.
        retired_pending: bool,
        /// Rows remapped after corrected errors.
        remapped_corrected: u32,
        /// Rows remapped after uncorrected errors.
        remapped_uncorrected: u32,
        /// A row waits for a reset to be remapped.
        remapped_pending: bool,
        /// A row could not be remapped: the device is to be replaced.
        remapped_failure: bool,
    }

    /// Errors by the place where they were found.
    ErrorsByPlace {
        /// Device memory.
        device_memory: u64,
        /// The registers.
        register_file: u64,
        /// The first cache.
        l1_cache: u64,
        /// The second cache.
        l2_cache: u64,
        /// Memory of textures.
        texture_memory: u64,
        /// What converges the branches of a program.
        cbu: u64,
        /// Memory on the chip as a whole.
        sram: u64,
    }

    /// Whether the device needs a reset.
    ResetStatus {
        /// It works only after one.
        required: bool,
        /// It is to be emptied and reset when that is convenient.
        drain_recommended: bool,
    }
}

/// Errors of the memories of a device, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct MemoryErrors {
    /// Corrected since the driver was loaded.
    pub corrected: ErrorsByPlace,
    /// Not corrected since the driver was loaded.
    pub uncorrected: ErrorsByPlace,
    /// Corrected in the device's life.
    pub corrected_lifetime: ErrorsByPlace,
    /// Not corrected in the device's life.
    pub uncorrected_lifetime: ErrorsByPlace,
}

impl MemoryErrors {
    /// Returns the errors with every count absent for `reason`.
    pub fn absent(reason: Absent) -> Self {
        let by_place = || ErrorsByPlace::absent(reason);
        MemoryErrors {
            corrected: by_place(),
            uncorrected: by_place(),
            corrected_lifetime: by_place(),
            uncorrected_lifetime: by_place(),
        }
    }
}

impl Readings for MemoryErrors {
    fn overlay(&mut self, told: &Self) {
        self.corrected.overlay(&told.corrected);
        self.uncorrected.overlay(&told.uncorrected);
        self.corrected_lifetime.overlay(&told.corrected_lifetime);
        self.uncorrected_lifetime.overlay(&told.uncorrected_lifetime);
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        let MemoryErrors { corrected, uncorrected, corrected_lifetime, uncorrected_lifetime } =
            self;
        for errors in [corrected, uncorrected, corrected_lifetime, uncorrected_lifetime] {
            errors.restate(from, to);
        }
    }
}
