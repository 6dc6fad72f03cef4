//! The PID namespace that a `/proc` shows.

use crate::boot::STAT_LIMIT;
use crate::fault;
use crate::proc_dir::{ProcRoot, number};
use gpu_core::{Error, ErrorKind, Result};
use rustix::io::Errno;
use std::path::Path;

/// Returns whether the PIDs shown here are valid for system calls of this process.
///
/// The `/proc` must be the kernel's own, and of this process's own PID namespace, not of an outer
/// one that is mounted into a container: there the caller's `NSpid` has a number per namespace.
///
/// # Errors
/// When it cannot be read, for example by a process without free descriptors.
pub(crate) fn shows_own_namespace(root: &ProcRoot) -> rustix::io::Result<bool> {
    let own = match root.read("self/status", STAT_LIMIT) {
        // The `/proc` does not show the caller at all.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        own => own?,
    };
    let mut lines = own.split(|byte| *byte == b'\n');
    let pids = lines.find_map(|line| line.strip_prefix(b"NSpid:"));
    let one = pids.and_then(|pids| number(pids.trim_ascii()));
    Ok(root.is_real_proc()? && one == Some(std::process::id()))
}

/// Fails unless the PIDs shown here are valid for system calls of this process; `what` needs that.
///
/// # Errors
/// `Unsupported` if they are those of another PID namespace, `Io` if that cannot be read.
pub(crate) fn require_own_namespace(root: &ProcRoot, path: &Path, what: &str) -> Result<()> {
    let path = path.display();
    root.is_real_proc().map_err(|errno| {
        fault::file(format!("{what}: query the file system type of '{path}' (fstatfs)"), errno)
    })?;
    match shows_own_namespace(root) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let what = format!("{what}: '{path}' belongs to a different PID namespace");
            Err(Error::new(ErrorKind::Unsupported, what))
        }
        Err(errno) => Err(fault::file(format!("{what}: read '{path}/self/status'"), errno)),
    }
}
