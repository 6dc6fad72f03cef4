//! Ownership by descent: a process belongs to a lease if it descends from the lease's root.
//!
//! Environment variables and open files do not count, because both can be copied. The root counts
//! only if it is a process of the user who owns the lease file. Otherwise a user could claim
//! another user's processes by naming one of their ancestors.
//!
//! In its own PID namespace a caller does not see its ancestors outside. There, one open file
//! counts: the file that keeps the lease, which a job inherits. Only a process of the job can pass
//! it on, and only processes of the lease's own user benefit, who could write the same into a lease
//! file anyway. Without this exception a job would wait for its own devices forever.

use gpu_core::{
    DeviceUuid, Host, LeaseEntry, Pid, ProcessInfo, ProcessKey, Result, Snapshot, line_of,
};

/// Returns a process and its ancestors, nearest first, as far as the snapshot contains them.
pub(crate) fn line(snapshot: &Snapshot, pid: Pid) -> impl Iterator<Item = &ProcessInfo> {
    let info = |pid: Pid| snapshot.process(pid).ok().filter(|_| sees_all(snapshot));
    line_of(info(pid), info)
}

/// Returns whether the driver's PIDs are valid in this PID namespace.
fn sees_all(snapshot: &Snapshot) -> bool {
    snapshot.sees_host_pids != Ok(false)
}

/// Returns whether a process is `root` or descends from it.
pub fn descends(snapshot: &Snapshot, pid: Pid, root: &ProcessKey) -> bool {
    line(snapshot, pid).any(|info| info.key.definitely_same(root))
}

/// Returns whether a process is the root of an entry and belongs to its user.
pub(crate) fn is_root_of(info: &ProcessInfo, entry: &LeaseEntry) -> bool {
    // Every process descends from PID 1.
    let is_first = info.key.pid.0 == 1;
    !is_first && info.key.definitely_same(&entry.root) && info.uid == Ok(entry.owner)
}

/// Returns the lease under which a process uses a device: the nearest above it that has the device.
pub(crate) fn lease_of<'e>(
    snapshot: &Snapshot,
    pid: Pid,
    device: &DeviceUuid,
    leases: &'e [LeaseEntry],
) -> Option<&'e LeaseEntry> {
    line(snapshot, pid).find_map(|info| {
        let rooted = leases.iter().filter(|entry| is_root_of(info, entry));
        let with_device = rooted.filter(|entry| entry.devices.contains(device));
        with_device.max_by_key(|entry| (entry.ticket, &entry.id))
    })
}

/// Returns the lease that the caller is within: the lease of its nearest ancestor that is a root,
/// and the youngest if there are several with this root.
///
/// # Errors
/// If the caller's own ancestors cannot be read.
pub fn own_lease(
    host: &dyn Host,
    leases: &[LeaseEntry],
    asking_for: Option<&ProcessKey>,
) -> Result<Option<LeaseEntry>> {
    if leases.is_empty() {
        return Ok(None);
    }
    for key in host.own_ancestry()? {
        if !leases.iter().any(|entry| entry.root.definitely_same(&key)) {
            continue;
        }
        let root = host.process(key.pid)?;
        // Two leases of one process are independent of each other.
        let is_independent =
            |entry: &&LeaseEntry| asking_for.is_some_and(|key| key.definitely_same(&entry.root));
        let rooted =
            leases.iter().filter(|entry| is_root_of(&root, entry) && !is_independent(entry));
        if let Some(youngest) = rooted.max_by_key(|entry| (entry.ticket, &entry.id)) {
            return Ok(Some(youngest.clone()));
        }
    }
    Ok(given_lease(host, leases, asking_for))
}

/// Returns the youngest lease whose file the caller inherited: within a lease that was taken out of
/// another, it has both files.
fn given_lease(
    host: &dyn Host,
    leases: &[LeaseEntry],
    asking_for: Option<&ProcessKey>,
) -> Option<LeaseEntry> {
    let given = host.inherited_leases();
    let is_independent =
        |entry: &LeaseEntry| asking_for.is_some_and(|key| key.definitely_same(&entry.root));
    let is_given = |entry: &&LeaseEntry| {
        given.contains(&(entry.id.clone(), entry.owner)) && !is_independent(entry)
    };
    let youngest = leases.iter().filter(is_given).max_by_key(|entry| (entry.ticket, &entry.id));
    youngest.cloned()
}
