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
        /// Banks of the memory with all of their spare rows.
        banks_max: u32,
        /// Banks with most of their spare rows.
        banks_high: u32,
        /// Banks with some of their spare rows.
        banks_partial: u32,
        /// Banks with few spare rows.
        banks_low: u32,
        /// Banks without a spare row: the next bad row there cannot be remapped.
        banks_none: u32,
        /// Uncorrected errors of the SRAM are past the limit of NVIDIA: replace the device.
        sram_threshold_exceeded: bool,
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
        /// What the driver asks for; newer drivers report this instead of the other two.
        recovery: RecoveryAction,
    }
}

/// The action that the driver requests to make a device work again
/// (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RecoveryAction {
    /// Nothing: it works.
    None,
    /// A reset of the device.
    Reset,
    /// A reboot of the machine.
    Reboot,
    /// The end of its peer-to-peer work with other devices.
    DrainPeers,
    /// A reset once no work runs on it.
    DrainAndReset,
    /// The recovery of the IMEX domain, in which devices of several machines share memory.
    RecoverImex,
    /// Another one: later versions of NVML have more, such as a reset of the bus.
    Other,
}

impl RecoveryAction {
    /// NVML's number of each action, and nvidia-smi's name.
    const KNOWN: [(u32, Self, &'static str); 6] = [
        (0, RecoveryAction::None, "None"),
        (1, RecoveryAction::Reset, "Reset"),
        (2, RecoveryAction::Reboot, "Reboot"),
        (3, RecoveryAction::DrainPeers, "Drain P2P"),
        (4, RecoveryAction::DrainAndReset, "Drain and Reset"),
        (5, RecoveryAction::RecoverImex, "Recover IMEX Domain"),
    ];

    /// Further names: of other versions of nvidia-smi, and of the driver in the kernel log.
    const ALSO: [(Self, &'static str); 7] = [
        (RecoveryAction::Reset, "GPU Reset"),
        (RecoveryAction::Reset, "GPU Reset Required"),
        (RecoveryAction::Reset, "PF FLR"),
        (RecoveryAction::Reboot, "Node Reboot"),
        (RecoveryAction::Reboot, "Node Reboot Required"),
        (RecoveryAction::Reboot, "OS Reboot"),
        (RecoveryAction::RecoverImex, "IMEX Domain Recovery"),
    ];

    /// Returns the action that NVML gives this number.
    pub fn from_nvml(number: u32) -> Self {
        let known = Self::KNOWN.iter().find(|(known, ..)| *known == number);
        known.map_or(RecoveryAction::Other, |(_, action, _)| *action)
    }

    /// Returns NVML's number; the highest one for another action.
    pub fn nvml(self) -> u32 {
        let known = Self::KNOWN.iter().find(|(_, action, _)| *action == self);
        known.map_or(u32::MAX, |(number, ..)| *number)
    }

    /// Returns the action that nvidia-smi prints as this name, in either case; `None` if the name
    /// is unknown here.
    pub fn from_name(name: &str) -> Option<Self> {
        let known = Self::KNOWN.iter().map(|(_, action, known)| (*action, *known));
        let mut known = known.chain(Self::ALSO);
        known.find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(action, _)| action)
    }

    /// Returns nvidia-smi's name; `Unknown` for another action.
    pub fn name(self) -> &'static str {
        let known = Self::KNOWN.iter().find(|(_, action, _)| *action == self);
        known.map_or("Unknown", |(.., name)| name)
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
