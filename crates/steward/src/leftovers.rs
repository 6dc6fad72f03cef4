//! What a job leaves behind, and its end.

use gpu_core::{
    ActToken, DeviceFileKind, DeviceId, Ending, ErrorKind, Fault, Felled, Job, JobEvent,
    ProcessInfo, ProcessKey, Result, Snapshot, observe,
};
use gpu_reaper::{Action, Falling, Guard, plan_tree};
use std::ops::ControlFlow;
use std::time::Duration;

/// A tree that still grows after so many rounds is not ended by one more.
const ROUNDS: usize = 10;

/// Where nobody may be left, so many are asked to end; who comes later is killed.
const POLITE_ROUNDS: usize = 2;

/// The signals of Ctrl-C and Ctrl-\\, by number.
const INT: i32 = 2;
const QUIT: i32 = 3;

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
    /// Why it was not carried through.
    pub(crate) stopped: Option<Fault>,
    /// Why the audit log has not all of it.
    pub(crate) unwritten: Option<Fault>,
    /// Somebody may be there who was to be ended.
    pub(crate) remains: bool,
    /// How the program itself ended, where it ended only now.
    pub(crate) ending: Option<Ending>,
}

impl Cleaned {
    /// Takes what happened meanwhile, and tells whether somebody pressed Ctrl-C.
    fn take_events(&mut self, job: &mut dyn Job) -> bool {
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
    watch: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
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
        watch: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
    ) -> Cleaned {
        let mut cleaned = Cleaned::default();
        // What came before was meant for the program.
        cleaned.take_events(job);
        let stopped = self.rounds(job, reach, grace, watch, &mut cleaned);
        cleaned.stopped = stopped.unwrap_or_else(|error| Some(error.fault()));
        cleaned.take_events(job);
        match self.members(job) {
            Ok(members) => cleaned.still_there = members,
            Err(error) => cleaned.stopped = cleaned.stopped.or(Some(error.fault())),
        }
        cleaned.remains |= match self.targets(job, reach) {
            Ok((members, unseen)) => !members.is_empty() || unseen.is_some(),
            Err(_) => true,
        };
        cleaned
    }

    fn rounds(
        &self,
        job: &mut dyn Job,
        reach: Reach,
        grace: Duration,
        watch: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
        cleaned: &mut Cleaned,
    ) -> Result<Option<Fault>> {
        let gpu_reaper::Ports { backend, host, .. } = self.ports;
        let why = match reach {
            Reach::Holders => "left behind by a job, on its device",
            Reach::Tree => "of a job that is to end whole",
        };
        let rounds = if reach == Reach::Tree { POLITE_ROUNDS } else { ROUNDS };
        for _ in 0..rounds {
            let (members, unseen) = self.targets(job, reach)?;
            if members.is_empty() && reach == Reach::Holders {
                return Ok(unseen);
            }
            if members.is_empty() {
                break;
            }
            let guard = Guard::new(host, Vec::new())?;
            let plan = plan_tree(self.root, &members, why, backend.origin(), &guard, grace);
            let mut heed = |event: gpu_reaper::Event<'_>| match cleaned.take_events(job) {
                true => ControlFlow::Break(()),
                false => watch(event),
            };
            let report = gpu_reaper::execute(&plan, &guard, self.ports, self.token, &mut heed);
            let progress = report.actions.iter().any(|action| action.outcome.is_gone());
            cleaned.actions.extend(report.actions);
            cleaned.unwritten = cleaned.unwritten.take().or(report.unwritten);
            let interrupted =
                report.stopped.as_ref().is_some_and(|fault| fault.kind == ErrorKind::Interrupted);
            let stopped = report.stopped.is_some() || !progress;
            if interrupted || (stopped && reach == Reach::Holders) {
                return Ok(report.stopped);
            }
            if stopped {
                break;
            }
        }
        if reach == Reach::Holders {
            return Ok(None);
        }
        let guard = Guard::new(host, Vec::new())?;
        let falling = Whole { tree: self, job };
        let swept = gpu_reaper::sweep(self.root, why, &guard, self.ports, self.token, &falling);
        cleaned.actions.extend(swept.actions);
        cleaned.unwritten = cleaned.unwritten.take().or(swept.unwritten);
        cleaned.remains = swept.stopped.is_some();
        Ok(swept.stopped)
    }

    /// Everybody but those who work for this program.
    fn members(&self, job: &dyn Job) -> Result<Vec<ProcessInfo>> {
        let mut members = job.members()?;
        let helpers = self.ports.backend.helpers();
        let is_helper = |member: &ProcessInfo| {
            member.parent == Ok(self.root.pid) && helpers.contains(&member.key.pid)
        };
        members.retain(|member| !is_helper(member));
        Ok(members)
    }

    /// Who is to be ended, and why perhaps not all of them were seen.
    fn targets(&self, job: &dyn Job, reach: Reach) -> Result<(Vec<ProcessInfo>, Option<Fault>)> {
        let mut members = self.members(job)?;
        let mut unseen = None;
        if reach == Reach::Holders && !members.is_empty() {
            let gpu_reaper::Ports { backend, host, clock, .. } = self.ports;
            let look = observe(backend, host, clock);
            members.retain(|member| self.holds(&look, member));
            unseen = look.holders.err();
        }
        Ok((members, unseen))
    }

    /// Tells whether a process has one of the devices open, or is listed on it.
    fn holds(&self, look: &Snapshot, process: &ProcessInfo) -> bool {
        let pid = process.key.pid;
        let holder = look.holders().iter().find(|holder| holder.process.pid == pid);
        self.devices.iter().any(|id| {
            let open = holder
                .zip(id.minor.ok())
                .is_some_and(|(holder, minor)| holder.has(DeviceFileKind::Gpu(minor)));
            let listed = look.sees_host_pids != Ok(false)
                && look.device(id).is_some_and(|device| {
                    device.processes.iter().flatten().any(|process| process.pid == pid)
                });
            open || listed
        })
    }
}

/// All of a tree, but those who work for this program.
struct Whole<'a> {
    tree: &'a Tree<'a>,
    job: &'a dyn Job,
}

impl Falling for Whole<'_> {
    fn members(&self) -> Result<Vec<ProcessInfo>> {
        self.tree.members(self.job)
    }

    fn fell(&self, at_most: Duration, token: &ActToken) -> Result<Felled> {
        self.job.fell(&self.tree.ports.backend.helpers(), at_most, token)
    }
}
