//! The members of a job.

use super::tree::{ProcessTree, listed, listed_below, reap, settled_below};
use crate::boot;
use crate::fault;
use crate::proc_dir::ProcRoot;
use crate::process::{TreeEntry, read_known};
use crate::users::Users;
use gpu_core::{Absent, ProcessInfo, ProcessKey, Reading, Result, Timestamp};
use rustix::io::Errno;
use std::collections::HashSet;

/// The maximum number of reads of the descendants, until the kernel's list of children has no new
/// one.
const READINGS: usize = 2;

/// Returns the live descendants of this process, without its own children. Processes hidden from
/// the caller (`hidepid`, proc(5)) are missed. `kept` is not reaped when it has ended.
///
/// # Errors
/// `Io` when the list of processes cannot be read completely.
pub(crate) fn members(
    root: &ProcRoot,
    users: &Users,
    is_own: impl Fn(&ProcessKey) -> bool,
    kept: Option<rustix::process::Pid>,
) -> Result<Vec<ProcessInfo>> {
    let list = || listed(root).unwrap_or_default();
    let mut reading = 0;
    loop {
        reading += 1;
        // A process that forks and exits every millisecond leaves a zombie each time, and each
        // makes the next reading longer.
        let _ = reap(root, &is_own, kept);
        let known: HashSet<u32> = list().into_iter().collect();
        let mut members = read(root, users, &is_own)?;
        // Such a process can be missed every time. But then this process has a child, dead or
        // alive, that did not exist before.
        let is_member =
            |pid: u32, members: &[ProcessInfo]| members.iter().any(|one| one.key.pid.0 == pid);
        let mut missed = list();
        missed.retain(|pid| !known.contains(pid) && !is_member(*pid, &members));
        if missed.is_empty() {
            return Ok(members);
        }
        if reading == READINGS {
            // They start and end faster than all processes can be read: report the newest as an
            // example.
            let read = |pid| root.process(pid).and_then(|dir| read_known(&dir, UNKNOWN, users));
            let mut infos = missed.into_iter().rev().filter_map(|pid| read(pid).ok());
            members.extend(infos.find(|info| !is_own(&info.key)));
            return Ok(members);
        }
    }
}

/// The boot time does not matter for a process that has ended.
const UNKNOWN: Reading<Timestamp> = Err(Absent::NotRecorded);

fn read(
    root: &ProcRoot,
    users: &Users,
    is_own: impl Fn(&ProcessKey) -> bool,
) -> Result<Vec<ProcessInfo>> {
    let failed = |errno| fault::file("list remaining job processes", errno);
    let own = std::process::id();
    let booted_at = boot::read(root);
    let mut members = Vec::new();
    let below = match settled_below(root, own) {
        Some(below) => below,
        None => all_below(root, own).map_err(failed)?,
    };
    for entry in below {
        if entry.has_ended || is_own(&entry.key) {
            continue;
        }
        let info = root.process(entry.key.pid.0).and_then(|dir| read_known(&dir, booted_at, users));
        match info {
            Ok(info) if info.key == entry.key => members.push(info),
            Ok(_) | Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    members.sort_unstable_by_key(|member| member.key.pid);
    Ok(members)
}

/// Returns the descendants from a read of all processes, plus those that are only in the lists.
/// This is used if the kernel keeps no lists, or the tree changes too fast for them.
fn all_below(root: &ProcRoot, own: u32) -> rustix::io::Result<Vec<TreeEntry>> {
    let tree = ProcessTree::settled(root, own)?;
    let mut below: Vec<_> = tree.below(own).into_iter().cloned().collect();
    let known: HashSet<_> = below.iter().map(|entry| entry.key).collect();
    below.extend(listed_below(root, own).into_iter().filter(|entry| !known.contains(&entry.key)));
    Ok(below)
}
