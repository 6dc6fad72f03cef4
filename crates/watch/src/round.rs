//! One round: look, tell, warn, and end what the policy has ended.

use crate::docket::Condemned;
use crate::sight::is_blind;
use crate::watch::{Change, Watch};
use gpu_core::{ActToken, Error, Fault, ProcessKey, Snapshot};
use gpu_reaper::{Diagnosis, Guard, Past, Plan, Ports, Report, Request};
use std::ops::ControlFlow;
use std::time::Duration;

/// The time between the two looks before a plan: CPU time, counted in hundredths of a second, can
/// advance in it, and processes that are ending disappear.
const PAUSE: Duration = Duration::from_millis(500);

/// A look at the machine.
#[derive(Clone, Debug)]
pub struct Look {
    /// What it saw.
    pub snapshot: Snapshot,
    /// What it means, with what the looks before it saw.
    pub diagnosis: Diagnosis,
}

impl Look {
    /// Adds a snapshot to what the snapshots before it have shown, and returns what it means.
    pub fn after(past: &mut Past, snapshot: Snapshot) -> Self {
        past.add(&snapshot);
        let diagnosis = gpu_reaper::diagnose_after(past, &snapshot);
        Look { snapshot, diagnosis }
    }
}

/// What a look is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To tell what has changed: what is known of processes may be as old as an
    /// [`Observer`](gpu_core::Observer) permits.
    Tell,
    /// To plan: everything is read anew.
    Plan,
}

/// The machine, as a round uses it.
pub struct Machine<'a> {
    /// Its ports. Without a token, no line is written to the audit log.
    pub ports: Ports<'a>,
    /// Takes a look.
    pub look: &'a mut dyn FnMut(Purpose) -> Look,
    /// The permission to end processes; without it, plans are only told.
    pub token: Option<&'a ActToken>,
    /// Whether to go on: asked before and after the looks for a plan, and at each step of its
    /// execution, before each signal too.
    pub go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// What a round tells.
#[derive(Debug)]
pub enum Told<'a> {
    /// The driver could not be queried, or not any more.
    Blind(&'a Fault),
    /// The driver answers again.
    Sighted,
    /// A finding was raised, updated or cleared.
    Change(&'a Change),
    /// So many findings were not raised, because too many were within an hour.
    HeldBack(usize),
    /// A process will be ended unless something changes, or would be if this were no dry run.
    Warning {
        /// The process.
        condemned: &'a Condemned,
        /// It is only told that it would be ended.
        is_dry_run: bool,
    },
    /// Every process that the policy selected is spared, by the checks of the plan.
    Spared {
        /// The last look before it.
        now: &'a Snapshot,
        /// The plan: who is spared, and why.
        plan: &'a Plan,
    },
    /// A plan of the policy, and its result unless it was a dry run.
    Reap {
        /// The last look before it.
        now: &'a Snapshot,
        /// The plan.
        plan: &'a Plan,
        /// The result; `None` for a dry run.
        report: Option<&'a Report>,
    },
    /// No plan could be made.
    NotPlanned(&'a Error),
}

impl Watch {
    /// Looks at the machine once and tells what has changed. Then warns the owners of processes that
    /// the policy ends soon, and ends those that are due: looks twice more, and executes the plan
    /// for the suspects that are still due after both looks.
    ///
    /// Without a token, or with `dry_run` in the policy, the plan is only told.
    pub fn round(&mut self, machine: &mut Machine<'_>, told: &mut dyn FnMut(Told<'_>)) {
        self.look_and_tell(machine, Purpose::Tell, told);
        let reap = &self.policy().reap;
        let is_dry_run = machine.token.is_none() || reap.as_ref().is_none_or(|reap| reap.dry_run);
        for condemned in &self.warnings() {
            told(Told::Warning { condemned, is_dry_run });
        }
        if self.condemned().is_empty() || (machine.go_on)().is_break() {
            return;
        }
        let looks = [(); 2].map(|()| {
            machine.ports.clock.sleep(PAUSE);
            self.look_and_tell(machine, Purpose::Plan, told)
        });
        let condemned = self.condemned();
        if condemned.is_empty() || (machine.go_on)().is_break() {
            return;
        }
        self.reap(machine, &looks, &condemned, told);
    }

    fn look_and_tell(
        &mut self,
        machine: &mut Machine<'_>,
        purpose: Purpose,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Look {
        let look = (machine.look)(purpose);
        let was_blind = std::mem::replace(&mut self.blind, is_blind(&look.snapshot));
        match &look.snapshot.driver {
            Err(fault) if self.blind && !was_blind => told(Told::Blind(fault)),
            _ if was_blind && !self.blind => told(Told::Sighted),
            _ => {}
        }
        let at = machine.ports.clock.monotonic();
        let before = self.held_back();
        for change in self.look(&look.snapshot, &look.diagnosis, at) {
            told(Told::Change(&change));
        }
        if before == 0 && self.held_back() > 0 {
            told(Told::HeldBack(self.held_back()));
        }
        look
    }

    /// Plans for exactly these processes, and executes the plan if that is permitted.
    fn reap(
        &mut self,
        machine: &Machine<'_>,
        looks: &[Look; 2],
        condemned: &[Condemned],
        told: &mut dyn FnMut(Told<'_>),
    ) {
        let Some(policy) = self.policy().reap.clone() else { return };
        let keys: Vec<ProcessKey> = condemned.iter().map(Condemned::key).collect();
        self.tried(&keys);
        let guard = match Guard::new(machine.ports.host, policy.protect.clone()) {
            Ok(guard) => guard,
            Err(error) => return told(Told::NotPlanned(&error)),
        };
        let request = Request {
            suspects: condemned.iter().map(|one| (one.id.kind, one.key())).collect(),
            grace: policy.grace,
            ..Request::default()
        };
        let snapshots = [looks[0].snapshot.clone(), looks[1].snapshot.clone()];
        let plan = gpu_reaper::plan(&snapshots, &looks[1].diagnosis, &guard, &request);
        let now = &looks[1].snapshot;
        if plan.targets.is_empty() {
            return told(Told::Spared { now, plan: &plan });
        }
        let report = machine.token.filter(|_| !policy.dry_run).map(|token| {
            gpu_reaper::execute(&plan, &guard, machine.ports, token, &mut |_| (machine.go_on)())
        });
        // A dry run tells no more than would be ended.
        self.count_ended(report.as_ref().map_or(plan.targets.len(), |report| {
            report.actions.iter().filter(|action| !action.signals.is_empty()).count()
        }));
        told(Told::Reap { now, plan: &plan, report: report.as_ref() });
        self.resume(machine.ports.clock.monotonic());
    }
}
