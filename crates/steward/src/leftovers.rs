//! What a job leaves behind, and its end.

use gpu_core::{
    ActToken, DeviceId, Error, ErrorKind, Fault, Job, JobEvent, JobExit, KilledTree, ProcessInfo,
    ProcessKey, Result, Signal,
};
use gpu_reaper::{Action, Event, Guard, ProcessTree, is_stuck, plan_tree};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

/// So many are asked to end; who comes later is killed.
pub(crate) const SIGTERM_ROUNDS: usize = 2;

/// A killed process that has not ended after so long, and is in a state that SIGKILL does not end,
/// is not waited for.
const STUCK: Duration = Duration::from_secs(1);

const WHY: &str = "of a job that is to end whole";

/// The signals of Ctrl-C and Ctrl-\\, by number.
pub(crate) const INT: i32 = 2;
pub(crate) const QUIT: i32 = 3;

/// Who is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those who hold a leased device.
    Holders,
    /// Everybody.
    Tree,
}

/// What became of those who were left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cleaned {
    /// Those who were ended, or were to be.
    pub(crate) actions: Vec<Action>,
    /// Those who are there at the end.
    pub(crate) still_there: Vec<ProcessInfo>,
    /// Those of them who were to be ended, as far as they are known.
    pub(crate) remaining: Vec<ProcessInfo>,
    /// Those whose descriptors may not be read, and which the driver lists on no device.
    pub(crate) unlisted: Vec<ProcessInfo>,
    /// Why it was not carried through.
    pub(crate) stopped: Option<Fault>,
    /// Why the audit log has not all of it.
    pub(crate) unwritten: Option<Fault>,
    /// Somebody may be there who was to be ended.
    pub(crate) remains: bool,
    /// How the program itself ended, where it ended only now.
    pub(crate) ending: Option<JobExit>,
}

impl Cleaned {
    /// Takes what happened meanwhile, and tells whether somebody pressed Ctrl-C.
    pub(crate) fn take_events(&mut self, job: &mut dyn Job) -> bool {
        let mut interrupted = false;
        while let Ok(Some(event)) = job.next(Duration::ZERO) {
            match event {
                JobEvent::Ended(ending) => self.ending = Some(ending),
                JobEvent::Asked(signal) => interrupted |= [INT, QUIT].contains(&signal),
                JobEvent::Abandoned => {}
            }
        }
        interrupted
    }
}

/// What became of the tree of a job whose supervisor was killed.
#[derive(Clone, Debug, Default)]
pub struct TakenOver {
    /// Those who were ended, or were to be.
    pub actions: Vec<Action>,
    /// Those who are still there.
    pub still_there: Vec<ProcessInfo>,
    /// Why it was not carried through.
    pub stopped: Option<Fault>,
    /// Why the audit log has not all of it.
    pub unwritten: Option<Fault>,
    /// Somebody of them may be there, and with it their lease.
    pub remains: bool,
}

/// Ends everybody of a job whose supervisor was killed, in the place of that one; `root` is the
/// calling process, to which the job's tree has come. With the last of them goes their lease.
///
/// Ctrl-C stops it, as `watch` does by [`ControlFlow::Break`].
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

impl Tree<'_> {
    /// Ends those whom `reach` names, in rounds, since who is asked to end may start others.
    ///
    /// Ctrl-C stops it, as `watch` does by [`ControlFlow::Break`]. Other signals that ask this
    /// program to end do not: to leave nothing behind is how it ends.
    pub(crate) fn end(
        &self,
        job: &mut dyn Job,
        reach: Reach,
        grace: Duration,
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Cleaned {
        let mut cleaned = Cleaned::default();
        // What came before was meant for the program.
        cleaned.take_events(job);
        let stopped = match reach {
            Reach::Holders => self.end_holders(job, grace, watch, &mut cleaned),
            Reach::Tree => self.end_all(job, grace, watch, &mut cleaned),
        };
        let is_done = matches!(stopped, Ok(None)) && !cleaned.remains;
        cleaned.stopped = stopped.unwrap_or_else(|error| Some(error.fault()));
        cleaned.take_events(job);
        match self.members(job) {
            Ok(members) => cleaned.still_there = members,
            Err(error) => cleaned.stopped = cleaned.stopped.or(Some(error.fault())),
        }
        if reach == Reach::Tree || !is_done {
            match self.remaining(job, reach) {
                Ok(remaining) => cleaned.remaining = remaining,
                Err(_) => cleaned.remains = true,
            }
            cleaned.remains |= !cleaned.remaining.is_empty();
        }
        cleaned
    }

    /// Returns those who were to be ended and are there.
    ///
    /// # Errors
    /// When the processes cannot be listed.
    pub(crate) fn remaining(&self, job: &dyn Job, reach: Reach) -> Result<Vec<ProcessInfo>> {
        match reach {
            Reach::Tree => self.members(job),
            Reach::Holders => self.sight(job).map(|sight| sight.remaining()),
        }
    }

    /// Ends everybody.
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
            let climbed = self.climb(job, &members, WHY, grace, watch, cleaned)?;
            let interrupted =
                climbed.stopped.as_ref().is_some_and(|fault| fault.kind == ErrorKind::Interrupted);
            if interrupted {
                return Ok(climbed.stopped);
            }
            if climbed.stuck || climbed.stopped.is_some() || !climbed.progress {
                break;
            }
        }
        let guard = Guard::new(self.ports.host, Vec::new())?;
        let falling = Whole { tree: self, job };
        let swept = gpu_reaper::sweep(self.root, WHY, &guard, self.ports, self.token, &falling);
        cleaned.actions.extend(swept.actions);
        cleaned.unwritten = cleaned.unwritten.take().or(swept.unwritten);
        cleaned.remains |= swept.stopped.is_some();
        Ok(swept.stopped)
    }

    /// Sends these up the ladder. Where only those are left that SIGKILL does not end, it does not
    /// wait for them.
    ///
    /// # Errors
    /// When this process's own ancestors cannot be read.
    pub(crate) fn climb(
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
        let (mut killed, mut stuck) = (false, false);
        let mut heed = |event: Event<'_>| {
            if cleaned.take_events(job) {
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
        let report = gpu_reaper::execute(&plan, &guard, self.ports, self.token, &mut heed);
        let progress = report.actions.iter().any(|action| action.outcome.is_gone());
        cleaned.actions.extend(report.actions);
        cleaned.unwritten = cleaned.unwritten.take().or(report.unwritten);
        let stopped = report.stopped.filter(|_| !stuck);
        Ok(EscalationResult { stopped, progress, stuck })
    }

    /// Says which of these cannot be ended; `None` where all are gone.
    pub(crate) fn stuck_fault(&self, stuck: &HashSet<ProcessKey>) -> Option<Fault> {
        let look = |key: &ProcessKey| {
            let info = self.ports.host.open(key.pid).and_then(|opened| opened.look()).ok()?;
            (info.key.definitely_same(key) && is_stuck(&info)).then_some(info)
        };
        let info = stuck.iter().filter_map(look).min_by_key(|info| info.key.pid)?;
        Some(Error::new(ErrorKind::TimedOut, gpu_reaper::cannot_end(&info)).fault())
    }

    /// Everybody but those who work for this program.
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

/// How a ladder went.
pub(crate) struct EscalationResult {
    /// Why it was not climbed to its end.
    pub(crate) stopped: Option<Fault>,
    /// Somebody ended.
    pub(crate) progress: bool,
    /// Those who are left got SIGKILL and are in a state that it does not end.
    pub(crate) stuck: bool,
}

/// All of a tree, but those who work for this program.
struct Whole<'a> {
    tree: &'a Tree<'a>,
    job: &'a dyn Job,
}

impl ProcessTree for Whole<'_> {
    fn members(&self) -> Result<Vec<ProcessInfo>> {
        self.tree.members(self.job)
    }

    fn fell(&self, at_most: Duration, token: &ActToken) -> Result<KilledTree> {
        self.job.fell(&self.tree.ports.backend.helpers(), at_most, token)
    }
}
