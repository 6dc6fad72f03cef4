//! `gpuws reap --json`.

use super::{Head, Process};
use gpu_core::Snapshot;
use gpu_reaper::{Plan, Report};
use serde::Serialize;

/// The plan, and what came of it.
#[derive(Serialize)]
pub(crate) struct Reap<'a> {
    #[serde(flatten)]
    head: Head,
    plan: &'a Plan,
    /// Null for a dry run.
    report: Option<&'a Report>,
    complete: bool,
    processes: Vec<Process>,
}

impl<'a> Reap<'a> {
    pub(crate) fn of(snapshot: &Snapshot, plan: &'a Plan, report: Option<&'a Report>) -> Self {
        Reap {
            head: Head::of(snapshot),
            plan,
            report,
            complete: report.is_some_and(Report::is_complete) && plan.refused.is_empty(),
            processes: plan
                .targets
                .iter()
                .map(|target| Process::of(snapshot, target.key.pid))
                .collect(),
        }
    }
}
