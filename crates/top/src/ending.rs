//! The end of processes that the user chooses on the screen.
//!
//! The view decides nothing about processes: it asks for a plan, shows it, and asks for its
//! execution after a confirmation. Both happen on a thread of their own, through [`Ender`]. A plan
//! has a number, and only the plan that was shown last is carried out.

use crate::{found, rows};
use gpu_core::{DeviceId, ProcessKey, Snapshot};
use gpu_reaper::{Diagnosis, Event, Guard, Plan, Report, Usage};
use gpu_report::text::Line;
use gpu_report::wording::reap::{self, Paragraph};
use std::ops::ControlFlow;

/// What is to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// These processes, as they were on the screen.
    Processes(Vec<ProcessKey>),
    /// The processes that surely hold memory of this device that nobody lists, as
    /// `gpuws reap --gpu` ends them.
    Unlisted(DeviceId),
}

/// A plan, and what it was made from.
#[derive(Debug)]
pub struct Proposal {
    /// The last of the looks that it was made from.
    pub now: Snapshot,
    /// The diagnosis of these looks.
    pub diagnosis: Diagnosis,
    /// The plan.
    pub plan: Plan,
    /// What it spares.
    pub guard: Guard,
}

/// Plans the end of processes and carries it out.
pub trait Ender: Send {
    /// Looks at the machine as it is now, not as it was on the screen, and makes a plan.
    ///
    /// # Errors
    /// Why there is none, as a sentence.
    fn plan(&mut self, aim: &Aim) -> Result<Proposal, String>;

    /// Returns why no process of this machine can be ended, as a sentence; `None` if they can.
    fn obstacle(&self) -> Option<String>;

    /// Carries a plan out. `watch` receives each step, and stops it with [`ControlFlow::Break`].
    ///
    /// # Errors
    /// Why nothing was done, as a sentence.
    fn execute(
        &mut self,
        proposal: &Proposal,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Report, String>;
}

/// What an [`Ender`] has done.
#[derive(Clone, Debug)]
pub enum News {
    /// The plan of this number.
    Planned(u64, Result<Shown, String>),
    /// A step of an execution.
    Step(Line),
    /// The execution is over: its result, or why nothing was done.
    Over(Result<Vec<Paragraph>, String>),
}

/// A plan as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The plan in words.
    pub text: Vec<Paragraph>,
    /// The number of processes that would be ended.
    pub targets: usize,
    /// Why the plan cannot be carried out, as a sentence.
    pub obstacle: Option<String>,
}

impl Shown {
    /// Returns how a plan for this aim is shown.
    pub fn of(ender: &dyn Ender, aim: &Aim, proposal: &Proposal) -> Self {
        let Proposal { now, diagnosis, plan, .. } = proposal;
        let is_empty = plan.targets.is_empty() && plan.refused.is_empty();
        let obstacle = ender.obstacle().filter(|_| !plan.targets.is_empty());
        let text = match aim {
            Aim::Unlisted(device) if is_empty => {
                let text = nobody(now, diagnosis, device);
                vec![Paragraph { text, ..Paragraph::default() }]
            }
            _ => reap::plan(now, diagnosis, plan, obstacle.is_none()),
        };
        Shown { text, targets: plan.targets.len(), obstacle }
    }
}

/// Tells why no process is ended for the unlisted memory of a device, and what the user can do.
fn nobody(now: &Snapshot, diagnosis: &Diagnosis, device: &DeviceId) -> String {
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
        return "nothing to end: it is not known which process holds this memory".to_owned();
    }
    let holders = suspects.iter().map(|suspect| rows::named(now, suspect.process.pid));
    let holders = holders.collect::<Vec<_>>().join(", ");
    format!(
        "nothing is ended for this row: that {holders} holds this memory is not certain enough, or \
         no signal would free it. To end a process anyway, leave, select its row and press K"
    )
}
