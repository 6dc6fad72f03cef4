//! One round: scan, report, warn, and end the processes that the policy selects.

use crate::docket::Condemned;
use crate::sight::is_blind;
use crate::watch::{Change, Watch};
use gpu_core::{ActToken, Error, Fault, ProcessKey, Snapshot};
use gpu_reaper::{Diagnosis, Guard, Past, Plan, Ports, Report, Request};
use std::ops::ControlFlow;
use std::time::Duration;

/// The time between the two scans before a plan. In this time, CPU time, which is counted in
/// hundredths of a second, can advance, and processes that are exiting disappear.
const PAUSE: Duration = Duration::from_millis(500);

/// A scan of the machine.
#[derive(Clone, Debug)]
pub struct Look {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The diagnosis, which takes earlier snapshots into account.
    pub diagnosis: Diagnosis,
}

impl Look {
    /// Adds a snapshot to the history and diagnoses it.
    pub fn after(past: &mut Past, snapshot: Snapshot) -> Self {
        past.add(&snapshot);
        let diagnosis = gpu_reaper::diagnose_after(past, &snapshot);
        Look { snapshot, diagnosis }
    }
}

/// The purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To report changes. Process data may be as old as an [`Observer`](gpu_core::Observer)
    /// permits.
    Tell,
    /// To plan. All data is read again.
    Plan,
}

/// The machine that a round scans and acts on.
pub struct Machine<'a> {
    /// Its ports. Without a token, the round writes no line to the audit log.
    pub ports: Ports<'a>,
    /// Scans the machine.
    pub look: &'a mut dyn FnMut(Purpose) -> Look,
    /// Permits ending processes. Without it, plans are only reported.
    pub token: Option<&'a ActToken>,
    /// Whether to continue. Called before and after the scans for a plan, and before each step of
    /// its execution, including each signal.
    pub go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// What a round reports.
#[derive(Debug)]
pub enum Told<'a> {
    /// The driver has stopped answering.
    Blind(&'a Fault),
    /// The driver answers again.
    Sighted,
    /// A finding was raised, updated or cleared.
    Change(&'a Change),
    /// So many findings were not raised because of the hourly limit.
    HeldBack(usize),
    /// A process will be ended unless something changes, or would be in a dry run.
    Warning {
        /// The process.
        condemned: &'a Condemned,
        /// Whether this is a dry run, in which the process is not ended.
        is_dry_run: bool,
    },
    /// The checks of the plan spare every process that the policy selected.
    Spared {
        /// The last scan before the plan.
        now: &'a Snapshot,
        /// The plan, with each spared process and the reason.
        plan: &'a Plan,
    },
    /// A plan, and its result unless this was a dry run.
    Reap {
        /// The last scan before the plan.
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
    /// Scans the machine once and reports changes. Then warns the owners of processes that the
    /// policy will end soon. If processes are due, scans twice more and executes the plan for those
    /// that are due after both scans.
    ///
    /// Without a token, or with `dry_run` in the policy, the plan is only reported.
    pub fn round(&mut self, machine: &mut Machine<'_>, notify: &mut dyn FnMut(Told<'_>)) {
        self.scan_and_report(machine, Purpose::Tell, notify);
        let reap = &self.policy().reap;
        let is_dry_run = machine.token.is_none() || reap.as_ref().is_none_or(|reap| reap.dry_run);
        for condemned in &self.warnings() {
            notify(Told::Warning { condemned, is_dry_run });
        }
        if self.due().is_empty() || (machine.go_on)().is_break() {
            return;
        }
        let scans = [(); 2].map(|()| {
            machine.ports.clock.sleep(PAUSE);
            self.scan_and_report(machine, Purpose::Plan, notify)
        });
        let due = self.due();
        if due.is_empty() || (machine.go_on)().is_break() {
            return;
        }
        self.reap(machine, &scans, &due, notify);
    }

    fn scan_and_report(
        &mut self,
        machine: &mut Machine<'_>,
        purpose: Purpose,
        notify: &mut dyn FnMut(Told<'_>),
    ) -> Look {
        let scan = (machine.look)(purpose);
        let was_blind = std::mem::replace(&mut self.blind, is_blind(&scan.snapshot));
        match &scan.snapshot.driver {
            Err(fault) if self.blind && !was_blind => notify(Told::Blind(fault)),
            _ if was_blind && !self.blind => notify(Told::Sighted),
            _ => {}
        }
        let at = machine.ports.clock.monotonic();
        let before = self.held_back();
        for change in self.look(&scan.snapshot, &scan.diagnosis, at) {
            notify(Told::Change(&change));
        }
        if before == 0 && self.held_back() > 0 {
            notify(Told::HeldBack(self.held_back()));
        }
        scan
    }

    /// Plans for exactly these processes, and executes the plan if that is permitted.
    fn reap(
        &mut self,
        machine: &Machine<'_>,
        scans: &[Look; 2],
        due: &[Condemned],
        notify: &mut dyn FnMut(Told<'_>),
    ) {
        let Some(policy) = self.policy().reap.clone() else { return };
        let keys: Vec<ProcessKey> = due.iter().map(Condemned::key).collect();
        self.tried(&keys);
        let guard = match Guard::new(machine.ports.host, policy.protect.clone()) {
            Ok(guard) => guard,
            Err(error) => return notify(Told::NotPlanned(&error)),
        };
        let request = Request {
            suspects: due.iter().map(|one| (one.id.kind, one.key())).collect(),
            grace: policy.grace,
            ..Request::default()
        };
        let snapshots = [scans[0].snapshot.clone(), scans[1].snapshot.clone()];
        let plan = gpu_reaper::plan(&snapshots, &scans[1].diagnosis, &guard, &request);
        let now = &scans[1].snapshot;
        if plan.targets.is_empty() {
            return notify(Told::Spared { now, plan: &plan });
        }
        let report = machine.token.filter(|_| !policy.dry_run).map(|token| {
            gpu_reaper::execute(&plan, &guard, machine.ports, token, &mut |_| (machine.go_on)())
        });
        // A dry run reports no more processes than a real run may end.
        self.count_ended(report.as_ref().map_or(plan.targets.len(), |report| {
            report.actions.iter().filter(|action| !action.signals.is_empty()).count()
        }));
        notify(Told::Reap { now, plan: &plan, report: report.as_ref() });
        self.resume(machine.ports.clock.monotonic());
    }
}
