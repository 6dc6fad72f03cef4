//! The candidates of a plan.

use super::Request;
use crate::detect::diagnose;
use crate::finding::{Confidence, Diagnosis};
use gpu_core::{Pid, ProcessKey, Snapshot};
use std::collections::BTreeMap;

/// Returns the candidates, with the reason for each.
///
/// A snapshot is not one moment: memory, list and holders are read one after another, and in
/// between a process may end and another start. So a suspect that was not requested by PID must be
/// a suspect in every snapshot, as the same process.
pub(super) fn candidates(
    looks: &[Snapshot],
    diagnosis: &Diagnosis,
    request: &Request<'_>,
) -> BTreeMap<Pid, String> {
    if !request.pids.is_empty() {
        let why = "requested by PID";
        return request.pids.iter().map(|pid| (*pid, why.to_owned())).collect();
    }
    let each_look: Vec<_> =
        looks.iter().map(|look| certain(&diagnose(std::slice::from_ref(look)))).collect();
    certain(diagnosis)
        .into_iter()
        .filter(|(key, _)| {
            each_look.iter().all(|look| look.keys().any(|seen| seen.definitely_same(key)))
        })
        .map(|(key, why)| (key.pid, why.to_owned()))
        .collect()
}

/// The suspects of findings with high confidence, of the kinds that may be ended without a request
/// by PID.
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
