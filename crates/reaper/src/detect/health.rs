//! Devices that answer with an error, and who blocks their reset.

use super::case::{Case, Unexplained, paths};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{DeviceFault, DeviceState, ErrorKind};

pub(crate) fn detect(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &case.now.devices {
        let fault = faulty(device);
        findings.extend(fault.clone());
        let wants_reset =
            fault.is_some_and(|f| f.advice.contains(&Advice::ResetDevice(device.id().index)));
        if wants_reset || leaks(case, device) {
            findings.extend(blocked(case, device));
        }
    }
    findings
}

fn faulty(device: &DeviceState) -> Option<Finding> {
    let fault = device.sample.as_ref().err()?;
    let ErrorKind::Device(which) = fault.kind else { return None };
    let advice = match which {
        DeviceFault::ResetRequired => vec![Advice::ResetDevice(device.id().index)],
        DeviceFault::Lost | DeviceFault::Interrupt => vec![Advice::ReadKernelLog],
        _ => Vec::new(),
    };
    Some(Finding {
        kind: FindingKind::DeviceFault,
        confidence: Confidence::High,
        devices: vec![device.id().clone()],
        memory: None,
        suspects: Vec::new(),
        evidence: vec![format!("failed to {fault}")],
        advice,
    })
}

/// Memory that nobody uses and that only a reset gives back.
fn leaks(case: &Case<'_>, device: &DeviceState) -> bool {
    Unexplained::of(device).is_some_and(|account| account.is_ghost())
        && case.now.holders.is_ok()
        && case.now.unreadable.total() == 0
        && case.now.minor_of(device).is_some_and(|minor| {
            !case.holders_of(device).any(|holder| holder.uses_memory_of(minor))
        })
}

/// A reset needs a device that nobody has open, monitors included.
fn blocked(case: &Case<'_>, device: &DeviceState) -> Option<Finding> {
    let suspects: Vec<Suspect> = case
        .holders_of(device)
        .map(|holder| Suspect {
            process: holder.process,
            confidence: Confidence::High,
            evidence: vec![format!("has {} open", paths(holder))],
        })
        .collect();
    if suspects.is_empty() {
        return None;
    }
    let mut advice: Vec<Advice> = suspects
        .iter()
        .map(|suspect| match case.role(suspect.process.pid, device).may_be_signalled() {
            true => Advice::ReapProcess(suspect.process.pid),
            false => Advice::StopService(suspect.process.pid),
        })
        .collect();
    advice.push(Advice::ResetDevice(device.id().index));
    Some(Finding {
        kind: FindingKind::BlockedReset,
        confidence: Confidence::High,
        devices: vec![device.id().clone()],
        memory: None,
        evidence: vec!["a reset is refused while anybody has the device open".to_owned()],
        suspects,
        advice,
    })
}
