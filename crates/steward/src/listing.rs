//! The leases and the queue.

use crate::ancestry;
use crate::claim_context::{ClaimContext, Wants};
use crate::grant::{Refused, decide};
use crate::offers::ClaimSurroundings;
use crate::ports::Ports;
use gpu_claim::Ledger;
use gpu_core::{
    Bytes, DeviceId, DeviceState, DeviceUuid, LeaseEntry, LeaseId, Pid, ProcessInfo, Reading,
    Result, Snapshot, ask,
};
use std::collections::BTreeMap;

/// All leases and all waiting claims.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The leases, in the order of their claims.
    pub leases: Vec<Listed>,
    /// The waiting claims, the next one first.
    pub queue: Vec<Queued>,
    /// The snapshot of the machine.
    pub context: ClaimContext,
}

/// A lease and its use.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The lease.
    pub entry: LeaseEntry,
    /// The lease that it was taken out of.
    pub within: Option<LeaseEntry>,
    /// Its devices. The `DeviceId` is `None` for a device that is not visible here.
    pub devices: Vec<(DeviceUuid, Option<DeviceId>)>,
    /// The process whose descendants may use it; `None` if it does not belong to the lease's user,
    /// because a lease file can contain any PID.
    pub root: Option<Box<ProcessInfo>>,
    /// The processes that use its devices under it, as the driver lists them.
    pub users: Vec<LeaseUser>,
}

/// A process that uses a device under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseUser {
    /// The device.
    pub device: DeviceUuid,
    /// The process.
    pub pid: Pid,
    /// Its name, if known; untrusted text.
    pub name: Option<String>,
    /// Device memory.
    pub memory: Reading<Bytes>,
}

/// A waiting claim.
#[derive(Clone, Debug)]
pub struct Queued {
    /// Its entry in the queue.
    pub entry: LeaseEntry,
    /// The lease that devices are to be taken out of.
    pub within: Option<LeaseEntry>,
    /// The number of earlier waiting claims for the same devices.
    pub ahead: usize,
    /// Whether it is stopped. Later claims pass it until it continues.
    pub is_stopped: bool,
    /// The waiting process, as for a lease.
    pub root: Option<Box<ProcessInfo>>,
    /// Why it cannot be granted now, apart from the claims ahead; `None` if only these block it, or
    /// if the driver fails and no device is visible.
    pub lacks: Option<Refused>,
}

/// Lists the leases and the waiting claims.
///
/// # Errors
/// `Io` if the directory of the leases cannot be read. An unresponsive driver is not an error here.
pub fn listing(ports: &Ports<'_>) -> Result<Listing> {
    let ledger = Ledger::read(ports.locks)?;
    let capability =
        ledger.waiters.iter().chain(&ledger.stalled).any(|e| e.claim.compute_capability.is_some());
    let context = ClaimContext::observe(ports, Wants { topology: false, capability });
    let root = |entry: &LeaseEntry| {
        let info = ask(|| ports.host.process(entry.root.pid)).ok()?;
        ancestry::is_root_of(&info, entry).then(|| Box::new(info))
    };
    let mut used = users(&context.snapshot, context.devices(), &ledger.leases);
    let mut leases: Vec<Listed> = ledger
        .leases
        .iter()
        .map(|entry| Listed {
            within: ledger.parent_of(entry).cloned(),
            devices: devices(entry, &context),
            root: root(entry),
            users: used.remove(&(&entry.id, entry.owner)).unwrap_or_default(),
            entry: entry.clone(),
        })
        .collect();
    leases.sort_by(|a, b| (a.entry.ticket, &a.entry.id).cmp(&(b.entry.ticket, &b.entry.id)));
    let running = ledger.waiters.iter().map(|entry| (entry, false));
    let stopped = ledger.stalled.iter().map(|entry| (entry, true));
    let queue = running.chain(stopped).map(|(entry, is_stopped)| {
        let within = ledger.parent_of(entry);
        let pool = ledger.pool(within);
        let surroundings = ClaimSurroundings { parent: within, leases: &pool.leases, waiting: &[] };
        let blind = context.silence().is_some();
        Queued {
            ahead: pool.ahead_of(entry).count(),
            is_stopped,
            root: root(entry),
            lacks: (!blind).then(|| decide(&context, &entry.claim, surroundings).err()).flatten(),
            within: within.cloned(),
            entry: entry.clone(),
        }
    });
    let queue = queue.collect();
    Ok(Listing { leases, queue, context })
}

/// Returns the devices of a lease; for merged leases, those that are visible.
fn devices(entry: &LeaseEntry, context: &ClaimContext) -> Vec<(DeviceUuid, Option<DeviceId>)> {
    let named = entry.devices.iter().map(|uuid| (uuid.clone(), context.device(uuid).cloned()));
    let merged = context.devices().filter_map(|device| {
        let key = device.id().lease_key().ok()?;
        let is_more = !entry.devices.contains(&key) && entry.has(&key);
        is_more.then(|| (key.into_owned(), Some(device.id().clone())))
    });
    named.chain(merged).collect()
}

/// Returns the processes that use devices under leases, by lease and owner. Use under a lease that
/// was taken out of another counts only for the inner one.
pub fn lease_users<'e>(
    snapshot: &Snapshot,
    leases: &'e [LeaseEntry],
) -> BTreeMap<(&'e LeaseId, u32), Vec<LeaseUser>> {
    let parts = snapshot.devices.iter().flat_map(DeviceState::partitions_as_devices);
    let parts: Vec<DeviceState> = parts.filter(|device| device.id().uuid.is_ok()).collect();
    users(snapshot, snapshot.devices.iter().chain(&parts), leases)
}

fn users<'e, 'd>(
    snapshot: &Snapshot,
    devices: impl Iterator<Item = &'d DeviceState>,
    leases: &'e [LeaseEntry],
) -> BTreeMap<(&'e LeaseId, u32), Vec<LeaseUser>> {
    let mut users: BTreeMap<_, Vec<LeaseUser>> = BTreeMap::new();
    if leases.is_empty() {
        return users;
    }
    for device in devices {
        let Ok(key) = device.id().lease_key() else { continue };
        for process in device.processes.iter().flatten() {
            let under = ancestry::lease_of(snapshot, process.pid, &key, leases);
            let Some(under) = under else { continue };
            let known = snapshot.process(process.pid).map(|info| info.name.clone());
            users.entry((&under.id, under.owner)).or_default().push(LeaseUser {
                device: key.clone().into_owned(),
                pid: process.pid,
                name: known.or_else(|_| process.name.clone()).ok(),
                memory: process.memory,
            });
        }
    }
    users
}
