//! Processes that `/proc` hides from callers that may not trace them (`hidepid`, proc(5)).
//!
//! A hidden process still exists: the kernel opens it by PID, and lists it among the children of
//! its parent.

use crate::handle::{has_ended, raw};
use crate::namespace::shows_own_namespace;
use crate::proc_dir::ProcRoot;
use crate::process;
use crate::supervise::children_of;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::path::Path;

/// Returns whether the mounted `/proc` hides processes from the caller.
///
/// The first process of a PID namespace always exists, so if it is not visible, others are hidden
/// too.
pub fn hides_processes(proc: &Path) -> bool {
    let Ok(root) = ProcRoot::open(proc) else { return false };
    match root.process(1).and_then(|dir| process::read_key(&dir)) {
        Ok(_) => false,
        Err(errno) => root.is_real_proc() == Ok(true) && may_hide(errno),
    }
}

/// Returns whether a process that could not be read, with this error, is hidden rather than gone.
pub(crate) fn hides(root: &ProcRoot, pid: u32, errno: Errno) -> bool {
    let lives = || {
        let pidfd = pidfd_open(raw(pid)?, PidfdFlags::empty()).ok()?;
        has_ended(&pidfd).ok().map(|ended| !ended)
    };
    may_hide(errno) && shows_own_namespace(root) == Ok(true) && lives() == Some(true)
}

/// Returns the parent of a hidden process; `None` if the parent is hidden too, or the kernel keeps
/// no lists of children.
pub(crate) fn parent(root: &ProcRoot, pid: u32) -> Option<u32> {
    let has = |other: &u32| {
        let Ok(dir) = root.process(*other) else { return false };
        let mut threads = dir.threads().unwrap_or_default().into_iter();
        threads.any(|thread| children_of(&dir, thread).unwrap_or_default().contains(&pid))
    };
    root.pids().ok()?.into_iter().find(has)
}

/// The error of `/proc` for a hidden process: not found (`hidepid=2`), or not permitted
/// (`hidepid=1`).
fn may_hide(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM)
}
