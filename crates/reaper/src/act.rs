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
    ActToken, Error, ErrorKind, Fault, Origin, Pid, ProcessFault, ProcessHandle, Result, Signal,
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

/// Carries out a plan: SIGTERM, wait, SIGKILL, wait, verify.
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
    let mut ladder = Ladder {
        ports,
        check: Check { ports, guard, files: &before.files, spares_logins: plan.spares_logins },
        token,
        watch,
        spared: BTreeSet::new(),
        unwritten: None,
    };
    let mut rungs: Vec<TargetState<'_>> = plan.targets.iter().map(TargetState::new).collect();
    let stopped = ladder
        .open(&mut rungs)
        .and_then(|()| ladder.climb(&mut rungs, Signal::Term, plan.grace))
        .and_then(|()| ladder.climb(&mut rungs, Signal::Kill, KILL_WAIT))
        .err()
        .map(|error| error.fault());
    ladder.close(&mut rungs);
    let Ladder { watch, unwritten, .. } = ladder;
    let actions: Vec<Action> = rungs.into_iter().map(|rung| rung.action).collect();
    let after = before
        .memory_after(plan, ports, &actions, &mut |waited| watch(Event::WaitingForMemory(waited)));
    let newcomers = before.newcomers(plan, ports, &actions, &after);
    Report { actions, memory: after.freed, newcomers, stopped, unwritten }
}

/// Verifies that plan, devices and processes belong to one machine, and that actions are possible
/// there.
pub(crate) fn same_machine(plan: &Plan, ports: Ports<'_>) -> Result<()> {
    let (devices, processes) = (ports.backend.origin(), ports.host.origin());
    if plan.origin.as_ref() == Some(&devices) && devices == processes && devices != Origin::Pasted {
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

struct Ladder<'a, 'w> {
    ports: Ports<'a>,
    check: Check<'a>,
    token: &'a ActToken,
    watch: &'w mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    /// Targets of the plan that turned out not to be targets: their scopes are spared too.
    spared: BTreeSet<Pid>,
    /// Why the audit log is incomplete.
    unwritten: Option<Fault>,
}

impl Ladder<'_, '_> {
    /// Opens all targets before the first signal, so that no PID is reused meanwhile.
    ///
    /// # Errors
    /// When the audit line of one that cannot be opened could not be written.
    fn open(&mut self, rungs: &mut [TargetState<'_>]) -> Result<()> {
        for rung in rungs.iter_mut() {
            rung.handle = match self.ports.host.open(rung.target.key.pid) {
                Ok(handle) => Some(handle),
                Err(error) => {
                    self.settle(rung, outcome_of(rung, &error))?;
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
    fn climb(
        &mut self,
        rungs: &mut [TargetState<'_>],
        signal: Signal,
        wait: Duration,
    ) -> Result<()> {
        for rung in rungs.iter_mut() {
            let Some(handle) = rung.handle.take() else {
                self.note_spared(rung);
                continue;
            };
            match self.may_signal(rung, &*handle) {
                Err(outcome) => {
                    self.settle(rung, outcome)?;
                    self.note_spared(rung);
                }
                Ok(()) => self.signal(rung, handle, signal)?,
            }
        }
        // The last process signalled gets the full time, and the others a little more.
        self.wait(rungs, self.ports.clock.monotonic(), wait)
    }

    /// Sends a signal to a target that may be signalled.
    ///
    /// # Errors
    /// When the audit line could not be written, or the watcher stops everything.
    fn signal(
        &mut self,
        rung: &mut TargetState<'_>,
        handle: Box<dyn ProcessHandle>,
        signal: Signal,
    ) -> Result<()> {
        let target = rung.target;
        self.tell(Event::Signalling(target, signal))?;
        let written = audit::intent(self.ports, target, signal);
        self.stop_on_log_failure(target, written)?;
        // Writing the line may have taken time: report and check again. The check comes last,
        // because the watcher may take time too.
        if let Err(stopped) = self.tell(Event::Signalling(target, signal)) {
            // The log says that the signal was about to be sent.
            let outcome = if rung.action.signals.is_empty() {
                Outcome::NotReached
            } else {
                Outcome::Unsettled
            };
            self.settle(rung, outcome)?;
            return Err(stopped);
        }
        let outcome = match self.may_signal(rung, &*handle) {
            Err(outcome) => outcome,
            Ok(()) => match handle.signal(signal, self.token) {
                Ok(()) => {
                    rung.action.signals.push(signal);
                    rung.handle = Some(handle);
                    return self.tell(Event::Signalled(target, signal));
                }
                Err(error) => outcome_of(rung, &error),
            },
        };
        self.settle(rung, outcome)?;
        self.note_spared(rung);
        Ok(())
    }

    /// Records that the holder for which a scope was planned is not a target, or no longer one
    /// although it lives.
    fn note_spared(&mut self, rung: &TargetState<'_>) {
        let ended = matches!(rung.action.outcome, Outcome::Ended { .. });
        if rung.target.key.pid == rung.target.on_account_of && !ended {
            self.spared.insert(rung.target.key.pid);
        }
    }

    fn wait(
        &mut self,
        rungs: &mut [TargetState<'_>],
        start: Duration,
        wait: Duration,
    ) -> Result<()> {
        loop {
            let waited = self.ports.clock.monotonic().saturating_sub(start);
            for rung in rungs.iter_mut() {
                let Some(handle) = &rung.handle else { continue };
                rung.waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                if handle.has_exited().unwrap_or(false) {
                    rung.handle = None;
                    self.settle(rung, Outcome::Ended { after_ms: rung.waited_ms })?;
                }
            }
            let left = rungs.iter().filter(|rung| rung.handle.is_some()).count();
            if left == 0 {
                return Ok(());
            }
            if waited >= wait {
                let mut left = rungs.iter().filter(|rung| rung.handle.is_some());
                return left.try_for_each(|rung| self.tell(Event::StillThere(rung.target, waited)));
            }
            self.tell(Event::WaitingForEnd(left, waited))?;
            self.ports.clock.sleep(PAUSE.min(wait.saturating_sub(waited)));
        }
    }

    /// Makes sure that the target is still the planned process and still eligible.
    fn may_signal(
        &self,
        rung: &TargetState<'_>,
        handle: &dyn ProcessHandle,
    ) -> Result<(), Outcome> {
        let target = rung.target;
        if self.spared.contains(&target.on_account_of) {
            return Err(Outcome::Spared);
        }
        self.check.may_signal(target, handle).map_err(|objection| match objection {
            Objection::Outcome(outcome) => outcome,
            Objection::Unknown(error) => outcome_of(rung, &error),
        })
    }

    fn settle(&mut self, rung: &mut TargetState<'_>, outcome: Outcome) -> Result<()> {
        rung.action.outcome = outcome;
        let written = audit::outcome(self.ports, rung.target, &rung.action.outcome);
        self.stop_on_log_failure(rung.target, written)?;
        self.tell(Event::Settled(rung.target, &rung.action.outcome))
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

    fn tell(&mut self, event: Event<'_>) -> Result<()> {
        match (self.watch)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::new(ErrorKind::Interrupted, "carry out the plan")),
        }
    }

    /// Writes the outcome of every signalled target that still exists.
    fn close(&mut self, rungs: &mut [TargetState<'_>]) {
        for rung in rungs.iter_mut().filter(|rung| rung.action.outcome == Outcome::NotReached) {
            let outcome = match (rung.action.signals.last(), &rung.handle) {
                (Some(Signal::Kill), Some(handle)) => {
                    let state = handle.look().map_err(|error| error.kind().absent());
                    Outcome::Survived { state: state.and_then(|info| info.state) }
                }
                (Some(_), _) => Outcome::Unsettled,
                (None, _) => continue,
            };
            // The report has it in any case; the failure of the log has no further action to
            // prevent.
            let _ = self.settle(rung, outcome);
        }
    }
}

/// Returns what an error means for a target: if it is gone after a signal, that signal ended it.
fn outcome_of(rung: &TargetState<'_>, error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Process(ProcessFault::Gone) if rung.action.signals.is_empty() => {
            Outcome::AlreadyGone
        }
        ErrorKind::Process(ProcessFault::Gone) => Outcome::Ended { after_ms: rung.waited_ms },
        _ => Outcome::Failed { why: error.fault() },
    }
}
