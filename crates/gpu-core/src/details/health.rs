//! The health of device memory.

use super::readings::{Readings, groups};
use crate::absent::Absent;

groups! {
    /// Errors of the memory and repairs.
    MemoryHealth named "Health" {
        /// Number of corrected errors since the driver was loaded.
        corrected json "corrected_count": u64,
        /// Number of uncorrected errors since the driver was loaded.
        uncorrected json "uncorrected_count": u64,
        /// Number of corrected errors over the lifetime of the GPU.
        corrected_lifetime json "corrected_lifetime_count": u64,
        /// Number of uncorrected errors over the lifetime of the GPU.
        uncorrected_lifetime json "uncorrected_lifetime_count": u64,
        /// Number of pages retired after several single-bit errors.
        retired_single_bit json "retired_single_bit_count": u32,
        /// Number of pages retired after a double-bit error.
        retired_double_bit json "retired_double_bit_count": u32,
        /// Whether a page will be retired at the next reset.
        retired_pending: bool,
        /// Number of rows remapped after corrected errors.
        remapped_corrected json "remapped_corrected_count": u32,
        /// Number of rows remapped after uncorrected errors.
        remapped_uncorrected json "remapped_uncorrected_count": u32,
        /// Whether a row will be remapped at the next reset.
        remapped_pending: bool,
        /// Whether a row could not be remapped, so that the GPU should be replaced.
        remapped_failure: bool,
        /// Number of banks of the memory with all of their spare rows.
        banks_max json "banks_max_count": u32,
        /// Number of banks with most of their spare rows.
        banks_high json "banks_high_count": u32,
        /// Number of banks with some of their spare rows.
        banks_partial json "banks_partial_count": u32,
        /// Number of banks with few spare rows.
        banks_low json "banks_low_count": u32,
        /// Number of banks without a spare row: the next bad row there cannot be remapped.
        banks_none json "banks_none_count": u32,
        /// Whether uncorrected errors of the SRAM are past NVIDIA's limit, so that the GPU should
        /// be replaced.
        sram_threshold_exceeded: bool,
        ;
        /// The retired pages.
        retired_pages: Vec<RetiredPage>,
    }

    /// Number of uncorrected errors of the SRAM, by kind and place.
    SramErrors {
        /// Parity errors since the driver was loaded.
        parity json "parity_count": u64,
        /// Errors in more bits than ECC corrects, since the driver was loaded.
        multi_bit json "multi_bit_count": u64,
        /// Parity errors over the lifetime of the GPU.
        parity_lifetime json "parity_lifetime_count": u64,
        /// Errors in more bits than ECC corrects, over the lifetime of the GPU.
        multi_bit_lifetime json "multi_bit_lifetime_count": u64,
        /// Errors in the L2 cache over the lifetime of the GPU.
        l2_cache json "l2_cache_count": u64,
        /// Errors in the streaming multiprocessors over the lifetime of the GPU.
        sm json "sm_count": u64,
        /// Errors in the microcontrollers over the lifetime of the GPU.
        microcontroller json "microcontroller_count": u64,
        /// Errors in the PCI Express unit over the lifetime of the GPU.
        pcie json "pcie_count": u64,
        /// Errors in other places over the lifetime of the GPU.
        other json "other_count": u64,
    }

    /// Number of errors by location.
    ErrorsByPlace {
        /// Errors of the device memory.
        device_memory json "device_memory_count": u64,
        /// Errors of the register file.
        register_file json "register_file_count": u64,
        /// Errors of the L1 cache.
        l1_cache json "l1_cache_count": u64,
        /// Errors of the L2 cache.
        l2_cache json "l2_cache_count": u64,
        /// Errors of the texture memory.
        texture_memory json "texture_memory_count": u64,
        /// Errors of the convergence barrier unit.
        cbu json "cbu_count": u64,
        /// Errors of the SRAM as a whole.
        sram json "sram_count": u64,
    }

    /// Whether the GPU needs a reset.
    ResetStatus {
        /// Whether the GPU works only after a reset.
        required: bool,
        /// Whether the GPU should be drained and reset when convenient.
        drain_recommended: bool,
        /// The recovery action that the driver requests.
        recovery: RecoveryAction,
    }
}

/// A page of the memory that the driver no longer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RetiredPage {
    /// Its address in the device memory.
    pub address: u64,
    /// Whether the cause was a double-bit error; otherwise, several single-bit errors.
    pub double_bit: bool,
}

/// The recovery action that the driver requests for a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RecoveryAction {
    /// Nothing: the GPU works.
    None,
    /// A reset of the GPU.
    Reset,
    /// A reboot of the machine.
    Reboot,
    /// The end of its peer-to-peer work with other GPUs.
    DrainPeers,
    /// A reset once no work runs on the GPU.
    DrainAndReset,
    /// The recovery of the IMEX domain, in which GPUs of several machines share memory.
    RecoverImex,
    /// Another one, which this version does not know.
    Other,
}

impl RecoveryAction {
    /// Returns its name, as nvidia-smi prints it.
    pub fn name(self) -> &'static str {
        match self {
            RecoveryAction::None => "None",
            RecoveryAction::Reset => "Reset",
            RecoveryAction::Reboot => "Reboot",
            RecoveryAction::DrainPeers => "Drain P2P",
            RecoveryAction::DrainAndReset => "Drain and Reset",
            RecoveryAction::RecoverImex => "Recover IMEX Domain",
            RecoveryAction::Other => "Unknown",
        }
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
        let by_location = || ErrorsByPlace::absent(reason);
        MemoryErrors {
            corrected: by_location(),
            uncorrected: by_location(),
            corrected_lifetime: by_location(),
            uncorrected_lifetime: by_location(),
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
