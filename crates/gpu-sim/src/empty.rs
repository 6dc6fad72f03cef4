//! A machine without devices and processes.

use crate::file::ViewerEntry;
use crate::machine::{Machine, Viewer};
use crate::process_entry;
use gpu_core::{Absent, Driver, Pid, Timestamp, Unreadable};
use std::collections::BTreeMap;

/// The driver's message for a refused reset, if no recording has one.
pub(crate) const IN_USE: &str = "a process has the device open";

/// Returns an empty machine.
pub(crate) fn empty(name: &str) -> Machine {
    Machine {
        name: name.to_owned(),
        description: String::new(),
        clock: Timestamp(0),
        booted: Timestamp(0),
        hostname: Err(Absent::NotRecorded),
        driver: Ok(Driver { version: Err(Absent::NotRecorded), cuda: Err(Absent::NotRecorded) }),
        viewer: viewer(Default::default(), &BTreeMap::new()),
        sees_host_pids: Ok(true),
        devices: Vec::new(),
        cards: Default::default(),
        host_memory: BTreeMap::new(),
        files: Vec::new(),
        holders_fault: None,
        topology: Err(Absent::NotRecorded),
        processes: Vec::new(),
        unreadable: Unreadable::default(),
        driver_messages: Ok(Vec::new()),
        events: Vec::new(),
        reset_refusal: IN_USE.to_owned(),
        recordings: BTreeMap::new(),
    }
}

/// Returns the viewer; unnamed users are looked up in `users`.
pub(crate) fn viewer(entry: ViewerEntry, users: &BTreeMap<String, u32>) -> Viewer {
    let uid = entry.uid.unwrap_or(0);
    let named = users.iter().find(|(_, known)| **known == uid).map(|(name, _)| name.clone());
    Viewer {
        uid,
        user: entry.user.or(named).unwrap_or_else(|| process_entry::user_name(uid)),
        privileged: entry.privileged.unwrap_or(uid == 0),
        namespace: entry.namespace,
        pid: Pid(0),
    }
}
