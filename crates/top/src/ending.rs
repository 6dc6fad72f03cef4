//! Ends processes that the user chooses on the screen.
//!
//! The view makes no decision about processes: it asks for a plan, shows it, and asks for its
//! execution after a confirmation. Both happen on a separate thread, through [`Ender`]. A plan has
//! a number, and only the plan that was shown last is executed.

use crate::{found, rows};
use gpu_core::{DeviceId, ProcessKey, Snapshot};
use gpu_reaper::{Diagnosis, Event, Guard, Plan, Report, Usage};
use gpu_report::text::Line;
use gpu_report::wording::reap::{self, Paragraph};
use std::ops::ControlFlow;

/// The processes to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// These processes, as they were on the screen.
    Processes(Vec<ProcessKey>),
    /// The processes that certainly hold memory of this device that is listed for no process, as
    /// `gpuws reap --gpu` ends them.
    Unlisted(DeviceId),
}

/// A plan and its inputs.
#[derive(Debug)]
pub struct Proposal {
    /// The last of the snapshots that it was made from.
    pub now: Snapshot,
    /// The diagnosis of these snapshots.
    pub diagnosis: Diagnosis,
    /// The plan.
    pub plan: Plan,
    /// The guard that spares processes.
    pub guard: Guard,
}

/// Plans the end of processes, and executes the plan.
pub trait Ender: Send {
    /// Takes a new snapshot of the machine, and makes a plan from it rather than from the screen.
    ///
    /// # Errors
    /// Why there is no plan, as a sentence.
    fn plan(&mut self, aim: &Aim) -> Result<Proposal, String>;

    /// Returns why no process of this machine can be ended, as a sentence; `None` if they can.
    fn obstacle(&self) -> Option<String>;

    /// Executes a plan. `watch` receives each step, and stops the execution with
    /// [`ControlFlow::Break`].
    ///
    /// # Errors
    /// Why no action was taken, as a sentence.
    fn execute(
        &mut self,
        proposal: &Proposal,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Report, String>;
}

/// The progress of an [`Ender`].
#[derive(Clone, Debug)]
pub enum News {
    /// The plan of this number.
    Planned(u64, Result<Shown, String>),
    /// A step of an execution.
    Step(Line),
    /// The execution is over: its result, or why no action was taken.
    Over(Result<Vec<Paragraph>, String>),
}

/// A plan for display.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The plan in words.
    pub text: Vec<Paragraph>,
    /// The number of processes that would be ended.
    pub targets: usize,
    /// Why the plan cannot be executed, as a sentence.
    pub obstacle: Option<String>,
}

impl Shown {
    /// Returns the plan for this aim as it is displayed.
    pub fn of(ender: &dyn Ender, aim: &Aim, proposal: &Proposal) -> Self {
        let Proposal { now, diagnosis, plan, .. } = proposal;
        let is_empty = plan.targets.is_empty() && plan.refused.is_empty();
        let obstacle = ender.obstacle().filter(|_| !plan.targets.is_empty());
        let text = match aim {
            Aim::Unlisted(device) if is_empty => {
                let text = why_none(now, diagnosis, device);
                vec![Paragraph { text, ..Paragraph::default() }]
            }
            _ => reap::plan(now, diagnosis, plan, obstacle.is_none()),
        };
        Shown { text, targets: plan.targets.len(), obstacle }
    }
}

/// Explains why no process is ended for the unlisted memory of a device, and what the user can do.
fn why_none(now: &Snapshot, diagnosis: &Diagnosis, device: &DeviceId) -> String {
    let usage = Usage::of(now);
    if usage.unexplained(device).is_none() && !usage.foreign(device).is_empty() {
        return "nothing to end: the driver lists host PIDs, which are invalid in this container; \
                run gpuws on the host"
            .into();
    }
    if usage.unexplained(device).is_none() {
        return "nothing to end: a listed process accounts for this memory now, or it is free"
            .into();
    }
    let finding = found::about_unlisted(diagnosis, device);
    let suspects = finding.map_or(&[][..], |finding| &finding.suspects[..]);
    if suspects.is_empty() {
        return "nothing to end: the process that holds this memory is unknown".to_owned();
    }
    let holders = suspects.iter().map(|suspect| rows::named(now, suspect.process.pid));
    let holders = holders.collect::<Vec<_>>().join(", ");
    format!(
        "nothing to end for this row: it is not certain enough that {holders} holds this memory, \
         or no signal would free it. To end a process anyway, close this, select its row and \
         press K"
    )
}
