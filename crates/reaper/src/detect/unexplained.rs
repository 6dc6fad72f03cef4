//! Memory that no listed process accounts for: ghosts, driver leaks, and what may not be looked at.

use super::case::{Case, Unexplained, paths};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{DeviceState, Holder, Origin, Pid, ProcessState};

pub(crate) fn detect(case: &Case<'_>) -> Vec<Finding> {
    if case.now.sees_host_pids == Ok(false) {
        return Vec::new();
    }
    case.now.devices.iter().filter_map(|device| detect_on(case, device)).collect()
}

fn detect_on(case: &Case<'_>, device: &DeviceState) -> Option<Finding> {
    let account = Unexplained::of(case, device).filter(Unexplained::is_ghost)?;
    let index = device.id().index;
    let finding = |kind, confidence, more: Option<String>, advice: Option<Advice>| Finding {
        kind,
        confidence,
        devices: vec![device.id().clone()],
        memory: Some(account.bytes),
        suspects: Vec::new(),
        evidence: std::iter::once(account.describe(device)).chain(more).collect(),
        advice: advice.into_iter().collect(),
    };
    if let Err(fault) = &case.now.holders {
        let advice = match case.now.origin {
            Origin::Pasted => Advice::PasteHolders,
            _ => Advice::LookAsRoot,
        };
        let more = format!("who holds the device files is not known: failed to {fault}");
        return Some(finding(FindingKind::Ghost, Confidence::Possible, Some(more), Some(advice)));
    }
    let suspects = suspects(case, device);
    if let Some(best) = suspects.iter().map(|suspect| suspect.confidence).max() {
        let unreadable = case.now.unreadable.total();
        let more = if device.info.mig_enabled == Ok(true) {
            Some("the device is split by MIG, where the lists can lack processes".to_owned())
        } else {
            (unreadable > 0).then(|| {
                format!("{unreadable} processes could not be looked into: they may share it")
            })
        };
        let first = suspects.first().map(|suspect| suspect.process.pid);
        let advice = match (best, first) {
            (Confidence::High, _) | (_, None) => Advice::ReapDevice(index),
            (_, Some(pid)) if is_stuck(case, pid) => Advice::WaitOrReboot,
            (_, Some(pid)) => Advice::ReapProcess(pid),
        };
        let found = finding(FindingKind::Ghost, best, more, Some(advice));
        return Some(Finding { suspects, ..found });
    }
    let unreadable = case.now.unreadable.total();
    if unreadable > 0 {
        let more = format!("{unreadable} processes could not be looked into");
        let advice = Some(Advice::LookAsRoot);
        return Some(finding(FindingKind::NotPermitted, Confidence::Likely, Some(more), advice));
    }
    if let Some(daemon) = mps(case, device) {
        let more = format!("held by {daemon}: clients of the MPS server may use it");
        return Some(finding(FindingKind::Ghost, Confidence::Possible, Some(more), None));
    }
    let mapped = case
        .now
        .minor_of(device)
        .and_then(|minor| case.holders_of(device).find(|holder| holder.has_mapped(minor)));
    if let Some(holder) = mapped {
        let pid = holder.process.pid;
        let name = case.info(pid).map_or("?", |info| info.name.as_str());
        let more = format!(
            "mapped by {pid} {name}, which by its name is a display or a daemon and is never signalled"
        );
        let advice = Some(Advice::StopService(pid));
        return Some(finding(FindingKind::Ghost, Confidence::Possible, Some(more), advice));
    }
    let more = "every process was looked into; none uses memory of the device".to_owned();
    let advice = Some(Advice::ResetDevice(index));
    Some(finding(FindingKind::DriverLeak, Confidence::Likely, Some(more), advice))
}

/// Holders that use memory of the device and are not listed on it, the strongest evidence first.
pub(super) fn suspects(case: &Case<'_>, device: &DeviceState) -> Vec<Suspect> {
    let Some(minor) = case.now.minor_of(device) else { return Vec::new() };
    let unlisted =
        case.holders_of(device).filter(|holder| case.listed(device, holder.process.pid).is_none());
    let mut suspects: Vec<Suspect> = unlisted
        .filter(|holder| case.role(holder.process.pid, device) == Role::MemoryUser)
        .filter_map(|holder| {
            let listed_elsewhere = case.is_listed(holder.process.pid);
            // Without privileges NVML does not list what runs in MIG instances; and what no signal
            // ends is not to be signalled unasked.
            let stuck = is_stuck(case, holder.process.pid);
            let certain = device.info.mig_enabled != Ok(true) && !stuck;
            let confidence = match (holder.has_mapped(minor), listed_elsewhere) {
                (true, false) if certain => Confidence::High,
                (true, false) => Confidence::Likely,
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
            evidence.push(format!("{} {}", workload.kind, workload.id));
        }
        if info.state == Ok(ProcessState::Stopped) {
            evidence.push("stopped".into());
        }
    }
    evidence
}

fn is_stuck(case: &Case<'_>, pid: Pid) -> bool {
    case.info(pid).is_some_and(|info| info.state == Ok(ProcessState::Uninterruptible))
}

fn mps(case: &Case<'_>, device: &DeviceState) -> Option<String> {
    let mut infos = case.holders_of(device).filter_map(|holder| case.info(holder.process.pid));
    infos
        .find(|info| info.name.starts_with("nvidia-cuda-mps"))
        .map(|info| format!("{} {}", info.key.pid, info.name))
}
