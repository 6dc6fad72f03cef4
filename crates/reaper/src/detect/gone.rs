//! Processes that NVML lists and that do not exist here.

use super::case::{Case, listed};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{Absent, Bytes, DeviceState, Pid};

pub(crate) fn detect(case: &Case<'_>) -> Vec<Finding> {
    case.now.devices.iter().filter_map(|device| detect_on(case, device)).collect()
}

fn detect_on(case: &Case<'_>, device: &DeviceState) -> Option<Finding> {
    let gone: Vec<_> = case
        .listed_on(device)
        .filter(|process| case.now.process(process.pid).err() == Some(Absent::NotFound))
        .collect();
    if gone.is_empty() {
        return None;
    }
    let pids = gone.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", ");
    let memory: Option<Bytes> = gone.iter().map(|process| process.memory.ok()).sum();
    let mut finding = Finding {
        kind: FindingKind::ListedButGone,
        confidence: Confidence::Likely,
        devices: vec![device.id().clone()],
        memory,
        suspects: Vec::new(),
        evidence: vec![format!("NVML lists {pids}; no such process exists here")],
        advice: Vec::new(),
    };
    finding.suspects = heirs(case, device);
    if finding.suspects.is_empty() {
        let advice = match case.now.unreadable.total() {
            0 => Advice::ResetDevice(device.id().index),
            _ => Advice::LookAsRoot,
        };
        finding.advice.push(advice);
    } else {
        finding.confidence = Confidence::High;
        finding.advice.push(Advice::ReapDevice(device.id().index));
    }
    Some(finding)
}

/// Who may have inherited the memory: holders that use the device, are not listed on it and have
/// it mapped.
fn heirs(case: &Case<'_>, device: &DeviceState) -> Vec<Suspect> {
    let Some(minor) = case.now.minor_of(device) else { return Vec::new() };
    let elsewhere = |pid: Pid| case.now.devices.iter().any(|other| listed(other, pid).is_some());
    case.holders_of(device)
        .filter(|holder| holder.has_mapped(minor) && !elsewhere(holder.process.pid))
        .filter(|holder| case.role(holder.process.pid, device) == Role::MemoryUser)
        .map(|holder| Suspect {
            process: holder.process,
            confidence: Confidence::High,
            evidence: vec![format!("{} mapped, and not listed", super::case::paths(holder))],
        })
        .collect()
}
