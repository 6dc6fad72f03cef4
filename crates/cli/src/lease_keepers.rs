//! Who keeps a lease alive, asked of this machine: leases are real in a session too.

use crate::source::roots;
use gpu_core::{DeviceFile, LeaseEntry, ProcessInfo, Result};
use gpu_host::{FileLeaseStore, LinuxHost, resolve};
use gpu_steward::LeaseKeepers;
use rustix::process::geteuid;

/// Finds those of each of these leases that are the caller's.
///
/// # Errors
/// When the leases or the processes cannot be listed.
pub(crate) fn of(leases: &[LeaseEntry], locks: &FileLeaseStore) -> Result<Vec<LeaseKeepers>> {
    let caller = geteuid().as_raw();
    let files = leases.iter().zip(locks.files(leases)?).map(|(entry, paths)| {
        // One that is gone by now is kept by nobody.
        let is_there =
            |path: &&std::path::PathBuf| entry.owner == caller && path.try_exists().unwrap_or(true);
        let files = paths.iter().filter(is_there).map(resolve).collect::<Result<_>>()?;
        Ok((entry, files))
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    LeaseKeepers::of(&files, program().as_ref(), caller, &LinuxHost::new(roots()))
}

/// Tells whether a process is the supervisor of a run.
pub(crate) fn is_supervisor(process: &ProcessInfo, leases: &[LeaseEntry]) -> bool {
    let host = LinuxHost::new(roots());
    gpu_steward::is_supervisor(process, leases, program().as_ref(), &host)
}

/// A link of /proc, followed: the file itself, also where its name is another's by now.
fn program() -> Option<DeviceFile> {
    resolve("/proc/self/exe").ok()
}
