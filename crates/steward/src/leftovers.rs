//! The processes that a job leaves behind, and how they are ended.

use gpu_core::{
    ActToken, DeviceId, Error, ErrorKind, Fault, Job, JobEvent, JobExit, KilledTree, ProcessFault,
    ProcessInfo, ProcessKey, Result, Signal,
};
use gpu_reaper::{Action, Event, Guard, Outcome, ProcessTree, plan_tree};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// The number of rounds with SIGTERM; processes that appear later are killed.
pub(crate) const SIGTERM_ROUNDS: usize = 2;

/// A killed process that has not ended after this time, and is in a state that SIGKILL does not
/// end, is not waited for.
const STUCK: Duration = Duration::from_secs(1);

const WHY: &str = "of a job that is to end whole";

/// Signals by number: those of Ctrl-C and Ctrl-\\, and those that end a process.
pub(crate) const INT: i32 = 2;
pub(crate) const QUIT: i32 = 3;
pub(crate) const KILL: i32 = 9;
pub(crate) const TERM: i32 = 15;

/// The processes to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The processes that hold a leased device.
    Holders,
    /// All processes.
    Tree,
}

/// The result of the clean-up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cleaned {
    /// The processes that were ended, or were to be.
    pub(crate) actions: Vec<Action>,
    /// The processes that exist at the end.
    pub(crate) still_there: Vec<ProcessInfo>,
    /// Those of them that were to be ended, as far as known.
    pub(crate) remaining: Vec<ProcessInfo>,
    /// The processes with unreadable descriptors that the driver lists on no device.
    pub(crate) unlisted: Vec<ProcessInfo>,
    /// Why it is incomplete.
    pub(crate) stopped: Option<Fault>,
    /// Why the audit log is incomplete.
    pub(crate) unwritten: Option<Fault>,
    /// A process that was to be ended may still exist.
    pub(crate) remains: bool,
    /// How the program itself ended, if it ended only now.
    pub(crate) ending: Option<JobExit>,
}

impl Cleaned {
    /// Processes the events so far, and returns whether Ctrl-C was pressed.
    pub(crate) fn take_events(&mut self, job: &mut dyn Job) -> bool {
        let mut interrupted = false;
        while let Ok(Some(event)) = job.next(Duration::ZERO) {
            match event {
                JobEvent::Ended(ending) => self.ending = Some(ending),
                JobEvent::EndRequested(signal) => interrupted |= [INT, QUIT].contains(&signal),
                JobEvent::Abandoned => {}
            }
        }
        interrupted
    }
}

/// The result of ending the tree of a job whose supervisor was killed.
#[derive(Clone, Debug, Default)]
pub struct TakenOver {
    /// The processes that were ended, or were to be.
    pub actions: Vec<Action>,
    /// The processes that still exist.
    pub still_there: Vec<ProcessInfo>,
    /// Why it is incomplete.
    pub stopped: Option<Fault>,
    /// Why the audit log is incomplete.
    pub unwritten: Option<Fault>,
    /// A process of the tree may still exist, and with it the lease.
    pub remains: bool,
}

/// Ends all processes of a job whose supervisor was killed, in its place. `root` is the calling
/// process, which has adopted the job's tree. Their lease ends with the last of them.
///
/// Ctrl-C stops this, as `watch` does with [`ControlFlow::Break`].
pub fn take_over(
    job: &mut dyn Job,
    root: ProcessKey,
    ports: gpu_reaper::Ports<'_>,
    token: &ActToken,
    grace: Duration,
    watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> TakenOver {
    let tree = Tree { ports, root, devices: &[], token };
    let cleaned = tree.end(job, Reach::Tree, grace, watch);
    let Cleaned { actions, still_there, stopped, unwritten, remains, .. } = cleaned;
    TakenOver { actions, still_there, stopped, unwritten, remains }
}

/// The tree of a job.
pub(crate) struct Tree<'a> {
    pub(crate) ports: gpu_reaper::Ports<'a>,
    pub(crate) root: ProcessKey,
    pub(crate) devices: &'a [DeviceId],
    pub(crate) token: &'a ActToken,
}

/// Ctrl-C, as the reason why the rest is not ended.
fn interruption() -> Fault {
    Error::new(ErrorKind::Interrupted, "end the processes of the job").fault()
}

impl Tree<'_> {
    /// Ends the processes of `reach`, in rounds, because a process that is asked to end may start
    /// others.
    ///
    /// Ctrl-C stops this, as `watch` does with [`ControlFlow::Break`]. Other signals that ask this
    /// program to end do not, because it must leave nothing behind before it ends.
    pub(crate) fn end(
        &self,
        job: &mut dyn Job,
        reach: Reach,
        grace: Duration,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Cleaned {
        let mut cleaned = Cleaned::default();
        // Earlier events were meant for the program.
        cleaned.take_events(job);
        let stopped = match reach {
            Reach::Holders => self.end_holders(job, grace, watch, &mut cleaned),
            Reach::Tree => self.end_all(job, grace, watch, &mut cleaned),
        };
        let is_done = matches!(stopped, Ok(None));
        cleaned.stopped = stopped.unwrap_or_else(|error| Some(error.fault()));
        cleaned.take_events(job);
        match self.members(job) {
            Ok(members) => cleaned.still_there = members,
            Err(error) => cleaned.stopped = cleaned.stopped.or(Some(error.fault())),
        }
        if !is_done {
            match self.remaining(job, reach) {
                Ok(remaining) => cleaned.remaining.extend(remaining),
                Err(_) => cleaned.remains = true,
            }
            cleaned.remains |= !cleaned.remaining.is_empty();
        }
        cleaned
    }

    /// Returns the processes that were to be ended and still exist.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub(crate) fn remaining(&self, job: &dyn Job, reach: Reach) -> Result<Vec<ProcessInfo>> {
        match reach {
            Reach::Tree => self.members(job),
            Reach::Holders => self.scan(job).map(|scan| scan.remaining()),
        }
    }

    /// Ends all processes.
    fn end_all(
        &self,
        job: &mut dyn Job,
        grace: Duration,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
        cleaned: &mut Cleaned,
    ) -> Result<Option<Fault>> {
        for _ in 0..SIGTERM_ROUNDS {
            let members = self.members(job)?;
            if members.is_empty() {
                break;
            }
            let escalation = self.escalate(job, &members, WHY, grace, watch, cleaned)?;
            let interrupted = escalation
                .stopped
                .as_ref()
                .is_some_and(|fault| fault.kind == ErrorKind::Interrupted);
            if interrupted {
                return Ok(escalation.stopped);
            }
            if escalation.is_futile {
                break;
            }
        }
        if cleaned.take_events(job) {
            return Ok(Some(interruption()));
        }
        let guard = Guard::new(self.ports.host, Vec::new())?;
        let falling = Whole { tree: self, job };
        let swept = gpu_reaper::sweep(self.root, WHY, &guard, self.ports, self.token, &falling);
        cleaned.actions.extend(swept.actions);
        cleaned.unwritten = cleaned.unwritten.take().or(swept.unwritten);
        cleaned.remains = swept.stopped.is_some();
        Ok(swept.stopped)
    }

    /// Escalates signals to these processes. Does not wait for processes that SIGKILL does not end.
    ///
    /// # Errors
    /// If this process's own ancestors cannot be read.
    pub(crate) fn escalate(
        &self,
        job: &mut dyn Job,
        targets: &[ProcessInfo],
        why: &str,
        grace: Duration,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
        cleaned: &mut Cleaned,
    ) -> Result<EscalationResult> {
        let gpu_reaper::Ports { backend, host, .. } = self.ports;
        let guard = Guard::new(host, Vec::new())?;
        let plan = plan_tree(self.root, targets, why, backend.origin(), &guard, grace);
        let keys: Vec<ProcessKey> = targets.iter().map(|target| target.key).collect();
        let (mut killed, mut stuck, mut interrupted) = (false, false, false);
        let mut on_event = |event: Event<'_>| {
            // The last events of an execution can no longer stop it, but they can stop what
            // follows.
            interrupted |= cleaned.take_events(job);
            if interrupted {
                return ControlFlow::Break(());
            }
            match &event {
                Event::Signalled(_, Signal::Kill) => killed = true,
                Event::WaitingForEnd(_, waited) if killed && *waited >= STUCK => {
                    stuck = self.are_stuck(&keys);
                }
                _ => {}
            }
            match stuck {
                true => ControlFlow::Break(()),
                false => watch(event),
            }
        };
        let report = gpu_reaper::execute(&plan, &guard, self.ports, self.token, &mut on_event);
        let is_futile = stuck || !report.actions.iter().any(|action| action.outcome.is_gone());
        cleaned.actions.extend(report.actions);
        cleaned.unwritten = cleaned.unwritten.take().or(report.unwritten);
        let stopped = match interrupted {
            true => Some(interruption()),
            false => report.stopped.filter(|_| !stuck),
        };
        Ok(EscalationResult { stopped, is_futile })
    }

    /// Returns why one of these could not be ended; `None` if all are gone.
    pub(crate) fn unended_fault(
        &self,
        unended: &BTreeMap<ProcessKey, ProcessInfo>,
        actions: &[Action],
    ) -> Option<Fault> {
        let last = |pid| actions.iter().rfind(|action| action.pid == pid);
        unended.keys().find_map(|key| match self.reread(key) {
            Ok(None) => None,
            Ok(Some(info)) => Some(match last(key.pid).map(|action| &action.outcome) {
                Some(Outcome::Failed { why }) => why.clone(),
                _ => Error::new(ErrorKind::TimedOut, gpu_reaper::cannot_end(&info)).fault(),
            }),
            Err(error) => Some(error.fault()),
        })
    }

    /// Returns whether a process may still exist but cannot be inspected: `hidepid` (proc(5)) hides
    /// a process that has changed its user, and [`members`](Self::members) misses it.
    pub(crate) fn is_hidden(&self, key: &ProcessKey) -> bool {
        self.reread(key).is_err()
    }

    /// Returns the current state of a process; `None` if it is gone.
    fn reread(&self, key: &ProcessKey) -> Result<Option<ProcessInfo>> {
        let info = self.ports.host.open(key.pid).and_then(|opened| opened.info());
        match info {
            Ok(info) => Ok(info.key.definitely_same(key).then_some(info)),
            Err(error) if error.kind() == ProcessFault::Gone.into() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All processes except the helpers of this program.
    pub(crate) fn members(&self, job: &dyn Job) -> Result<Vec<ProcessInfo>> {
        let mut members = job.members()?;
        let helpers = self.ports.backend.helpers();
        let is_helper = |member: &ProcessInfo| {
            member.parent == Ok(self.root.pid) && helpers.contains(&member.key.pid)
        };
        members.retain(|member| !is_helper(member));
        Ok(members)
    }
}

/// The result of an escalation.
pub(crate) struct EscalationResult {
    /// Why it stopped early.
    pub(crate) stopped: Option<Fault>,
    /// No process ended, or SIGKILL does not end those that remain.
    pub(crate) is_futile: bool,
}

/// All processes of a tree except the helpers of this program.
struct Whole<'a> {
    tree: &'a Tree<'a>,
    job: &'a dyn Job,
}

impl ProcessTree for Whole<'_> {
    fn members(&self) -> Result<Vec<ProcessInfo>> {
        self.tree.members(self.job)
    }

    fn kill_tree(&self, at_most: Duration, token: &ActToken) -> Result<KilledTree> {
        self.job.kill_tree(&self.tree.ports.backend.helpers(), at_most, token)
    }
}
