//! One scan of the processes left of a job: which hold a device, and for which this is unknown.

use crate::leftovers::Tree;
use gpu_core::{
    DeviceFile, Error, Fault, Groups, Job, Pid, ProcessFault, ProcessInfo, ProcessKey, Result,
    Snapshot, is_mps_program, observe_users,
};
use gpu_reaper::is_stuck;
use std::collections::HashSet;

/// The result of one scan.
#[derive(Default)]
pub(crate) struct LeftoverScan {
    /// All processes at the end of the scan.
    pub(crate) members: Vec<ProcessInfo>,
    /// The processes that existed from its start to its end.
    pub(crate) steady: Vec<ProcessKey>,
    /// The processes that have a device open, or are listed on it.
    pub(crate) holders: Vec<ProcessInfo>,
    /// The processes for which it is unknown whether they hold a device.
    pub(crate) hidden: Vec<ProcessInfo>,
    /// The processes with unreadable descriptors that the driver lists on no device.
    pub(crate) unlisted: Vec<ProcessInfo>,
    /// Why that is unknown for the first of them.
    pub(crate) unseen: Option<Fault>,
    /// Processes appeared during the scan and were not inspected.
    pub(crate) still_forking: bool,
}

impl LeftoverScan {
    /// Returns the processes for which the lease must be kept.
    pub(crate) fn remaining(&self) -> Vec<ProcessInfo> {
        if self.still_forking {
            self.members.clone()
        } else {
            self.holders.iter().chain(&self.hidden).cloned().collect()
        }
    }
}

impl Tree<'_> {
    /// Finds all processes and what they hold. If a process passes its device to a fork of itself
    /// during the scan, the result is marked as still forking: it is unknown which devices the fork
    /// holds.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub(crate) fn scan(&self, job: &dyn Job) -> Result<LeftoverScan> {
        let before = self.members(job)?;
        let mut scan = LeftoverScan::default();
        if before.is_empty() {
            return Ok(scan);
        }
        self.inspect(&before, &mut scan);
        scan.members = self.members(job)?;
        let there: HashSet<ProcessKey> = scan.members.iter().map(|member| member.key).collect();
        scan.steady = before.iter().map(|member| member.key).collect();
        scan.still_forking = there.iter().any(|key| !scan.steady.contains(key));
        scan.steady.retain(|key| there.contains(key));
        scan.holders.retain(|holder| there.contains(&holder.key));
        scan.hidden.retain(|hidden| there.contains(&hidden.key));
        scan.unlisted.retain(|unlisted| there.contains(&unlisted.key));
        Ok(scan)
    }

    /// Inspects what each of these processes holds.
    pub(crate) fn inspect(&self, members: &[ProcessInfo], scan: &mut LeftoverScan) {
        let gpu_reaper::Ports { backend, host, clock, .. } = self.ports;
        let snapshot = observe_users(backend, host, clock, Groups::NONE);
        let files = host.device_files();
        let lists_users = self.lists_users(&snapshot);
        let not_permitted = ProcessFault::NotPermitted.into();
        let files = files.and_then(|files| self.leased(files));
        for member in members {
            let held = match &files {
                Ok(files) => self.has_open(member, files),
                Err(error) => Err(error.clone()),
            };
            match held {
                _ if self.is_listed(&snapshot, member.key.pid) => scan.holders.push(member.clone()),
                Ok(true) => scan.holders.push(member.clone()),
                Ok(false) => {}
                Err(error) if lists_users && error.kind() == not_permitted => {
                    scan.unlisted.push(member.clone());
                }
                Err(error) => {
                    scan.unseen.get_or_insert_with(|| unseen(member, &error));
                    scan.hidden.push(member.clone());
                }
            }
        }
    }

    /// Returns the files of the leased devices. A search that includes other files could find one
    /// of those, and hide that the rest could not be read.
    ///
    /// # Errors
    /// `Field` if it is unknown which files they are.
    fn leased(&self, mut files: Vec<DeviceFile>) -> Result<Vec<DeviceFile>> {
        let unknown = self.devices.iter().find_map(|id| Some((id.index, id.node.err()?)));
        if let Some((index, absent)) = unknown.filter(|_| !files.is_empty()) {
            let what = format!("find the device file of GPU {index}");
            return Err(Error::new(absent, what));
        }
        files.retain(|file| self.devices.iter().any(|id| file.opens(id)));
        Ok(files)
    }

    /// Returns whether a process has one of these files open. A process that has ended has none.
    fn has_open(&self, member: &ProcessInfo, files: &[DeviceFile]) -> Result<bool> {
        if files.is_empty() {
            return Ok(false);
        }
        let gone = ProcessFault::Gone.into();
        let held = self.ports.host.open(member.key.pid).and_then(|opened| {
            match opened.info()?.key.definitely_same(&member.key) {
                true => opened.held(files),
                false => Ok(Vec::new()),
            }
        });
        match held {
            Ok(held) => Ok(!held.is_empty()),
            Err(error) if error.kind() == gone => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the driver lists a process on one of the devices.
    fn is_listed(&self, snapshot: &Snapshot, pid: Pid) -> bool {
        let lists = |id| {
            let device = snapshot.device(id);
            let listed = device.iter().flat_map(|device| device.processes.iter().flatten());
            listed.into_iter().any(|process| process.pid == pid)
        };
        snapshot.sees_host_pids != Ok(false) && self.devices.iter().any(lists)
    }

    /// Returns whether the driver's lists name every user of the devices. In another PID namespace
    /// its PIDs are meaningless, and it may list an MPS server instead of the clients.
    fn lists_users(&self, snapshot: &Snapshot) -> bool {
        let is_server = |pid| snapshot.process(pid).is_ok_and(|info| is_mps_program(&info.name));
        let lists = |id| {
            let listed = snapshot.device(id).and_then(|device| device.processes.as_ref().ok());
            listed.is_some_and(|listed| !listed.iter().any(|process| is_server(process.pid)))
        };
        snapshot.sees_host_pids == Ok(true) && self.devices.iter().all(lists)
    }

    /// Returns whether one of these processes lives and is in a state that SIGKILL does not end.
    pub(crate) fn has_stuck(&self, keys: &HashSet<ProcessKey>) -> bool {
        keys.iter().any(|key| self.are_stuck([key]))
    }

    /// Returns whether any of these processes lives, and all that live are in a state that SIGKILL
    /// does not end.
    pub(crate) fn are_stuck<'k>(&self, keys: impl IntoIterator<Item = &'k ProcessKey>) -> bool {
        let state = |key: &ProcessKey| {
            // Without the command line: it may be in memory that cannot be read now.
            let info = self.ports.host.open(key.pid).and_then(|opened| opened.info()).ok()?;
            info.key.definitely_same(key).then(|| is_stuck(&info))
        };
        let states: Vec<bool> = keys.into_iter().filter_map(state).collect();
        !states.is_empty() && states.into_iter().all(|stuck| stuck)
    }
}

fn unseen(member: &ProcessInfo, error: &Error) -> Fault {
    let (pid, name) = (member.key.pid, &member.name);
    let text = format!("check whether process {pid} ({name}) has a device open");
    Fault { kind: error.kind(), text }
}
