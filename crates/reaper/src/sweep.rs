//! Ends a tree that grows meanwhile.

use crate::act::same_machine;
use crate::audit;
use crate::guard::Guard;
use crate::plan::Target;
use crate::ports::Ports;
use crate::report::{Action, Outcome};
use crate::tree::{descends, plan_tree};
use gpu_core::{
    ActToken, Error, ErrorKind, Fault, KilledTree, ProcessFault, ProcessHandle, ProcessInfo,
    ProcessKey, ProcessState, Result, Signal,
};
use std::collections::HashSet;
use std::time::Duration;

/// The limit of the attempt: more attempts do not end a tree that forks faster than this program
/// can scan.
const PATIENCE: Duration = Duration::from_secs(10);
const MAX_SCANS: usize = 2000;

/// Consecutive scans can miss a process that starts another and ends, together with its child.
const EMPTY_SCANS: usize = 3;

/// After this time, the sweep stops waiting for a killed process that is in a state that SIGKILL
/// does not end.
const STUCK: Duration = Duration::from_secs(1);

/// The pause for killed processes that are not gone yet.
const PAUSE: Duration = Duration::from_millis(5);

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// An entry for each killed process.
    pub actions: Vec<Action>,
    /// Why it gave up.
    pub stopped: Option<Fault>,
    /// Why the audit log is incomplete.
    pub unwritten: Option<Fault>,
}

/// A tree to end, all of which belongs to the caller.
pub trait ProcessTree {
    /// Returns all its live processes.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn members(&self) -> Result<Vec<ProcessInfo>>;

    /// Kills it from its top; see [`Job::kill_tree`](gpu_core::Job::kill_tree).
    ///
    /// # Errors
    /// `Unsupported` if that is not possible here.
    fn kill_tree(&self, at_most: Duration, token: &ActToken) -> Result<KilledTree>;
}

/// Kills all processes of a tree from its top, and every further one as soon as the tree reports
/// it, until it reports none.
///
/// They belong to the caller's own tree, below `root`, and have already received a request to end.
/// The checks before each signal to a process that is not a child are those of
/// [`execute`](crate::execute). Only the audit line is written afterwards: a process that forks and
/// ends every few milliseconds has another PID by the time a line is on disk.
pub fn sweep(
    root: ProcessKey,
    why: &str,
    guard: &Guard,
    ports: Ports<'_>,
    token: &ActToken,
    tree: &dyn ProcessTree,
) -> Swept {
    let mut sweep = Sweep {
        root,
        guard,
        ports,
        token,
        killed: Vec::new(),
        refused: HashSet::new(),
        killed_tree: Vec::new(),
        unwritten: None,
    };
    let stopped = sweep.run(why, tree).err().map(|error| error.fault());
    let Sweep { killed, killed_tree: mut actions, unwritten, .. } = sweep;
    actions.extend(killed.into_iter().map(|killed| killed.action));
    Swept { actions, stopped, unwritten }
}

struct Sweep<'a> {
    root: ProcessKey,
    guard: &'a Guard,
    ports: Ports<'a>,
    token: &'a ActToken,
    killed: Vec<Killed>,
    /// Processes that may not be signalled.
    refused: HashSet<ProcessKey>,
    killed_tree: Vec<Action>,
    unwritten: Option<Fault>,
}

struct Killed {
    target: Target,
    handle: Box<dyn ProcessHandle>,
    at: Duration,
    action: Action,
}

impl Sweep<'_> {
    fn run(&mut self, why: &str, tree: &dyn ProcessTree) -> Result<()> {
        let start = self.ports.clock.monotonic();
        let (mut quiet, mut last_new) = (0, start);
        let mut left = None;
        for _ in 0..MAX_SCANS {
            let spent = self.ports.clock.monotonic().saturating_sub(start);
            let killed_tree = tree.kill_tree(PATIENCE.saturating_sub(spent), self.token);
            // If the kernel does not report it, the scans do.
            let none_left = killed_tree.as_ref().is_ok_and(|killed_tree| killed_tree.none_left);
            self.take(killed_tree.unwrap_or_default(), why);
            let found = tree.members()?;
            quiet = if found.is_empty() { quiet + 1 } else { 0 };
            let now = self.ports.clock.monotonic();
            if quiet >= EMPTY_SCANS || (quiet > 0 && none_left) {
                self.settle();
                return Ok(());
            }
            let is_beyond = !found.is_empty() && found.iter().all(|info| self.is_beyond(info));
            let is_settled = now.saturating_sub(last_new) >= STUCK;
            left = found.first().filter(|_| is_settled).map(|info| self.cannot_end(info));
            if now.saturating_sub(start) >= PATIENCE || (is_beyond && is_settled) {
                break;
            }
            let origin = self.ports.backend.origin();
            let plan = plan_tree(self.root, &found, why, origin, self.guard, Duration::ZERO);
            same_machine(&plan, self.ports)?;
            let before = self.killed.len();
            for target in plan.targets {
                self.kill(target, now);
            }
            self.note(before);
            if before == self.killed.len() {
                self.ports.clock.sleep(PAUSE);
            } else {
                last_new = now;
            }
        }
        self.settle();
        let grows = || "end a process tree that grows as fast as it is killed".to_owned();
        Err(Error::new(ErrorKind::TimedOut, left.unwrap_or_else(grows)))
    }

    fn cannot_end(&self, info: &ProcessInfo) -> String {
        if self.refused.contains(&info.key) {
            format!("end process {} ({}): no permission to signal it", info.key.pid, info.name)
        } else {
            cannot_end(info)
        }
    }

    /// Returns whether this program cannot end a process.
    fn is_beyond(&self, info: &ProcessInfo) -> bool {
        let was_killed = || self.killed.iter().any(|killed| killed.target.key == info.key);
        self.refused.contains(&info.key) || (is_stuck(info) && was_killed())
    }

    /// Logs the processes that were killed from the top.
    fn take(&mut self, killed_tree: KilledTree, why: &str) {
        let origin = self.ports.backend.origin();
        for (process, after) in killed_tree.killed {
            let members = [process];
            let plan = plan_tree(self.root, &members, why, origin.clone(), self.guard, after);
            for target in plan.targets {
                let mut action = Action::new(&target);
                action.signals.push(Signal::Kill);
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                action.outcome = Outcome::Ended { after_ms };
                let written = audit::intent(self.ports, &target, Signal::Kill)
                    .and_then(|()| audit::outcome(self.ports, &target, &action.outcome));
                if let Err(error) = written {
                    self.unwritten.get_or_insert_with(|| error.fault());
                }
                self.killed_tree.push(action);
            }
        }
    }

    /// Kills one process, once. If it cannot be opened or checked, the next scan reports it if it
    /// is still there.
    fn kill(&mut self, target: Target, now: Duration) {
        let key = target.key;
        if self.killed.iter().any(|killed| killed.target.key == key) {
            return;
        }
        let Ok(handle) = self.ports.host.open(key.pid) else { return };
        let is_same = |info: &ProcessInfo| {
            info.key.definitely_same(&key)
                && self.guard.forbids(info).is_none()
                && descends(info, &self.root, self.ports.host)
        };
        if !handle.info().is_ok_and(|info| is_same(&info)) {
            return;
        }
        match handle.signal(Signal::Kill, self.token) {
            Err(error) if error.kind() == ProcessFault::NotPermitted.into() => {
                self.refused.insert(key);
            }
            Err(_) => {}
            Ok(()) => {
                let mut action = Action::new(&target);
                action.signals.push(Signal::Kill);
                self.killed.push(Killed { target, handle, at: now, action });
            }
        }
    }

    /// Logs the processes killed since this count.
    fn note(&mut self, before: usize) {
        for killed in &self.killed[before..] {
            if let Err(error) = audit::intent(self.ports, &killed.target, Signal::Kill) {
                self.unwritten.get_or_insert_with(|| error.fault());
            }
        }
    }

    /// Determines and logs their outcomes.
    fn settle(&mut self) {
        let now = self.ports.clock.monotonic();
        for killed in &mut self.killed {
            let after_ms = u64::try_from(now.saturating_sub(killed.at).as_millis());
            killed.action.outcome = match killed.handle.has_exited() {
                Ok(true) => Outcome::Ended { after_ms: after_ms.unwrap_or(u64::MAX) },
                _ => {
                    let state = killed.handle.info().map_err(|error| error.kind().absent());
                    Outcome::Survived { state: state.and_then(|info| info.state) }
                }
            };
            if let Err(error) = audit::outcome(self.ports, &killed.target, &killed.action.outcome) {
                self.unwritten.get_or_insert_with(|| error.fault());
            }
        }
    }
}

/// Names a process that SIGKILL has not ended, as a failure.
pub fn cannot_end(info: &ProcessInfo) -> String {
    let who = format!("end process {} ({})", info.key.pid, info.name);
    if is_stuck(info) {
        format!("{who}, which is frozen or in uninterruptible sleep")
    } else {
        format!("{who}, which has not exited after SIGKILL")
    }
}

/// Returns whether a process is in a state that SIGKILL does not end: frozen by a cgroup or in
/// uninterruptible sleep (both are `D` in `/proc/PID/stat`), or a zombie with threads in such a
/// state.
pub fn is_stuck(info: &ProcessInfo) -> bool {
    match info.state {
        Ok(ProcessState::Uninterruptible) => true,
        Ok(ProcessState::Zombie) => info.live_threads.is_ok_and(|threads| threads > 0),
        _ => false,
    }
}
