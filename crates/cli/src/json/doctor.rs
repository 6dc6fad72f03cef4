//! `gpuws doctor --json`.

use super::{Head, Process};
use gpu_core::Snapshot;
use gpu_reaper::{Cleared, Diagnosis, Finding};
use serde::Serialize;

/// The diagnosis, with the processes that it names.
#[derive(Serialize)]
pub(crate) struct Doctor<'a> {
    #[serde(flatten)]
    head: Head,
    findings: &'a [Finding],
    cleared: &'a [Cleared],
    processes: Vec<Process>,
}

impl<'a> Doctor<'a> {
    pub(crate) fn of(snapshot: &Snapshot, diagnosis: &'a Diagnosis) -> Self {
        let suspects = diagnosis.findings.iter().flat_map(|finding| &finding.suspects);
        let cleared = diagnosis.cleared.iter().map(|cleared| cleared.process.pid);
        let mut pids: Vec<_> = suspects.map(|suspect| suspect.process.pid).chain(cleared).collect();
        pids.sort();
        pids.dedup();
        Doctor {
            head: Head::of(snapshot),
            findings: &diagnosis.findings,
            cleared: &diagnosis.cleared,
            processes: pids.into_iter().map(|pid| Process::of(snapshot, pid)).collect(),
        }
    }
}
