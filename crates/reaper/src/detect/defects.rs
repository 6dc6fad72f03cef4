//! Defects that a device reports: modes, memory errors, pending changes.

use super::context::DetectContext;
use crate::defect::{Defect, defects};
use crate::evidence::Evidence;
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use gpu_core::{DeviceState, ErrorKind, RecoveryAction};
use std::collections::BTreeMap;

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    context.now.devices.iter().flat_map(detect_on).collect()
}

/// Returns one finding per kind, with all its signs.
fn detect_on(device: &DeviceState) -> Vec<Finding> {
    let mut signs: BTreeMap<FindingKind, Vec<Defect>> = BTreeMap::new();
    for defect in defects(device) {
        signs.entry(kind(defect)).or_default().push(defect);
    }
    // Memory errors explain the pending repair.
    if signs.contains_key(&FindingKind::MemoryErrors)
        && let Some(pending) = signs.get_mut(&FindingKind::PendingReset)
    {
        pending.retain(|defect| *defect != Defect::DrainRecommended);
    }
    // The device itself refused to answer, which is a finding of its own.
    let refused =
        device.sample.as_ref().is_err_and(|fault| matches!(fault.kind, ErrorKind::Device(_)));
    signs.retain(|kind, of| !(of.is_empty() || refused && *kind == FindingKind::DeviceFault));
    signs.into_iter().map(|(kind, of)| finding(device, kind, &of)).collect()
}

fn kind(defect: Defect) -> FindingKind {
    match defect {
        Defect::ResetRequired | Defect::Recovery(_) => FindingKind::DeviceFault,
        Defect::ComputeProhibited => FindingKind::ComputeProhibited,
        Defect::NoMigInstance => FindingKind::NoMigInstance,
        Defect::RemappingFailed
        | Defect::SramWornOut
        | Defect::Uncorrected(_)
        | Defect::NoSpareRows(_)
        | Defect::RepairPending => FindingKind::MemoryErrors,
        Defect::DrainRecommended | Defect::MigPending(_) | Defect::EccPending(_) => {
            FindingKind::PendingReset
        }
    }
}

fn finding(device: &DeviceState, kind: FindingKind, signs: &[Defect]) -> Finding {
    let index = device.id().index;
    let advice = match kind {
        FindingKind::ComputeProhibited => Advice::AllowCompute(index),
        FindingKind::NoMigInstance => Advice::CreateMigInstance(index),
        _ if signs.iter().any(|sign| is_worn_out(*sign)) => Advice::ReplaceDevice(index),
        _ if signs.contains(&Defect::Recovery(RecoveryAction::Reboot)) => Advice::Reboot,
        _ if signs.contains(&Defect::ResetRequired) => Advice::ResetDevice(index),
        _ if signs.contains(&Defect::Recovery(RecoveryAction::DrainPeers)) => {
            Advice::EndPeerWork(index)
        }
        _ if signs.contains(&Defect::Recovery(RecoveryAction::RecoverImex)) => Advice::RestartImex,
        _ if signs.contains(&Defect::Recovery(RecoveryAction::Other)) => {
            Advice::ReadRecoveryAction(index)
        }
        _ => Advice::ResetDevice(index),
    };
    let evidence = |defect: &Defect| Evidence::new(defect.sign(), defect.to_string());
    let evidence = signs.iter().map(evidence).collect();
    // Spare rows that are used up are not an error yet.
    let is_error = signs.iter().any(|sign| !matches!(sign, Defect::NoSpareRows(_)));
    let confidence = if is_error { Confidence::High } else { Confidence::Possible };
    Finding::about_device(device, kind, confidence, evidence, vec![advice])
}

/// Returns whether a reset does not help: the device is worn out, or will be with the next bad row.
fn is_worn_out(defect: Defect) -> bool {
    matches!(defect, Defect::RemappingFailed | Defect::SramWornOut | Defect::NoSpareRows(_))
}
