//! Whom a process belongs to: it is of a lease when it descends from the lease's root.
//!
//! No environment variable and no open file is believed, since both can be copied. The root itself
//! is believed when it is a process of the user who owns the lease's file, so that nobody makes a
//! stranger's processes his own by naming one of their ancestors.
//!
//! In a PID namespace of its own a caller does not see its ancestors outside, and there one open file
//! is believed: the one that keeps the lease, which a job inherits. It can be handed on, but only by
//! somebody of the job, and only those of the lease's own user gain by it, who could write the same
//! into an entry. Not to believe it is to let a job wait for its own devices for ever.

use gpu_core::{DeviceUuid, Entry, Host, Pid, ProcessInfo, ProcessKey, Result, Snapshot, line_of};

/// Returns a process and its ancestors, nearest first, as far as the look tells of them.
pub(crate) fn line(snapshot: &Snapshot, pid: Pid) -> impl Iterator<Item = &ProcessInfo> {
    let info = |pid: Pid| snapshot.process(pid).ok().filter(|_| sees_all(snapshot));
    line_of(info(pid), info)
}

/// Returns whether the driver's numbers name processes here.
fn sees_all(snapshot: &Snapshot) -> bool {
    snapshot.sees_host_pids != Ok(false)
}

/// Returns whether a process is `root` or descends from it.
pub fn descends(snapshot: &Snapshot, pid: Pid, root: &ProcessKey) -> bool {
    line(snapshot, pid).any(|info| info.key.definitely_same(root))
}

/// Returns whether a process is the root of an entry, and rightly so.
pub(crate) fn is_root_of(info: &ProcessInfo, entry: &Entry) -> bool {
    // From the first process everybody descends.
    let is_first = info.key.pid.0 == 1;
    !is_first && info.key.definitely_same(&entry.root) && info.uid == Ok(entry.owner)
}

/// Returns the lease that a process uses a device under: the nearest above it that has the device.
pub(crate) fn lease_of<'e>(
    snapshot: &Snapshot,
    pid: Pid,
    device: &DeviceUuid,
    leases: &'e [Entry],
) -> Option<&'e Entry> {
    line(snapshot, pid).find_map(|info| {
        let rooted = leases.iter().filter(|entry| is_root_of(info, entry));
        let with_device = rooted.filter(|entry| entry.devices.contains(device));
        with_device.max_by_key(|entry| (entry.ticket, &entry.id))
    })
}

/// Returns the lease that the caller is within: the nearest of its ancestors that is the root of
/// one, and of several with that root the youngest.
///
/// # Errors
/// When the own line cannot be read.
pub fn own_lease(
    host: &dyn Host,
    leases: &[Entry],
    asking_for: Option<&ProcessKey>,
) -> Result<Option<Entry>> {
    if leases.is_empty() {
        return Ok(None);
    }
    for key in host.own_ancestry()? {
        if !leases.iter().any(|entry| entry.root.definitely_same(&key)) {
            continue;
        }
        let root = host.process(key.pid)?;
        // Two leases of one process lie beside each other.
        let beside =
            |entry: &&Entry| asking_for.is_some_and(|key| key.definitely_same(&entry.root));
        let rooted = leases.iter().filter(|entry| is_root_of(&root, entry) && !beside(entry));
        if let Some(youngest) = rooted.max_by_key(|entry| (entry.ticket, &entry.id)) {
            return Ok(Some(youngest.clone()));
        }
    }
    Ok(given_lease(host, leases, asking_for))
}

/// Returns the youngest of the leases that the caller was given the file of: within a lease that was
/// taken out of another it has both.
fn given_lease(
    host: &dyn Host,
    leases: &[Entry],
    asking_for: Option<&ProcessKey>,
) -> Option<Entry> {
    let given = host.inherited_leases();
    let beside = |entry: &Entry| asking_for.is_some_and(|key| key.definitely_same(&entry.root));
    let is_given =
        |entry: &&Entry| given.contains(&(entry.id.clone(), entry.owner)) && !beside(entry);
    let youngest = leases.iter().filter(is_given).max_by_key(|entry| (entry.ticket, &entry.id));
    youngest.cloned()
}
