//! Detectors: from snapshots to findings, each with its evidence. One detector per file.

mod ago;
mod busy;
mod consequence;
mod context;
mod defects;
mod driver_log;
mod foreign;
mod gone;
mod growth;
mod health;
mod hoarder;
mod host_bound;
mod instance;
mod links;
mod orphan;
mod ray;
mod stuck;
mod switch;
mod throttle;
mod unexplained;

use crate::evidence::Evidence;
use crate::finding::{Advice, Cleared, Confidence, Diagnosis, Finding, FindingKind, Suspect};
use crate::past::Past;
use crate::role::Role;
pub use busy::busy_alone;
pub(crate) use context::DetectContext;
pub use context::MIN_AGE as SETTLED_AFTER;
pub use driver_log::{OldMessages, logged_errors, old_messages};
use gpu_core::{DeviceState, Host, Pid, Snapshot};
pub use health::silence;
pub(crate) use instance::InstanceAccount;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the diagnosis of `snapshots`, oldest first; the last one is 'now'.
///
/// One snapshot is enough except for questions of time: whether a process is idle or pauses,
/// whether a state of a device lasts. Without any snapshot there are no findings.
pub fn diagnose(snapshots: &[Snapshot]) -> Diagnosis {
    snapshots.last().map(|now| diagnose_after(&snapshots.iter().collect(), now)).unwrap_or_default()
}

/// Returns the diagnosis of `now` and of the earlier snapshots in `past`: `now` is the one that was
/// added to `past` last.
///
/// A watcher adds each snapshot and keeps none. If `past` does not include `now`, the result is
/// that of `now` alone, except that durations are those of the last added snapshot.
pub fn diagnose_after(past: &Past, now: &Snapshot) -> Diagnosis {
    let context = DetectContext::new(past, now);
    let detectors: [fn(&DetectContext<'_>) -> Vec<Finding>; 13] = [
        foreign::detect,
        unexplained::detect,
        gone::detect,
        stuck::detect,
        orphan::detect,
        hoarder::detect,
        growth::detect,
        host_bound::detect,
        health::detect,
        defects::detect,
        links::detect,
        throttle::detect,
        busy::detect,
    ];
    let found = detectors.iter().flat_map(|detector| detector(&context)).collect();
    let mut findings = merged(&context, found);
    driver_log::add(&context, &mut findings);
    fit_advice(&context, &mut findings);
    // The finding that unblocks a reset comes before the blocked reset.
    let unblocking: Vec<(Advice, Advice)> = findings
        .iter()
        .filter(|finding| finding.kind == FindingKind::BlockedReset)
        .filter_map(|finding| {
            let device = finding.devices.first()?;
            Some((Advice::ResetDevice(device.index), finding.advice.first()?.clone()))
        })
        .collect();
    for finding in findings.iter_mut().filter(|f| f.kind != FindingKind::BlockedReset) {
        for advice in &mut finding.advice {
            if let Some((_, first)) = unblocking.iter().find(|(reset, _)| reset == advice) {
                *advice = first.clone();
            }
        }
    }
    findings.sort_by_key(|f| (f.kind, f.devices.first().map(|device| device.index)));
    let cleared = cleared(&context, &findings);
    Diagnosis { findings, cleared, left_out: 0 }
}

/// Replaces the advice to use a vendor's tool, for devices that the kernel describes without one.
fn fit_advice(context: &DetectContext<'_>, findings: &mut [Finding]) {
    for finding in findings {
        let is_it = |device: &&DeviceState| finding.devices.first() == Some(device.id());
        let device = context.now.devices.iter().find(is_it).filter(|one| one.lists_clients());
        let Some(Ok(bus)) = device.map(|device| device.id().bus) else { continue };
        for advice in &mut finding.advice {
            *advice = match advice {
                Advice::ReadKernelLog | Advice::ReadProgramError => Advice::ReadDrmLog,
                Advice::CheckSlot(_) => Advice::CheckPciLink(bus),
                Advice::CheckCooling(_) | Advice::CheckPower(_) => Advice::ReadSensors,
                _ => continue,
            };
        }
    }
}

/// Returns the diagnosis of one snapshot that may have only outlines of processes: re-reads
/// suspected processes whole, because an outline lacks exonerating evidence.
pub fn diagnose_outlines(now: &mut Snapshot, host: &dyn Host) -> Diagnosis {
    diagnose_outlines_after(&std::iter::once(&*now).collect(), now, host)
}

/// Returns the diagnosis of [`diagnose_outlines`] with the snapshots up to this one, as
/// [`diagnose_after`] does.
pub fn diagnose_outlines_after(past: &Past, now: &mut Snapshot, host: &dyn Host) -> Diagnosis {
    let diagnosis = diagnose_after(past, now);
    let suspects = diagnosis.findings.iter().flat_map(|finding| &finding.suspects);
    let suspects: BTreeSet<Pid> = suspects.map(|suspect| suspect.process.pid).collect();
    if suspects.is_empty() {
        return diagnosis;
    }
    gpu_core::complete_processes(host, now, &suspects.into_iter().collect::<Vec<_>>());
    diagnose_after(past, now)
}

/// Reports each process once: everything else known about it becomes a sign in the finding that
/// accounts for its memory.
fn merged(context: &DetectContext<'_>, found: Vec<Finding>) -> Vec<Finding> {
    let is_sign = |kind| {
        matches!(
            kind,
            FindingKind::ZombieHolder
                | FindingKind::StuckHolder
                | FindingKind::Orphan
                | FindingKind::Hoarder
        )
    };
    let (signs, mut findings): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|finding| is_sign(finding.kind));
    for sign in signs {
        let Some(about) = sign.suspects.first() else { continue };
        let covers = |finding: &Finding| {
            let here = sign.devices.iter().all(|id| finding.devices.iter().any(|of| of == id));
            let accounts = matches!(finding.kind, FindingKind::Ghost | FindingKind::ListedButGone);
            // Idle memory needs no reason other than the known one.
            let is_more_specific = accounts || sign.kind == FindingKind::Hoarder;
            // A ghost may be less certain than its sign for a separate reason.
            let joins = finding.kind == FindingKind::Orphan;
            let is_it = |suspect: &Suspect| {
                let is_less = suspect.confidence < about.confidence;
                suspect.process == about.process && (joins || !is_less)
            };
            here && is_more_specific && finding.suspects.iter().any(is_it)
        };
        let Some(finding) = findings.iter_mut().find(|finding| covers(finding)) else {
            findings.extend(Some(sign).filter(|sign| is_finding(context, sign)));
            continue;
        };
        if sign.kind == FindingKind::Hoarder {
            // An orphan that was idle for hours is certain, whatever kind of program it is.
            let suspects = finding.suspects.iter_mut();
            for suspect in suspects.filter(|suspect| suspect.process == about.process) {
                suspect.confidence = suspect.confidence.max(about.confidence);
                finding.confidence = finding.confidence.max(about.confidence);
            }
            continue;
        }
        let same = |suspect: &&mut Suspect| suspect.process == about.process;
        for suspect in finding.suspects.iter_mut().filter(same) {
            let is_known = |new: &&Evidence| suspect.evidence.iter().any(|e| e.sign == new.sign);
            let new: Vec<_> = about.evidence.iter().filter(|e| !is_known(e)).cloned().collect();
            suspect.evidence.extend(new);
        }
    }
    findings
}

/// Returns whether a sign of a process is a finding by itself. If the age of the process is
/// unknown, or if it may still be starting or computes, the sign is only evidence for other
/// findings.
fn is_finding(context: &DetectContext<'_>, sign: &Finding) -> bool {
    let Some(suspect) = sign.suspects.first() else { return false };
    let pid = suspect.process.pid;
    match sign.kind {
        FindingKind::StuckHolder => {
            let is_certain = suspect.confidence > Confidence::Possible;
            context.is_settled(pid) && (is_certain || !context.computes(pid, &context.used_by(pid)))
        }
        FindingKind::Orphan | FindingKind::Hoarder => context.is_settled(pid),
        _ => true,
    }
}

/// Names every holder without a finding and without listed memory: monitors, displays, daemons.
fn cleared(context: &DetectContext<'_>, findings: &[Finding]) -> Vec<Cleared> {
    let suspects = findings.iter().flat_map(|finding| &finding.suspects);
    let suspected: BTreeSet<Pid> = suspects.map(|suspect| suspect.process.pid).collect();
    let mut cleared = BTreeMap::new();
    for device in &context.now.devices {
        for holder in
            context.holders_of(device).filter(|holder| !suspected.contains(&holder.process.pid))
        {
            let role = context.role(holder.process.pid, device);
            if role == Role::MemoryUser {
                continue;
            }
            let entry = cleared.entry(holder.process.pid).or_insert_with(|| Cleared {
                process: holder.process,
                devices: Vec::new(),
                role,
                why: match role {
                    Role::Monitor => {
                        format!(
                            "{} open, nothing mapped, no nvidia-uvm: a monitor",
                            context::paths(holder)
                        )
                    }
                    Role::Display => "a display server or compositor".to_owned(),
                    Role::Daemon | Role::MemoryUser => "a system daemon for the GPU".to_owned(),
                },
            });
            entry.devices.push(device.id().clone());
        }
    }
    cleared.into_values().collect()
}
