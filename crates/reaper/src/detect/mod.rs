//! Detectors: from snapshots to findings, each with its evidence. One detector per file.

mod context;
mod foreign;
mod gone;
mod health;
mod hoarder;
mod orphan;
mod stuck;
mod unexplained;

use crate::finding::{Advice, Cleared, Diagnosis, Finding, FindingKind};
use crate::role::Role;
pub use context::driver_reserve;
pub(crate) use context::{DetectContext, Unexplained};
use gpu_core::{Pid, Snapshot};
pub use health::silence;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the diagnosis of `looks`, oldest first; the last one is 'now'.
///
/// One snapshot is enough except for two questions: whether a process computes, and whether its CPU
/// time advances. Without any snapshot there are no findings.
pub fn diagnose(looks: &[Snapshot]) -> Diagnosis {
    let Some(case) = DetectContext::new(looks) else { return Diagnosis::default() };
    let detectors: [fn(&DetectContext<'_>) -> Vec<Finding>; 7] = [
        foreign::detect,
        unexplained::detect,
        gone::detect,
        stuck::detect,
        orphan::detect,
        hoarder::detect,
        health::detect,
    ];
    let mut findings: Vec<Finding> =
        detectors.iter().flat_map(|detector| detector(&case)).collect();
    // Report once why a process keeps memory idle, in the more specific finding.
    let explained: BTreeSet<_> = findings
        .iter()
        .filter(|finding| finding.kind != FindingKind::Hoarder)
        .flat_map(|finding| finding.suspects.iter().map(|suspect| suspect.process))
        .collect();
    findings.retain(|finding| {
        finding.kind != FindingKind::Hoarder
            || !finding.suspects.iter().any(|suspect| explained.contains(&suspect.process))
    });
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
    Diagnosis { findings, cleared }
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
