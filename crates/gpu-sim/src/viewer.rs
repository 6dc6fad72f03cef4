//! The viewer: its own processes, what it can see, and what it may do.

use crate::cards::Cards;
use crate::machine::Process;
use crate::process_entry::complete;
use crate::process_table::{Living, Serial};
use crate::state::State;
use gpu_core::{
    Absent, Error, Pid, ProcessFault, ProcessInfo, ProcessKey, ProcessState, Result, Timestamp,
};
use std::collections::BTreeMap;

impl State {
    /// Adds processes that every machine has and that need no description: the first process, the
    /// viewer's shell, and the viewer's own process.
    pub(crate) fn settle_in(&mut self) {
        let (uid, clock) = (self.machine.viewer.uid, self.machine.clock);
        if self.find_on_host(Pid(1)).is_none() {
            self.add(ProcessInfo::from_name(Pid(1), "systemd"), 0, Pid(0), self.machine.booted);
        }
        let login = Timestamp(clock.0.saturating_sub(60_000));
        let shell = self.free_pid(Pid(301));
        self.add(ProcessInfo::from_name(shell, "bash"), uid, Pid(1), login);
        let own = self.free_pid(shell);
        self.add(ProcessInfo::from_name(own, "gpuws"), uid, shell, clock);
        self.machine.viewer.pid = own;
    }

    fn add(&mut self, mut info: ProcessInfo, uid: u32, parent: Pid, started: Timestamp) {
        info.uid = Ok(uid);
        info.parent = Ok(parent);
        info.started_at = Ok(started);
        let mut process = Process::new(info);
        if process.pid() != Pid(1) {
            let name = self.machine.viewer.namespace.clone();
            process.namespace = name.map(|name| (name, self.free_inner_pid()));
        }
        let users = BTreeMap::from([(self.machine.viewer.user.clone(), self.machine.viewer.uid)]);
        let (clock, booted) = (self.machine.clock, self.machine.booted);
        complete(&mut process, (&[], &Cards::default()), &users, clock, booted);
        self.spawn_process(process);
    }

    /// Returns the first free host PID, starting at `from`.
    pub(crate) fn free_pid(&self, from: Pid) -> Pid {
        let mut pid = from;
        while self.find_on_host(pid).is_some() {
            pid = Pid(pid.0.wrapping_add(1));
        }
        pid
    }

    /// Returns the lowest free PID in the viewer's namespace.
    fn free_inner_pid(&self) -> Pid {
        let taken = self.seen();
        let mut pid = Pid(1);
        while taken.contains_key(&pid) {
            pid = Pid(pid.0.wrapping_add(1));
        }
        pid
    }

    /// Returns the viewer's own process and its ancestors, nearest first.
    pub(crate) fn own_ancestry(&self) -> Vec<Serial> {
        let mut line = Vec::new();
        let mut next = self.find_on_host(self.machine.viewer.pid);
        while let Some(serial) = next.filter(|serial| !line.contains(serial)) {
            line.push(serial);
            let parent = self.living.get(serial).and_then(|l| l.process.info.parent.ok());
            next = parent.and_then(|parent| self.find_on_host(parent));
        }
        line
    }

    /// Returns the PID of a process in the viewer's namespace; `None` if the viewer cannot see it.
    pub(crate) fn seen_as(&self, process: &Process) -> Option<Pid> {
        if process.hidden == Some(Absent::NotFound) {
            return None;
        }
        match (&self.machine.viewer.namespace, &process.namespace) {
            (None, _) => Some(process.pid()),
            (Some(own), Some((namespace, pid))) if own == namespace => Some(*pid),
            _ => None,
        }
    }

    /// Returns every process visible to the viewer, by its PID in the viewer's namespace.
    pub(crate) fn seen(&self) -> BTreeMap<Pid, (Serial, &Living)> {
        let living = self.living.iter();
        living
            .filter_map(|(serial, living)| Some((self.seen_as(&living.process)?, (serial, living))))
            .collect()
    }

    /// Returns the process that has this PID in the viewer's namespace.
    ///
    /// # Errors
    /// `Process(Gone)` if there is no such process.
    pub(crate) fn seen_by_pid(&self, pid: Pid) -> Result<Serial> {
        let found = match &self.machine.viewer.namespace {
            None => self.find_on_host(pid),
            Some(_) => {
                let mut living = self.living.iter();
                let found = living.find(|(_, living)| self.seen_as(&living.process) == Some(pid));
                found.map(|(serial, _)| serial)
            }
        };
        found.ok_or_else(|| Error::new(ProcessFault::Gone, format!("find process {pid}")))
    }

    /// Returns whether the viewer may see the files of a process and signal it.
    pub(crate) fn may_access(&self, process: &Process) -> bool {
        let viewer = &self.machine.viewer;
        viewer.privileged || process.info.uid == Ok(viewer.uid)
    }

    /// Returns the information that the viewer currently sees of a process.
    ///
    /// # Errors
    /// `Process(NotPermitted)` if the recording could not read it.
    pub(crate) fn info(&self, living: &Living) -> Result<ProcessInfo> {
        let process = &living.process;
        if let Some(absent) = process.hidden {
            let what = format!("inspect process {}", process.pid());
            return Err(match absent {
                Absent::NotPermitted => Error::new(ProcessFault::NotPermitted, what),
                Absent::NotFound => Error::new(ProcessFault::Gone, what),
                other => Error::new(other, what),
            });
        }
        let mut info = process.info.clone();
        info.key = self.key(process);
        info.parent = info.parent.map(|pid| self.pid_seen_as(pid));
        info.group = info.group.map(|pid| self.pid_seen_as(pid));
        info.session = info.session.map(|pid| self.pid_seen_as(pid));
        info.state = info.state.map(|state| self.state_of(process, state));
        info.cpu_time = living.cpu_time(self.now);
        if info.namespace_pids.is_err() {
            info.namespace_pids = Ok(self.namespace_pids(process));
        }
        Ok(info)
    }

    fn namespace_pids(&self, process: &Process) -> Vec<Pid> {
        match (&self.machine.viewer.namespace, &process.namespace) {
            (None, Some((_, inner))) => vec![process.pid(), *inner],
            (Some(_), Some((_, inner))) => vec![*inner],
            (_, None) => vec![process.pid()],
        }
    }

    /// Returns the key by which the viewer identifies a process.
    pub(crate) fn key(&self, process: &Process) -> ProcessKey {
        let pid = self.seen_as(process).unwrap_or(process.pid());
        ProcessKey { pid, start: process.info.key.start }
    }

    /// Converts a host PID to the viewer's namespace: 0, as on Linux, for a process outside it.
    fn pid_seen_as(&self, pid: Pid) -> Pid {
        if self.machine.viewer.namespace.is_none() {
            return pid;
        }
        let process = self.find_on_host(pid).and_then(|serial| self.living.get(serial));
        process.and_then(|living| self.seen_as(&living.process)).unwrap_or(Pid(0))
    }

    fn state_of(&self, process: &Process, stated: ProcessState) -> ProcessState {
        use crate::machine::Reaction::Stuck;
        match (stated, process.on_kill) {
            (ProcessState::Zombie, _) => ProcessState::Zombie,
            (_, Stuck(until)) if until.is_none_or(|until| self.now < until) => {
                ProcessState::Uninterruptible
            }
            (ProcessState::Sleeping, _) if process.cpu_percent > 0 => ProcessState::Running,
            (ProcessState::Uninterruptible, Stuck(_)) => ProcessState::Sleeping,
            (stated, _) => stated,
        }
    }
}
