//! The end of a tree from its top: by the kernel's own list of this process's children.
//!
//! A child's number is its own until its parent waits for it, and who loses its parent here becomes
//! a child of this process. So nothing has to be found out of anybody before it is killed, and what
//! forks and ends is killed as soon as the kernel lists it.

use super::tree::{children_of, place};
use super::{moment, pause};
use crate::fault;
use crate::host;
use crate::proc_dir::ProcRoot;
use crate::process::{booted_at, read_known};
use crate::users::Users;
use gpu_core::{Error, ErrorKind, KilledTree, Pid, ProcessKey, Result};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Who was killed and is still there after so long cannot end now, or may not be killed.
const QUIET: Duration = Duration::from_millis(50);

/// Who was killed needs a moment on a processor to end.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// While one child ends, a list may leave out another (proc(5)).
const EMPTY_CHILD_LISTS: usize = 2;

/// Kills the children of this process, but `spared` and those that `is_own` names, until there are
/// none, or nobody new has come for a while, or the time is over. `kept` is not waited for when it
/// has ended.
///
/// # Errors
/// `Unsupported` where the kernel keeps no lists of children, `Io` when they cannot be read.
pub(crate) fn fell(
    root: &ProcRoot,
    users: &Users,
    is_own: impl Fn(&ProcessKey) -> bool,
    kept: Option<rustix::process::Pid>,
    spared: &[Pid],
    at_most: Duration,
) -> Result<KilledTree> {
    let what = "kill a job by its child list";
    let failed = |errno| match errno {
        Errno::NOENT => Error::new(ErrorKind::Unsupported, what).with_source(errno),
        errno => fault::file(what, errno),
    };
    let text = root.read("stat", host::STAT_LIMIT).map_err(fault::absent);
    let booted_at = text.and_then(|text| booted_at(&text));
    let own = |pid: &u32| place(root, *pid).is_ok_and(|place| is_own(&place.key));
    let mut passed_over: HashSet<u32> = spared.iter().map(|pid| pid.0).collect();
    passed_over.extend(listed(root).map_err(failed)?.into_iter().filter(own));
    let (start, mut felled) = (moment(), KilledTree::default());
    let (mut killed, mut last_new, mut empty) = (HashMap::new(), start, 0);
    loop {
        let mut children = listed(root).map_err(failed)?;
        children.retain(|pid| !passed_over.contains(pid));
        let now = moment();
        empty = if children.is_empty() { empty + 1 } else { 0 };
        if empty == EMPTY_CHILD_LISTS {
            felled.none_left = true;
            return Ok(felled);
        }
        let mut is_new = false;
        for pid in &children {
            let Some(number) = raw(*pid) else { continue };
            // Who may not be killed is still there at the end.
            let _ = kill_process(number, Signal::KILL);
            is_new |= *killed.entry(*pid).or_insert(now) == now;
        }
        for pid in children {
            let Some(number) = raw(pid) else { continue };
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let status = waitid(WaitId::Pid(number), ended | WaitIdOptions::NOWAIT);
            let Ok(Some(status)) = status else { continue };
            if status.terminating_signal() == Some(Signal::KILL.as_raw())
                && let Some(at) = killed.get(&pid)
                && let Ok(info) =
                    root.process(pid).and_then(|dir| read_known(&dir, booted_at, users))
            {
                felled.killed.push((info, moment().saturating_sub(*at)));
            }
            killed.remove(&pid);
            if kept == Some(number) {
                passed_over.insert(pid);
            } else {
                // It has ended, and nobody else waits for it.
                let _ = waitid(WaitId::Pid(number), ended);
            }
        }
        if is_new {
            last_new = now;
        } else if empty == 0 {
            pause(&mut [], Some(POLL_INTERVAL)).map_err(failed)?;
        }
        if now.saturating_sub(start) >= at_most || now.saturating_sub(last_new) >= QUIET {
            return Ok(felled);
        }
    }
}

/// Returns a process number as the kernel takes it.
pub(super) fn raw(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
}

/// Returns the numbers of the children of all threads of this process.
pub(super) fn listed(root: &ProcRoot) -> rustix::io::Result<Vec<u32>> {
    let dir = root.process(std::process::id())?;
    let mut children = Vec::new();
    for thread in dir.threads()? {
        children.extend(children_of(&dir, thread)?);
    }
    Ok(children)
}
