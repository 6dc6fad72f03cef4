//! Sends signals according to a plan; only [`sweep`](crate::sweep) also sends signals, for killing
//! a tree.

use crate::audit;
use crate::check::{Check, Objection};
use crate::guard::Guard;
use crate::plan::{Membership, Plan, Target};
use crate::ports::Ports;
use crate::report::{Action, Outcome, Report};
use crate::verify::Before;
use gpu_core::{
    ActToken, Error, ErrorKind, Fault, Pid, ProcessFault, ProcessHandle, Result, Signal,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

/// How long to wait after SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Events during the execution of a plan, for the watcher.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A signal is about to be sent: reported before its audit line is written, and again after it.
    /// A break prevents the signal.
    Signalling(&'a Target, Signal),
    /// A signal was sent.
    Signalled(&'a Target, Signal),
    /// Waiting for processes; the time since the signal.
    WaitingForEnd(usize, Duration),
    /// A target is done, in this step or permanently.
    Settled(&'a Target, &'a Outcome),
    /// A target still exists when its time is over.
    StillThere(&'a Target, Duration),
    /// All targets that end have ended; waiting for the memory.
    WaitingForMemory(Duration),
}

/// Carries out a plan: SIGTERM, wait, SIGKILL, wait, verify. Without a grace period, SIGKILL is the
/// first signal.
///
/// Each target is opened. Before each signal, checks on the opened process verify that PID, start
/// time, user and executable are those of the plan, that nothing protects it, and that it still
/// holds a device and uses its memory, or is still in the scope. If a check cannot be made, no
/// signal is sent.
///
/// The audit line is written before the signal. If that fails, no more signals are sent except
/// within the caller's own tree: a program that starts a job has to end it, and the report says
/// that the log lacks the line.
///
/// `watch` receives each step, the first one before the first signal, and stops everything with
/// [`ControlFlow::Break`]: no more signals are sent, and the report lists those already sent.
pub fn execute(
    plan: &Plan,
    guard: &Guard,
    ports: Ports<'_>,
    token: &ActToken,
    watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Report {
    let stopped = |error: Error| Report::stopped(Some(error.fault()));
    if let Err(error) = same_machine(plan, ports) {
        return stopped(error);
    }
    let files = match ports.host.device_files() {
        Ok(files) => files,
        Err(error) => return stopped(error),
    };
    let before = Before::see(plan, ports, files);
    let mut escalation = Escalation {
        ports,
        check: Check { ports, guard, files: &before.files, spares_logins: plan.spares_logins },
        token,
        watch,
        spared: BTreeSet::new(),
        unwritten: None,
    };
    let mut entries: Vec<TargetState<'_>> = plan.targets.iter().map(TargetState::new).collect();
    let stopped = escalation
        .open(&mut entries)
        .and_then(|()| match plan.grace {
            Duration::ZERO => Ok(()),
            grace => escalation.escalate(&mut entries, Signal::Term, grace),
        })
        .and_then(|()| escalation.escalate(&mut entries, Signal::Kill, KILL_WAIT))
        .err()
        .map(|error| error.fault());
    escalation.close(&mut entries);
    let Escalation { watch, unwritten, .. } = escalation;
    let actions: Vec<Action> = entries.into_iter().map(|entry| entry.action).collect();
    let after = before
        .memory_after(plan, ports, &actions, &mut |waited| watch(Event::WaitingForMemory(waited)));
    let newcomers = before.newcomers(plan, ports, &actions, &after);
    Report { actions, memory: after.freed, newcomers, stopped, unwritten }
}

/// Verifies that plan, devices and processes belong to one machine, and that actions are possible
/// there.
pub(crate) fn same_machine(plan: &Plan, ports: Ports<'_>) -> Result<()> {
    let (devices, processes) = (ports.backend.origin(), ports.host.origin());
    if plan.origin.as_ref() == Some(&devices) && devices == processes && devices.permits_actions() {
        return Ok(());
    }
    let what = format!("use devices of {devices} with processes of {processes}");
    Err(Error::new(ErrorKind::Invalid, what))
}

/// One target and its next step; `handle` is present while a signal may still be sent.
struct TargetState<'p> {
    target: &'p Target,
    handle: Option<Box<dyn ProcessHandle>>,
    action: Action,
    /// The waiting time after its last signal.
    waited_ms: u64,
}

impl<'p> TargetState<'p> {
    fn new(target: &'p Target) -> Self {
        TargetState { target, handle: None, action: Action::new(target), waited_ms: 0 }
    }
}

struct Escalation<'a, 'w> {
    ports: Ports<'a>,
    check: Check<'a>,
    token: &'a ActToken,
    watch: &'w mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    /// Targets of the plan that turned out not to be targets: their scopes are spared too.
    spared: BTreeSet<Pid>,
    /// Why the audit log is incomplete.
    unwritten: Option<Fault>,
}

impl Escalation<'_, '_> {
    /// Opens all targets before the first signal, so that no PID is reused meanwhile.
    ///
    /// # Errors
    /// When the audit line of one that cannot be opened could not be written.
    fn open(&mut self, entries: &mut [TargetState<'_>]) -> Result<()> {
        for entry in entries.iter_mut() {
            entry.handle = match self.ports.host.open(entry.target.key.pid) {
                Ok(handle) => Some(handle),
                Err(error) => {
                    self.settle(entry, outcome_of(entry, &error))?;
                    None
                }
            };
        }
        Ok(())
    }

    /// Sends one signal to all remaining targets, and waits.
    ///
    /// # Errors
    /// When the audit line could not be written: no more signals are sent.
    fn escalate(
        &mut self,
        entries: &mut [TargetState<'_>],
        signal: Signal,
        wait: Duration,
    ) -> Result<()> {
        for entry in entries.iter_mut() {
            let Some(handle) = entry.handle.take() else {
                self.note_spared(entry);
                continue;
            };
            match self.may_signal(entry, &*handle) {
                Err(outcome) => {
                    self.settle(entry, outcome)?;
                    self.note_spared(entry);
                }
                Ok(()) => self.signal(entry, handle, signal)?,
            }
        }
        // The last process signalled gets the full time, and the others a little more.
        self.wait(entries, self.ports.clock.monotonic(), wait)
    }

    /// Sends a signal to a target that may be signalled.
    ///
    /// # Errors
    /// When the audit line could not be written, or the watcher stops everything.
    fn signal(
        &mut self,
        entry: &mut TargetState<'_>,
        handle: Box<dyn ProcessHandle>,
        signal: Signal,
    ) -> Result<()> {
        let target = entry.target;
        self.report(Event::Signalling(target, signal))?;
        let written = audit::intent(self.ports, target, signal);
        self.stop_on_log_failure(target, written)?;
        // Writing the line may have taken time: report and check again. The check comes last,
        // because the watcher may take time too.
        if let Err(stopped) = self.report(Event::Signalling(target, signal)) {
            // The log says that the signal was about to be sent.
            let outcome = if entry.action.signals.is_empty() {
                Outcome::NotReached
            } else {
                Outcome::Unsettled
            };
            self.settle(entry, outcome)?;
            return Err(stopped);
        }
        let outcome = match self.may_signal(entry, &*handle) {
            Err(outcome) => outcome,
            Ok(()) => match handle.signal(signal, self.token) {
                Ok(()) => {
                    entry.action.signals.push(signal);
                    entry.handle = Some(handle);
                    return self.report(Event::Signalled(target, signal));
                }
                Err(error) => outcome_of(entry, &error),
            },
        };
        self.settle(entry, outcome)?;
        self.note_spared(entry);
        Ok(())
    }

    /// Records that the holder for which a scope was planned is not a target, or no longer one
    /// although it lives.
    fn note_spared(&mut self, entry: &TargetState<'_>) {
        let ended = matches!(entry.action.outcome, Outcome::Ended { .. });
        if entry.target.key.pid == entry.target.on_account_of && !ended {
            self.spared.insert(entry.target.key.pid);
        }
    }

    fn wait(
        &mut self,
        entries: &mut [TargetState<'_>],
        start: Duration,
        wait: Duration,
    ) -> Result<()> {
        loop {
            let waited = self.ports.clock.monotonic().saturating_sub(start);
            for entry in entries.iter_mut() {
                let Some(handle) = &entry.handle else { continue };
                entry.waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                if handle.has_exited().unwrap_or(false) {
                    entry.handle = None;
                    self.settle(entry, Outcome::Ended { after_ms: entry.waited_ms })?;
                }
            }
            let left = entries.iter().filter(|entry| entry.handle.is_some()).count();
            if left == 0 {
                return Ok(());
            }
            if waited >= wait {
                let mut left = entries.iter().filter(|entry| entry.handle.is_some());
                return left
                    .try_for_each(|entry| self.report(Event::StillThere(entry.target, waited)));
            }
            self.report(Event::WaitingForEnd(left, waited))?;
            self.ports.clock.sleep(PAUSE.min(wait.saturating_sub(waited)));
        }
    }

    /// Makes sure that the target is still the planned process and still eligible.
    fn may_signal(
        &self,
        entry: &TargetState<'_>,
        handle: &dyn ProcessHandle,
    ) -> Result<(), Outcome> {
        let target = entry.target;
        if self.spared.contains(&target.on_account_of) {
            return Err(Outcome::Spared);
        }
        self.check.may_signal(target, handle).map_err(|objection| match objection {
            Objection::Outcome(outcome) => outcome,
            Objection::Unknown(error) => outcome_of(entry, &error),
        })
    }

    fn settle(&mut self, entry: &mut TargetState<'_>, outcome: Outcome) -> Result<()> {
        entry.action.outcome = outcome;
        let written = audit::outcome(self.ports, entry.target, &entry.action.outcome);
        self.stop_on_log_failure(entry.target, written)?;
        self.report(Event::Settled(entry.target, &entry.action.outcome))
    }

    /// Stops everything after a write failure, unless the target is the caller's own.
    fn stop_on_log_failure(&mut self, target: &Target, written: Result<()>) -> Result<()> {
        match (written, &target.membership) {
            (Err(error), Membership::Descends(_)) => {
                self.unwritten.get_or_insert_with(|| error.fault());
                Ok(())
            }
            (written, _) => written,
        }
    }

    fn report(&mut self, event: Event<'_>) -> Result<()> {
        match (self.watch)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::new(ErrorKind::Interrupted, "carry out the plan")),
        }
    }

    /// Writes the outcome of every signalled target that still exists.
    fn close(&mut self, entries: &mut [TargetState<'_>]) {
        for entry in entries.iter_mut().filter(|entry| entry.action.outcome == Outcome::NotReached)
        {
            let outcome = match (entry.action.signals.last(), &entry.handle) {
                (Some(Signal::Kill), Some(handle)) => {
                    let state = handle.info().map_err(|error| error.kind().absent());
                    Outcome::Survived { state: state.and_then(|info| info.state) }
                }
                (Some(_), _) => Outcome::Unsettled,
                (None, _) => continue,
            };
            // The report has it in any case; the failure of the log has no further action to
            // prevent.
            let _ = self.settle(entry, outcome);
        }
    }
}

/// Returns what an error means for a target: if it is gone after a signal, that signal ended it.
fn outcome_of(entry: &TargetState<'_>, error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Process(ProcessFault::Gone) if entry.action.signals.is_empty() => {
            Outcome::AlreadyGone
        }
        ErrorKind::Process(ProcessFault::Gone) => Outcome::Ended { after_ms: entry.waited_ms },
        _ => Outcome::Failed { why: error.fault() },
    }
}
