//! Real processes that represent simulated ones.

use crate::machine::{Event, Machine, Process, When};
use crate::session::Placeholder;
use gpu_core::{Error, ErrorKind, Pid, Reading, Result};
use std::collections::{BTreeMap, BTreeSet};

impl Machine {
    /// Gives simulated processes the PIDs of their placeholders, wherever they are referenced.
    /// Their PIDs in PID namespaces are kept.
    ///
    /// Another simulated process that already has such a PID gets a new one. A process with a
    /// placeholder ends only after its placeholder. Events that would end it, including later
    /// snapshots of a recording, are dropped, and it does not respawn, because the new process
    /// would have no placeholder.
    ///
    /// # Errors
    /// `Invalid` if a simulated or real process is named twice, or if the simulated machine has no
    /// process with this PID.
    pub(crate) fn stand_in(&mut self, placeholders: &[Placeholder]) -> Result<()> {
        let numbers = self.new_numbers(placeholders)?;
        let new = |pid: Pid| numbers.get(&pid).copied().unwrap_or(pid);
        for process in &mut self.processes {
            if placeholders.iter().any(|p| Pid(p.simulated) == process.pid()) {
                process.respawns = None;
            }
            renumber(process, &new);
        }
        self.renumber_accounts(&new);
        let real: BTreeSet<Pid> = placeholders.iter().map(|p| Pid(p.pid)).collect();
        self.viewer.pid = new(self.viewer.pid);
        self.events.retain_mut(|scheduled| {
            if let When::AfterExit(pid, _) = &mut scheduled.when {
                *pid = new(*pid);
            }
            match &mut scheduled.event {
                Event::Start(process) => renumber(process, &new),
                Event::Exit(pid) => {
                    *pid = new(*pid);
                    return !real.contains(pid);
                }
                Event::LetGo(pid, _)
                | Event::Uses(pid, ..)
                | Event::Computes(pid, _)
                | Event::JoinsCgroup(pid, _) => *pid = new(*pid),
                Event::JoinsGroup(pid, group) => (*pid, *group) = (new(*pid), new(*group)),
                Event::Becomes(_) => return false,
                Event::Fails(..) | Event::Reports(..) => {}
            }
            true
        });
        Ok(())
    }

    /// Returns the old and new PID of every renumbered process.
    fn new_numbers(&self, placeholders: &[Placeholder]) -> Result<BTreeMap<Pid, Pid>> {
        let mut numbers = BTreeMap::new();
        let mut real = BTreeSet::new();
        for placeholder in placeholders {
            let (old, new) = (Pid(placeholder.simulated), Pid(placeholder.pid));
            let complain = |what: &str| {
                let what = format!(
                    "use process {new} as placeholder for {old} of '{}': {what}",
                    self.name
                );
                Err(Error::new(ErrorKind::Invalid, what))
            };
            if !self.ever_has().any(|process| process.pid() == old) {
                complain("this machine has no such process")?;
            }
            if new == Pid(0) {
                complain("PIDs start at 1")?;
            }
            if numbers.insert(old, new).is_some() || !real.insert(new) {
                complain("a PID is listed twice")?;
            }
        }
        let taken = self.numbers();
        let last = taken.iter().chain(&real).max().map_or(0, |pid| pid.0);
        let others = taken.intersection(&real).filter(|pid| !numbers.contains_key(pid));
        let others: Vec<Pid> = others.copied().collect();
        numbers.extend(others.into_iter().zip((last.saturating_add(1)..).map(Pid)));
        Ok(numbers)
    }

    /// Returns the initial processes and the processes started by events.
    pub(crate) fn ever_has(&self) -> impl Iterator<Item = &Process> {
        let started = self.events.iter().filter_map(|scheduled| match &scheduled.event {
            Event::Start(process) => Some(&**process),
            _ => None,
        });
        self.processes.iter().chain(started)
    }

    /// Returns all PIDs of processes, including ended ones.
    fn numbers(&self) -> BTreeSet<Pid> {
        let named = |process: &Process| {
            let info = &process.info;
            [Ok(info.key.pid), info.parent, info.group, info.session]
        };
        self.ever_has().flat_map(named).flatten().filter(|pid| pid.0 > 1).collect()
    }
}

fn renumber(process: &mut Process, new: &impl Fn(Pid) -> Pid) {
    let info = &mut process.info;
    info.key.pid = new(info.key.pid);
    let own = |named: &mut Reading<Pid>| *named = named.map(new);
    [&mut info.parent, &mut info.group, &mut info.session].into_iter().for_each(own);
}
