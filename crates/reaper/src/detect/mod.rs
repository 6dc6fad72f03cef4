//! Detectors: from snapshots to findings, each with its evidence. One detector per file.

mod busy;
mod context;
mod defects;
mod driver_log;
mod foreign;
mod gone;
mod health;
mod hoarder;
mod instance;
mod links;
mod orphan;
mod stuck;
mod throttle;
mod unexplained;

use crate::finding::{Advice, Cleared, Diagnosis, Finding, FindingKind, Suspect};
use crate::role::Role;
pub use busy::busy_alone;
pub use context::driver_reserve;
pub(crate) use context::{DetectContext, Unexplained};
pub use driver_log::logged_errors;
use gpu_core::{Host, Pid, Snapshot};
pub use health::silence;
pub(crate) use instance::InstanceAccount;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the diagnosis of `looks`, oldest first; the last one is 'now'.
///
/// One snapshot is enough except for questions of time: whether a process is idle or pauses, whether
/// a state of a device lasts. Without any snapshot there are no findings.
pub fn diagnose(looks: &[Snapshot]) -> Diagnosis {
    let Some(case) = DetectContext::new(looks) else { return Diagnosis::default() };
    let detectors: [fn(&DetectContext<'_>) -> Vec<Finding>; 11] = [
        foreign::detect,
        unexplained::detect,
        gone::detect,
        stuck::detect,
        orphan::detect,
        hoarder::detect,
        health::detect,
        defects::detect,
        links::detect,
        throttle::detect,
        busy::detect,
    ];
    let found = detectors.iter().flat_map(|detector| detector(&case)).collect();
    let mut findings = merged(found);
    driver_log::add(&case, &mut findings);
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
    let cleared = cleared(&case, &findings);
    Diagnosis { findings, cleared, left_out: 0 }
}

/// Returns the diagnosis of one snapshot that may have only outlines of processes: reads those that
/// are suspected whole, because what exonerates a process is not in its outline.
pub fn diagnose_outlines(now: &mut Snapshot, host: &dyn Host) -> Diagnosis {
    let diagnosis = diagnose(std::slice::from_ref(now));
    let suspects = diagnosis.findings.iter().flat_map(|finding| &finding.suspects);
    let suspects: BTreeSet<Pid> = suspects.map(|suspect| suspect.process.pid).collect();
    if suspects.is_empty() {
        return diagnosis;
    }
    gpu_core::complete_processes(host, now, &suspects.into_iter().collect::<Vec<_>>());
    diagnose(std::slice::from_ref(now))
}

/// Reports each process once: what is known of it besides becomes a sign in the finding that
/// accounts for its memory.
fn merged(found: Vec<Finding>) -> Vec<Finding> {
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
            // Idle memory needs no reason beyond the one that is known.
            let tells_more = accounts || sign.kind == FindingKind::Hoarder;
            // A ghost may be less certain than its sign for a reason of its own.
            let is_it = |suspect: &Suspect| {
                suspect.process == about.process && suspect.confidence >= about.confidence
            };
            here && tells_more && finding.suspects.iter().any(is_it)
        };
        let Some(finding) = findings.iter_mut().find(|finding| covers(finding)) else {
            findings.push(sign);
            continue;
        };
        if sign.kind == FindingKind::Hoarder {
            continue;
        }
        let same = |suspect: &&mut Suspect| suspect.process == about.process;
        for suspect in finding.suspects.iter_mut().filter(same) {
            suspect.evidence.extend(about.evidence.iter().cloned());
        }
    }
    findings
}

/// Names every holder without a finding and without listed memory: monitors, displays, daemons.
fn cleared(case: &DetectContext<'_>, findings: &[Finding]) -> Vec<Cleared> {
    let suspects = findings.iter().flat_map(|finding| &finding.suspects);
    let suspected: BTreeSet<Pid> = suspects.map(|suspect| suspect.process.pid).collect();
    let mut cleared = BTreeMap::new();
    for device in &case.now.devices {
        for holder in
            case.holders_of(device).filter(|holder| !suspected.contains(&holder.process.pid))
        {
            let role = case.role(holder.process.pid, device);
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
