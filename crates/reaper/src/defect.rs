//! Defects that a device reports.

use crate::evidence::Sign;
use gpu_core::{
    ComputeMode, DeviceState, Group, Groups, HolderSearch, Observation, RecoveryAction,
};
use std::fmt;

/// The groups of details that show the defects of a device.
pub fn defect_groups() -> Groups {
    Groups::from_iter([Group::Modes, Group::ResetStatus, Group::MemoryHealth])
}

/// The data for a full diagnosis: the health of the devices, the holders of their files, and the
/// driver's messages in the kernel log.
pub fn full_observation() -> Observation {
    let more = [Group::Activity, Group::Thermal, Group::Pcie, Group::NvLinks, Group::Fabric];
    let groups = defect_groups().and(Groups::from_iter(more));
    Observation {
        groups,
        holders: HolderSearch::Always,
        driver_messages: true,
        ..Observation::default()
    }
}

/// A defect of a device, or a setting with the same effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// It works only after a reset.
    ResetRequired,
    /// The driver requests more than a reset: a reboot, the end of peer-to-peer work, the recovery
    /// of the IMEX domain, or an unknown action.
    Recovery(RecoveryAction),
    /// Its compute mode is Prohibited.
    ComputeProhibited,
    /// It is in MIG mode and has no instance.
    NoMigInstance,
    /// A row of its memory could not be remapped.
    RemappingFailed,
    /// Its SRAM had more uncorrected errors than NVIDIA's limit for a replacement.
    SramWornOut,
    /// This many memory errors were not corrected since the driver was loaded.
    Uncorrected(u64),
    /// This many banks of its memory have no spare row left.
    NoSpareRows(u32),
    /// A row or page of its memory is replaced at the next reset.
    RepairPending,
    /// The driver recommends a reset once it is idle.
    DrainRecommended,
    /// MIG will be on, or off, after the next reset.
    MigPending(bool),
    /// ECC will be on, or off, after the next reset.
    EccPending(bool),
}

/// The effect of a defect on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// A job runs as on any other device.
    Fit,
    /// A job runs, but its results may be wrong or it may fail: only for users who name the device.
    Doubtful,
    /// No CUDA program can use the device.
    Unusable,
}

impl Defect {
    /// Returns the effect on a job. DCGM's health check fails on uncorrected errors and on failed
    /// remapping, but not on pending repairs (`DcgmHealthWatch.cpp`). A device that should be
    /// drained must not get new work (`nvmlDeviceGpuRecoveryAction_t`).
    pub fn fitness(self) -> Fitness {
        match self {
            Defect::ResetRequired
            | Defect::Recovery(RecoveryAction::Reboot | RecoveryAction::Other)
            | Defect::ComputeProhibited
            | Defect::NoMigInstance => Fitness::Unusable,
            Defect::Recovery(_)
            | Defect::RemappingFailed
            | Defect::SramWornOut
            | Defect::DrainRecommended
            | Defect::Uncorrected(_) => Fitness::Doubtful,
            Defect::NoSpareRows(_)
            | Defect::RepairPending
            | Defect::MigPending(_)
            | Defect::EccPending(_) => Fitness::Fit,
        }
    }

    /// Returns the kind of observation for a finding.
    pub fn sign(self) -> Sign {
        match self {
            Defect::ResetRequired => Sign::ResetRequired,
            Defect::Recovery(RecoveryAction::Reboot) => Sign::RebootRequired,
            Defect::Recovery(_) => Sign::RecoveryRequired,
            Defect::ComputeProhibited => Sign::ComputeProhibited,
            Defect::NoMigInstance => Sign::NoMigInstance,
            Defect::RemappingFailed => Sign::RowRemappingFailed,
            Defect::SramWornOut => Sign::SramThresholdExceeded,
            Defect::NoSpareRows(_) => Sign::NoSpareRows,
            Defect::Uncorrected(_) => Sign::UncorrectedEccErrors,
            Defect::RepairPending => Sign::MemoryRepairPending,
            Defect::DrainRecommended => Sign::ResetRecommended,
            Defect::MigPending(_) => Sign::MigModePending,
            Defect::EccPending(_) => Sign::EccModePending,
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |on: &bool| if *on { "enabled" } else { "disabled" };
        match self {
            Defect::ResetRequired => f.write_str("requires a reset"),
            Defect::Recovery(RecoveryAction::Reboot) => {
                f.write_str("requires a reboot of the machine")
            }
            Defect::Recovery(RecoveryAction::DrainPeers) => {
                f.write_str("the driver requests the end of its peer-to-peer work with other GPUs")
            }
            Defect::Recovery(RecoveryAction::RecoverImex) => f.write_str(
                "the driver requests a recovery of its IMEX domain: memory that it shares with \
                 GPUs of \
                 other machines is lost",
            ),
            Defect::Recovery(_) => f.write_str("the driver requests an unknown recovery action"),
            Defect::ComputeProhibited => f.write_str("compute mode Prohibited: CUDA cannot use it"),
            Defect::NoMigInstance => {
                f.write_str("MIG enabled without an instance: CUDA sees no device")
            }
            Defect::RemappingFailed => f.write_str("a memory row could not be remapped"),
            Defect::SramWornOut => f.write_str("more uncorrected SRAM errors than NVIDIA's limit"),
            Defect::NoSpareRows(1) => f.write_str("1 memory bank has no spare row left"),
            Defect::NoSpareRows(count) => {
                write!(f, "{count} memory banks have no spare row left")
            }
            Defect::Uncorrected(1) => f.write_str("1 uncorrected memory error"),
            Defect::Uncorrected(count) => write!(f, "{count} uncorrected memory errors"),
            Defect::RepairPending => f.write_str("a memory repair takes effect at the next reset"),
            Defect::DrainRecommended => f.write_str("the driver recommends a reset when idle"),
            Defect::MigPending(on) => write!(f, "MIG will be {} after a reset", state(on)),
            Defect::EccPending(on) => write!(f, "ECC will be {} after a reset", state(on)),
        }
    }
}

/// Returns the defects of a device, as far as its details were read ([`defect_groups`]); the worst
/// first.
pub fn defects(device: &DeviceState) -> Vec<Defect> {
    let mut found = Vec::new();
    if device.info.partitioned == Ok(true) && device.partitions.as_ref().is_ok_and(Vec::is_empty) {
        found.push(Defect::NoMigInstance);
    }
    let Ok(details) = &device.details else { return found };
    let mut note = |is: bool, defect| {
        if is {
            found.push(defect);
        }
    };
    if let Some(status) = &details.reset_status {
        use RecoveryAction::{DrainAndReset, DrainPeers, None, Other, Reboot, RecoverImex, Reset};
        let asked = status.recovery.unwrap_or(None);
        // A reset does not suffice if the driver requests a reboot.
        let required = status.required == Ok(true) && asked != Reboot;
        let recommended = status.drain_recommended == Ok(true);
        note(required || asked == Reset, Defect::ResetRequired);
        let is_other = matches!(asked, Reboot | DrainPeers | RecoverImex | Other);
        note(is_other, Defect::Recovery(asked));
        note(recommended || asked == DrainAndReset, Defect::DrainRecommended);
    }
    if let Some(modes) = &details.modes {
        note(modes.compute_mode == Ok(ComputeMode::Prohibited), Defect::ComputeProhibited);
        if let (Ok(now), Ok(pending)) = (device.info.partitioned, modes.mig_pending) {
            note(now != pending, Defect::MigPending(pending));
        }
        if let (Ok(now), Ok(pending)) = (modes.ecc, modes.ecc_pending) {
            note(now != pending, Defect::EccPending(pending));
        }
    }
    if let Some(memory) = &details.memory_health {
        note(memory.remapped_failure == Ok(true), Defect::RemappingFailed);
        note(memory.sram_threshold_exceeded == Ok(true), Defect::SramWornOut);
        let uncorrected = memory.uncorrected.unwrap_or(0);
        note(uncorrected > 0, Defect::Uncorrected(uncorrected));
        let pending = memory.remapped_pending == Ok(true) || memory.retired_pending == Ok(true);
        note(pending, Defect::RepairPending);
        let exhausted = memory.banks_none.unwrap_or(0);
        note(exhausted > 0, Defect::NoSpareRows(exhausted));
    }
    found.sort_by_key(|defect| std::cmp::Reverse(defect.fitness()));
    found
}

/// Returns the worst defect of a device that keeps it from jobs; `None` if it is fit.
pub fn unfit(device: &DeviceState) -> Option<Defect> {
    defects(device).into_iter().next().filter(|defect| defect.fitness() > Fitness::Fit)
}
