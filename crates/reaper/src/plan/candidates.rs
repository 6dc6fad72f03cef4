//! The candidates of a plan.

use super::Request;
use crate::detect::diagnose;
use crate::finding::{Confidence, Diagnosis, FindingKind};
use gpu_core::{Pid, ProcessKey, Snapshot};
use std::collections::BTreeMap;

/// Returns the candidates, with the reason for each.
///
/// A snapshot is not one moment: memory, list and holders are read one after another, and in
/// between a process may end and another start. So a suspect that was not requested by PID must be
/// a suspect in every snapshot, as the same process.
pub(super) fn candidates(
    snapshots: &[Snapshot],
    diagnosis: &Diagnosis,
    request: &Request<'_>,
) -> BTreeMap<Pid, String> {
    if !request.pids.is_empty() {
        let why = "requested by PID";
        return request.pids.iter().map(|pid| (*pid, why.to_owned())).collect();
    }
    let alone: Vec<Diagnosis> =
        snapshots.iter().map(|snapshot| diagnose(std::slice::from_ref(snapshot))).collect();
    if !request.suspects.is_empty() {
        return selected(&alone, diagnosis, &request.suspects);
    }
    let each_alone: Vec<_> = alone.iter().map(certain).collect();
    certain(diagnosis)
        .into_iter()
        .filter(|(key, _)| {
            each_alone.iter().all(|one| one.keys().any(|seen| seen.definitely_same(key)))
        })
        .map(|(key, why)| (key.pid, why.to_owned()))
        .collect()
}

/// Returns the suspects that a policy selects, if the diagnosis and each snapshot alone confirm
/// them. Kinds that are ended without a request by PID need high confidence in each; the others
/// need any, because one snapshot cannot show how long a process has been idle.
fn selected(
    alone: &[Diagnosis],
    diagnosis: &Diagnosis,
    suspects: &[(FindingKind, ProcessKey)],
) -> BTreeMap<Pid, String> {
    let is_confirmed = |by: &Diagnosis, kind: FindingKind, key: &ProcessKey| {
        let found = by.findings.iter().filter(|finding| finding.kind == kind);
        found.flat_map(|finding| &finding.suspects).any(|suspect| {
            suspect.process.definitely_same(key)
                && (kind.reap_reason().is_none() || suspect.confidence == Confidence::High)
        })
    };
    let confirmed = suspects.iter().filter(|(kind, key)| {
        is_confirmed(diagnosis, *kind, key) && alone.iter().all(|by| is_confirmed(by, *kind, key))
    });
    confirmed
        .map(|(kind, key)| {
            let reason = match kind {
                FindingKind::Hoarder => "idle holder",
                kind => kind.reap_reason().unwrap_or(kind.name()),
            };
            (key.pid, format!("{reason}, selected by the policy"))
        })
        .collect()
}

/// Returns the suspects of findings with high confidence, of the kinds that may be ended without a
/// request by PID.
fn certain(diagnosis: &Diagnosis) -> BTreeMap<ProcessKey, &'static str> {
    let mut certain = BTreeMap::new();
    for finding in &diagnosis.findings {
        let Some(reason) = finding.kind.reap_reason() else { continue };
        for suspect in &finding.suspects {
            if suspect.confidence == Confidence::High {
                certain.entry(suspect.process).or_insert(reason);
            }
        }
    }
    certain
}
