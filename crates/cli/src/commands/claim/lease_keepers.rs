//! The processes that keep a lease alive. They are always real, also in a simulation session.

use crate::source::roots;
use gpu_core::{DeviceFile, LeaseEntry, ProcessInfo, Result};
use gpu_host::{FileLeaseStore, LinuxHost, resolve};
use gpu_steward::LeaseKeepers;
use rustix::process::geteuid;

/// Finds the processes of the caller that keep each of these leases alive.
///
/// # Errors
/// When the leases or the processes cannot be listed.
pub(crate) fn of(leases: &[LeaseEntry], locks: &FileLeaseStore) -> Result<Vec<LeaseKeepers>> {
    let caller = geteuid().as_raw();
    let files = leases.iter().zip(locks.files(leases)?).map(|(entry, paths)| {
        // No process keeps a lease whose file is gone.
        let is_there =
            |path: &&std::path::PathBuf| entry.owner == caller && path.try_exists().unwrap_or(true);
        let files = paths.iter().filter(is_there).map(resolve).collect::<Result<_>>()?;
        Ok((entry, files))
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    LeaseKeepers::of(&files, program().as_ref(), caller, &LinuxHost::new(roots()))
}

/// Returns whether a process is the supervisor of a run.
pub(crate) fn is_supervisor(process: &ProcessInfo, leases: &[LeaseEntry]) -> bool {
    let host = LinuxHost::new(roots());
    gpu_steward::is_supervisor(process, leases, program().as_ref(), &host)
}

/// Returns the file of this program. The link in `/proc` leads to it even after it was replaced.
fn program() -> Option<DeviceFile> {
    resolve("/proc/self/exe").ok()
}
