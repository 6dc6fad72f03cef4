//! Memory that no listed process accounts for: ghosts, driver leaks, and what may not be looked at.

use super::case::{Case, Unexplained, listed, paths};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{DeviceState, Holder};

pub(crate) fn detect(case: &Case<'_>) -> Vec<Finding> {
    if case.now.sees_host_pids == Ok(false) {
        return Vec::new();
    }
    case.now.devices.iter().filter_map(|device| detect_on(case, device)).collect()
}

fn detect_on(case: &Case<'_>, device: &DeviceState) -> Option<Finding> {
    let account = Unexplained::of(device).filter(Unexplained::is_ghost)?;
    let index = device.id().index;
    let mut evidence = vec![account.describe(device)];
    let mut finding = |kind, confidence, suspects, advice| Finding {
        kind,
        confidence,
        devices: vec![device.id().clone()],
        memory: Some(account.bytes),
        suspects,
        evidence: std::mem::take(&mut evidence),
        advice,
    };
    if let Err(fault) = &case.now.holders {
        let advice = vec![Advice::LookAsRoot];
        let mut found = finding(FindingKind::Ghost, Confidence::Possible, vec![], advice);
        found.evidence.push(format!("who holds the device files is not known: {fault}"));
        return Some(found);
    }
    let suspects = suspects(case, device);
    if let Some(best) = suspects.iter().map(|suspect| suspect.confidence).max() {
        return Some(finding(FindingKind::Ghost, best, suspects, vec![Advice::ReapDevice(index)]));
    }
    let unreadable = case.now.unreadable.total();
    if unreadable > 0 {
        let mut found = finding(
            FindingKind::NotPermitted,
            Confidence::Likely,
            vec![],
            vec![Advice::LookAsRoot],
        );
        found.evidence.push(format!("{unreadable} processes could not be looked into"));
        return Some(found);
    }
    if let Some(daemon) = mps(case, device) {
        let mut found = finding(FindingKind::Ghost, Confidence::Possible, vec![], vec![]);
        found.evidence.push(format!("held by {daemon}: clients of the MPS server may use it"));
        return Some(found);
    }
    let advice = vec![Advice::ResetDevice(index)];
    let mut found = finding(FindingKind::DriverLeak, Confidence::Likely, vec![], advice);
    found.evidence.push("every process was looked into; none uses memory of the device".into());
    Some(found)
}

/// Holders that use memory of the device and are not listed on it, the strongest evidence first.
fn suspects(case: &Case<'_>, device: &DeviceState) -> Vec<Suspect> {
    let Some(minor) = case.now.minor_of(device) else { return Vec::new() };
    let unlisted =
        case.holders_of(device).filter(|holder| listed(device, holder.process.pid).is_none());
    let mut suspects: Vec<Suspect> = unlisted
        .filter(|holder| case.role(holder.process.pid, device) == Role::MemoryUser)
        .filter_map(|holder| {
            let listed_elsewhere =
                case.now.devices.iter().any(|other| listed(other, holder.process.pid).is_some());
            let confidence = match (holder.has_mapped(minor), listed_elsewhere) {
                (true, false) => Confidence::High,
                (true, true) | (false, false) => Confidence::Likely,
                // A CUDA program opens every device; it uses the one it is listed on.
                (false, true) => return None,
            };
            Some(Suspect {
                process: holder.process,
                confidence,
                evidence: evidence_of(case, holder, minor),
            })
        })
        .collect();
    suspects.sort_by_key(|suspect| (std::cmp::Reverse(suspect.confidence), suspect.process.pid));
    suspects
}

fn evidence_of(case: &Case<'_>, holder: &Holder, minor: u32) -> Vec<String> {
    let how = match (
        holder.has_mapped(minor),
        holder.held.iter().any(|h| h.access.contains(gpu_core::Access::OPEN_FOR_WRITING)),
    ) {
        (true, true) => "open for writing and mapped",
        (true, false) => "mapped",
        (false, true) => "open for writing",
        (false, false) => "open",
    };
    let mut evidence = vec![format!("{} {how}", paths(holder))];
    if let Some(thread) = holder.through_thread {
        evidence.push(format!("its first thread has ended; thread {thread} lives and holds them"));
    }
    if let Some(info) = case.info(holder.process.pid) {
        if let Ok([_, .., inner]) = info.namespace_pids.as_deref() {
            evidence.push(format!("PID {inner} inside a PID namespace of its own"));
        }
        if let Some(workload) = &info.workload {
            evidence.push(format!("{} {}", crate::report::kind_of(workload.kind), workload.id));
        }
        if info.state == Ok(gpu_core::ProcessState::Stopped) {
            evidence.push("stopped".into());
        }
    }
    evidence
}

fn mps(case: &Case<'_>, device: &DeviceState) -> Option<String> {
    let mut infos = case.holders_of(device).filter_map(|holder| case.info(holder.process.pid));
    infos
        .find(|info| info.name.starts_with("nvidia-cuda-mps"))
        .map(|info| format!("{} {}", info.key.pid, info.name))
}
