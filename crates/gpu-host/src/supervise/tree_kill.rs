//! Kills a tree from its top, through the kernel's own list of this process's children.
//!
//! The PID of a child is not reused until its parent reaps it, and an orphan here becomes a child
//! of this process. So no check is needed before killing a child, and a process that forks and ends
//! is killed as soon as the kernel lists it.

use super::tree::{entry, listed};
use super::{moment, pause};
use crate::boot;
use crate::fault;
use crate::handle::raw;
use crate::proc_dir::ProcRoot;
use crate::process::read_known;
use crate::users::Users;
use gpu_core::{Error, ErrorKind, KilledTree, Pid, ProcessKey, Result};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// If a killed process still exists after this time, it cannot end now, or may not be killed.
const QUIET: Duration = Duration::from_millis(50);

/// A killed process needs a moment of CPU time to end.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// While one child ends, a list may omit another (proc(5)).
const EMPTY_CHILD_LISTS: usize = 2;

/// Kills the children of this process, except `spared` and those that match `is_own`, until there
/// are none, or no new one has appeared for a while, or time runs out. `kept` is not reaped when it
/// has ended.
///
/// # Errors
/// `Unsupported` if the kernel keeps no lists of children, `Io` when they cannot be read.
pub(crate) fn kill_tree(
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
    let booted_at = boot::read(root);
    let own = |pid: &u32| entry(root, *pid).is_ok_and(|entry| is_own(&entry.key));
    let mut passed_over: HashSet<u32> = spared.iter().map(|pid| pid.0).collect();
    passed_over.extend(listed(root).map_err(failed)?.into_iter().filter(own));
    let (start, mut killed_tree) = (moment(), KilledTree::default());
    let (mut killed, mut last_new, mut empty) = (HashMap::new(), start, 0);
    loop {
        let mut children = listed(root).map_err(failed)?;
        children.retain(|pid| !passed_over.contains(pid));
        let now = moment();
        empty = if children.is_empty() { empty + 1 } else { 0 };
        if empty == EMPTY_CHILD_LISTS {
            killed_tree.none_left = true;
            return Ok(killed_tree);
        }
        let mut is_new = false;
        for pid in &children {
            let Some(number) = raw(*pid) else { continue };
            // A process that may not be killed is still there at the end.
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
                killed_tree.killed.push((info, moment().saturating_sub(*at)));
            }
            killed.remove(&pid);
            if kept == Some(number) {
                passed_over.insert(pid);
            } else {
                // It has ended, and no other code waits for it.
                let _ = waitid(WaitId::Pid(number), ended);
            }
        }
        if is_new {
            last_new = now;
        } else if empty == 0 {
            pause(&mut [], Some(POLL_INTERVAL)).map_err(failed)?;
        }
        if now.saturating_sub(start) >= at_most || now.saturating_sub(last_new) >= QUIET {
            return Ok(killed_tree);
        }
    }
}
