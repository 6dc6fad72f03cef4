//! Stops the new processes of a tree, so that they can be inspected.
//!
//! A process that forks and exits every millisecond is gone before its files can be listed. A stop
//! costs one system call per process, and a stopped process neither forks nor exits. The existing
//! tree keeps running.

use super::tree::{entry, listed, listed_below};
use super::{has_ended, moment, pause};
use crate::boot;
use crate::fault;
use crate::handle::raw;
use crate::proc_dir::ProcRoot;
use crate::process::read_known;
use crate::users::Users;
use gpu_core::{Error, ErrorKind, Pid, ProcessKey, Result, SuspendedProcesses};
use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};
use std::collections::HashSet;
use std::time::Duration;

/// The tree is at rest when no new process has appeared for this long.
const QUIET: Duration = Duration::from_millis(50);

const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Stops the processes below this one that are neither `known`, `spared`, nor matched by `is_own`.
/// `kept` is not reaped when it has ended.
///
/// # Errors
/// `Unsupported` if the kernel keeps no lists of children, `Io` when they cannot be read.
pub(crate) fn suspend_new(
    root: &ProcRoot,
    users: &Users,
    is_own: impl Fn(&ProcessKey) -> bool,
    known: &[ProcessKey],
    spared: &[Pid],
    kept: Option<rustix::process::Pid>,
    at_most: Duration,
) -> Result<SuspendedProcesses> {
    let what = "stop the new processes of a job";
    let failed = |errno| match errno {
        Errno::NOENT => Error::new(ErrorKind::Unsupported, what).with_source(errno),
        errno => fault::file(what, errno),
    };
    let booted_at = boot::read(root);
    let own = std::process::id();
    let mut seen: HashSet<u32> = known.iter().map(|key| key.pid.0).collect();
    seen.extend(spared.iter().map(|pid| pid.0));
    let is_own_pid = |pid: &u32| entry(root, *pid).is_ok_and(|entry| is_own(&entry.key));
    seen.extend(listed(root).map_err(failed)?.into_iter().filter(is_own_pid));
    let mut stopped = Vec::new();
    let start = moment();
    let mut last_new = start;
    let still_forking = loop {
        // An orphaned process is a child of this one, and its PID is not reused until this process
        // reaps it: stop it before any check. The kernel lists the newest last, and that may be the
        // only one that has not ended yet.
        for pid in listed(root).map_err(failed)?.into_iter().rev() {
            let Some(number) = raw(pid).filter(|_| !seen.contains(&pid)) else { continue };
            let sent = kill_process(number, Signal::STOP);
            last_new = moment();
            match entry(root, pid) {
                Ok(entry) if entry.has_ended => {
                    if kept == Some(number) {
                        seen.insert(pid);
                    } else {
                        // It has ended, and no other code waits for it.
                        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                        let _ = waitid(WaitId::Pid(number), ended);
                    }
                }
                Ok(entry) => {
                    seen.insert(pid);
                    stopped.extend(sent.is_ok().then_some(entry.key));
                }
                Err(_) => {}
            }
        }
        for below in listed_below(root, own) {
            let pid = below.key.pid.0;
            if below.has_ended || seen.contains(&pid) || is_own(&below.key) {
                continue;
            }
            seen.insert(pid);
            if send(root, &below.key, Signal::STOP) {
                last_new = moment();
                stopped.push(below.key);
            }
        }
        let now = moment();
        if now.saturating_sub(last_new) >= QUIET {
            break false;
        }
        if now.saturating_sub(start) >= at_most {
            break true;
        }
        pause(&mut [], Some(POLL_INTERVAL)).map_err(failed)?;
    };
    let alive = |key: &ProcessKey| {
        let dir = root.process(key.pid.0).ok()?;
        let lives = entry(root, key.pid.0).is_ok_and(|entry| !entry.has_ended);
        read_known(&dir, booted_at, users)
            .ok()
            .filter(|info| lives && info.key.definitely_same(key))
    };
    Ok(SuspendedProcesses { stopped: stopped.iter().filter_map(alive).collect(), still_forking })
}

/// Sends a signal to the process that `key` identifies and to no other that reuses its PID; returns
/// whether it was sent.
pub(crate) fn send(root: &ProcRoot, key: &ProcessKey, signal: Signal) -> bool {
    let Some(number) = raw(key.pid.0) else { return false };
    let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty()) else { return false };
    let same = entry(root, key.pid.0).is_ok_and(|entry| entry.key.definitely_same(key));
    same && has_ended(&pidfd) == Ok(false) && pidfd_send_signal(&pidfd, signal).is_ok()
}
