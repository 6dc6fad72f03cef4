//! The health of device memory.

use super::readings::{Readings, groups};
use crate::absent::Absent;

groups! {
    /// Errors of device memory and the reactions to them.
    MemoryHealth {
        /// Corrected errors since the driver was loaded.
        corrected: u64,
        /// Uncorrected errors since the driver was loaded.
        uncorrected: u64,
        /// Corrected errors over the device's lifetime.
        corrected_lifetime: u64,
        /// Uncorrected errors over the device's lifetime.
        uncorrected_lifetime: u64,
        /// Pages retired after several single-bit errors.
        retired_single_bit: u32,
        /// Pages retired after a double-bit error.
        retired_double_bit: u32,
        /// A page is pending retirement until a reset.
        retired_pending: bool,
        /// Rows remapped after corrected errors.
        remapped_corrected: u32,
        /// Rows remapped after uncorrected errors.
        remapped_uncorrected: u32,
        /// A row is pending remapping until a reset.
        remapped_pending: bool,
        /// A row could not be remapped: replace the device.
        remapped_failure: bool,
    }

    /// Errors by location.
    ErrorsByPlace {
        /// Device memory.
        device_memory: u64,
        /// The register file.
        register_file: u64,
        /// The L1 cache.
        l1_cache: u64,
        /// The L2 cache.
        l2_cache: u64,
        /// Texture memory.
        texture_memory: u64,
        /// The convergence barrier unit.
        cbu: u64,
        /// On-chip SRAM as a whole.
        sram: u64,
    }

    /// Whether the device needs a reset.
    ResetStatus {
        /// It works only after a reset.
        required: bool,
        /// It should be drained and reset when convenient.
        drain_recommended: bool,
    }
}

/// Errors of the memories of a device, by location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct MemoryErrors {
    /// Corrected since the driver was loaded.
    pub corrected: ErrorsByPlace,
    /// Uncorrected since the driver was loaded.
    pub uncorrected: ErrorsByPlace,
    /// Corrected over the device's lifetime.
    pub corrected_lifetime: ErrorsByPlace,
    /// Uncorrected over the device's lifetime.
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
    fn overlay(&mut self, reported: &Self) {
        self.corrected.overlay(&reported.corrected);
        self.uncorrected.overlay(&reported.uncorrected);
        self.corrected_lifetime.overlay(&reported.corrected_lifetime);
        self.uncorrected_lifetime.overlay(&reported.uncorrected_lifetime);
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        let MemoryErrors { corrected, uncorrected, corrected_lifetime, uncorrected_lifetime } =
            self;
        for errors in [corrected, uncorrected, corrected_lifetime, uncorrected_lifetime] {
            errors.restate(from, to);
        }
    }
}
