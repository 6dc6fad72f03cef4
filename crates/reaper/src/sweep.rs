//! The end of a tree that grows while it is ended.

use crate::act::{Ports, same_machine};
use crate::audit;
use crate::guard::Guard;
use crate::plan::Target;
use crate::report::{Action, Outcome};
use crate::tree::{descends, plan_tree};
use gpu_core::{
    ActToken, Error, ErrorKind, Fault, KilledTree, ProcessFault, ProcessHandle, ProcessInfo,
    ProcessKey, ProcessState, Result, Signal,
};
use std::collections::HashSet;
use std::time::Duration;

/// How long it is tried, by the clock and in looks: a tree that forks faster than this program can
/// look is not ended by trying on.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOKS: usize = 2000;

/// While a process starts another and ends, one look after the other can miss both.
const EMPTY_SCANS: usize = 3;

/// A killed process that has not ended after so long, and is in a state that SIGKILL does not end,
/// is not waited for.
const STUCK: Duration = Duration::from_secs(1);

/// For those that were killed and are not gone yet.
const PAUSE: Duration = Duration::from_millis(5);

/// What a sweep did.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// An entry for each that was killed.
    pub actions: Vec<Action>,
    /// Why it was given up.
    pub stopped: Option<Fault>,
    /// Why the audit log has not all that was done.
    pub unwritten: Option<Fault>,
}

/// A tree that is to end, all of which is the caller's.
pub trait ProcessTree {
    /// Returns everybody of it who lives.
    ///
    /// # Errors
    /// `Io` when the list of processes cannot be read.
    fn members(&self) -> Result<Vec<ProcessInfo>>;

    /// Kills it from its top; see [`Job::fell`](gpu_core::Job::fell).
    ///
    /// # Errors
    /// `Unsupported` where that is not possible here.
    fn fell(&self, at_most: Duration, token: &ActToken) -> Result<KilledTree>;
}

/// Kills everybody of a tree from its top, and whom else it tells of as soon as it does, again and
/// again, until it tells of nobody.
///
/// They are of the caller's own tree, below `root`, and have been asked to end before. What is made
/// sure of before each signal to one that is not a child is as in [`execute`](crate::execute), but
/// for the audit line, which is written after it: who forks and ends every few milliseconds has
/// another number by the time that a line is on a disk.
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
        felled: Vec::new(),
        unwritten: None,
    };
    let stopped = sweep.run(why, tree).err().map(|error| error.fault());
    let Sweep { killed, felled: mut actions, unwritten, .. } = sweep;
    actions.extend(killed.into_iter().map(|killed| killed.action));
    Swept { actions, stopped, unwritten }
}

struct Sweep<'a> {
    root: ProcessKey,
    guard: &'a Guard,
    ports: Ports<'a>,
    token: &'a ActToken,
    killed: Vec<Killed>,
    /// Those that may not be signalled.
    refused: HashSet<ProcessKey>,
    felled: Vec<Action>,
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
        for _ in 0..LOOKS {
            let spent = self.ports.clock.monotonic().saturating_sub(start);
            let felled = tree.fell(PATIENCE.saturating_sub(spent), self.token);
            // Where the kernel does not tell it, the looks do.
            let none_left = felled.as_ref().is_ok_and(|felled| felled.none_left);
            self.take(felled.unwrap_or_default(), why);
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
        match self.refused.contains(&info.key) {
            true => {
                format!("end process {} ({}): no permission to signal it", info.key.pid, info.name)
            }
            false => cannot_end(info),
        }
    }

    /// Returns whether a process will not end for what this program can do.
    fn is_beyond(&self, info: &ProcessInfo) -> bool {
        let was_killed = || self.killed.iter().any(|killed| killed.target.key == info.key);
        self.refused.contains(&info.key) || (is_stuck(info) && was_killed())
    }

    /// Writes who was killed from the top.
    fn take(&mut self, felled: KilledTree, why: &str) {
        let origin = self.ports.backend.origin();
        for (process, after) in felled.killed {
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
                self.felled.push(action);
            }
        }
    }

    /// Kills one, once. Who cannot be opened or checked is told of by the next look, if it is
    /// still there.
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
        if !handle.look().is_ok_and(|info| is_same(&info)) {
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

    /// Writes who was killed since there were so many.
    fn note(&mut self, before: usize) {
        for killed in &self.killed[before..] {
            if let Err(error) = audit::intent(self.ports, &killed.target, Signal::Kill) {
                self.unwritten.get_or_insert_with(|| error.fault());
            }
        }
    }

    /// Finds out, and writes, what became of them.
    fn settle(&mut self) {
        let now = self.ports.clock.monotonic();
        for killed in &mut self.killed {
            let after_ms = u64::try_from(now.saturating_sub(killed.at).as_millis());
            killed.action.outcome = match killed.handle.has_exited() {
                Ok(true) => Outcome::Ended { after_ms: after_ms.unwrap_or(u64::MAX) },
                _ => {
                    let state = killed.handle.look().map_err(|error| error.kind().absent());
                    Outcome::Survived { state: state.and_then(|info| info.state) }
                }
            };
            if let Err(error) = audit::outcome(self.ports, &killed.target, &killed.action.outcome) {
                self.unwritten.get_or_insert_with(|| error.fault());
            }
        }
    }
}

/// Names a process that SIGKILL has not ended, as what could not be done.
pub fn cannot_end(info: &ProcessInfo) -> String {
    let who = format!("end process {} ({})", info.key.pid, info.name);
    match is_stuck(info) {
        true => format!("{who}, which is frozen or in uninterruptible sleep"),
        false => format!("{who}, which has not exited after SIGKILL"),
    }
}

/// Returns whether a process is in a state that SIGKILL does not end: frozen by a control group or in
/// a wait that cannot be interrupted (both are `D` in `/proc/PID/stat`), or it has ended but for
/// threads that are.
pub fn is_stuck(info: &ProcessInfo) -> bool {
    match info.state {
        Ok(ProcessState::Uninterruptible) => true,
        Ok(ProcessState::Zombie) => info.live_threads.is_ok_and(|threads| threads > 0),
        _ => false,
    }
}
