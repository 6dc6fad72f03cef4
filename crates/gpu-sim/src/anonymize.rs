//! Removes data from a snapshot that reveals who works on the machine, and on what.

use gpu_core::{
    Absent, FIRST_USER, LeaseEntry, LeaseId, MergedLeases, Process, ProcessInfo, Snapshot,
    SystemService,
};
use std::collections::BTreeMap;

/// The base of the UIDs that replace those of users: `anon-1` gets 4000000001. No account has these
/// UIDs: [systemd](https://systemd.io/UIDS-GIDS/) marks UIDs above 2147483647 as unusable.
const NUMBERED: u32 = 4_000_000_000;

/// Removes process names, command lines and the hostname, and replaces users, cgroups and the names
/// of containers, pods and jobs with numbers.
///
/// The numbers are the same in every snapshot that one anonymizer processes, so related processes
/// stay recognisable. The first user is named `anon-1` and gets a UID that no account has, so it is
/// not mistaken for a real user. The names of display servers and of the driver's daemons are kept,
/// as are system UIDs, PIDs, times, devices, memory and the text of the driver's messages.
#[derive(Clone, Debug, Default)]
pub struct Anonymizer {
    uids: BTreeMap<u32, u32>,
    names: BTreeMap<String, usize>,
}

impl Anonymizer {
    /// Returns the anonymized snapshot.
    pub fn anonymize(&mut self, snapshot: &Snapshot) -> Snapshot {
        let mut snapshot = snapshot.clone();
        snapshot.hostname = Err(Absent::NotRecorded);
        for device in &mut snapshot.devices {
            for process in device.processes.iter_mut().flatten() {
                process.name = Err(Absent::NotRecorded);
            }
        }
        for unread in &mut snapshot.unread {
            (unread.name, unread.user) = (Err(Absent::NotRecorded), Err(Absent::NotRecorded));
        }
        for message in snapshot.driver_messages.iter_mut().flatten() {
            message.process = None;
        }
        for info in snapshot.processes.values_mut().filter_map(Process::info_mut) {
            self.process(info);
        }
        snapshot
    }

    /// Returns leases without their commands, and with numbers in place of their owners.
    pub fn leases(&mut self, leases: &[LeaseEntry]) -> Vec<LeaseEntry> {
        let mut leases = leases.to_vec();
        for lease in &mut leases {
            lease.command = "command".to_owned();
            let owner = lease.owner;
            lease.owner = self.uid(owner);
            // The ID of merged leases ends with their owner.
            let kind = lease.id.as_str().strip_suffix(&owner.to_string());
            let kind = kind.filter(|_| lease.merged.is_some());
            if let Some(id) = kind.and_then(|id| LeaseId::parse(&format!("{id}{}", lease.owner))) {
                lease.id = id;
            }
            for outer in &mut lease.within {
                outer.owner = self.uid(outer.owner);
            }
        }
        leases
    }

    fn uid(&mut self, uid: u32) -> u32 {
        let next =
            u32::try_from(self.uids.len() + 1).map_or(u32::MAX, |n| NUMBERED.saturating_add(n));
        match uid {
            // System UIDs are kept.
            uid if uid < FIRST_USER || uid == MergedLeases::SEVERAL_USERS => uid,
            uid => *self.uids.entry(uid).or_insert(next),
        }
    }

    fn process(&mut self, info: &mut ProcessInfo) {
        // Service names are not private, and the role of a holder depends on them.
        if SystemService::named(&info.name).is_none() {
            info.name = "process".to_owned();
        }
        info.command_line = Err(Absent::NotRecorded);
        info.executable = Err(Absent::NotRecorded);
        info.uid = info.uid.map(|uid| self.uid(uid));
        let number = info.uid.ok().and_then(|uid| uid.checked_sub(NUMBERED));
        info.user = number.map(|number| format!("anon-{number}")).ok_or(Absent::NotRecorded);
        info.cgroup =
            info.cgroup.as_ref().map_err(|a| *a).map(|name| self.number("/cgroup-", name));
        info.pod = None;
        if let Some(workload) = &mut info.workload {
            workload.id = self.number("workload-", &workload.id);
            workload.cgroup = self.number("/cgroup-", &workload.cgroup);
        }
    }

    fn number(&mut self, kind: &str, name: &str) -> String {
        let next = self.names.len() + 1;
        let number = self.names.entry(format!("{kind}{name}")).or_insert(next);
        format!("{kind}{number}")
    }
}
