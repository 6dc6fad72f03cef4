//! The leases on each device.

use crate::ancestry::{is_root_of, line};
use gpu_claim::Ledger;
use gpu_core::{
    Bytes, DeviceState, DeviceUuid, EntryKind, Fault, LeaseEntry, LeaseStore, Partition, Pid,
    Snapshot,
};
use gpu_reaper::{Diagnosis, Usage};
use std::borrow::Cow;

/// The leases of a machine at one moment, except those that were taken out of others.
#[derive(Clone, Debug)]
pub struct DeviceLeases(Result<Vec<LeaseEntry>, Fault>);

impl DeviceLeases {
    /// Returns the leases of a machine without any.
    pub fn none() -> Self {
        DeviceLeases(Ok(Vec::new()))
    }

    /// Returns the leases of an earlier snapshot: those of [`entries`](Self::entries).
    pub fn recorded(leases: Result<Vec<LeaseEntry>, Fault>) -> Self {
        DeviceLeases(leases)
    }

    /// Returns the leases, or why they are unknown.
    pub fn entries(&self) -> Result<&[LeaseEntry], &Fault> {
        self.0.as_deref()
    }

    /// Reads the leases. This never fails: the result contains any fault.
    pub fn read(locks: &dyn LeaseStore) -> Self {
        let leases = locks.entries(EntryKind::Lease).map_err(|error| error.fault());
        DeviceLeases(leases.map(|leases| {
            if leases.is_empty() {
                leases
            } else {
                Ledger::new(leases, Vec::new()).pool(None).leases
            }
        }))
    }

    /// Returns why the leases are unknown.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.as_ref().err()
    }

    /// Returns the leases on a device or on a part of it, earliest first.
    pub fn on(&self, device: &DeviceState) -> impl Iterator<Item = &LeaseEntry> {
        let key = device.id().lease_key().ok().map(Cow::into_owned);
        let parts = device.partitions.iter().flatten().filter_map(|part| part.uuid.clone().ok());
        let names: Vec<DeviceUuid> = key.into_iter().chain(parts).collect();
        let leases = self.0.iter().flatten();
        leases.filter(move |lease| {
            names.iter().any(|name| lease.has(name) || lease.has_whole_or_part_of(name))
        })
    }

    /// Returns whether a device is certainly unused and has no known lease.
    pub fn is_free(&self, device: &DeviceState, usage: &Usage) -> bool {
        usage.is_free(device.id()) && self.on(device).next().is_none()
    }

    /// Returns whether a MIG device of a fit device is certainly unused, and neither it nor the whole
    /// device has a known lease.
    pub fn is_part_free(&self, device: &DeviceState, part: &Partition, usage: &Usage) -> bool {
        let account = part.gpu_instance.and_then(|id| usage.account_of_instance(device.id(), id));
        let is_used = |listed: &[gpu_core::DeviceProcess]| listed.iter().any(|p| part.may_have(p));
        let is_of_other = |lease: &LeaseEntry| {
            let is_whole = device.id().lease_key().is_ok_and(|own| lease.has(&own));
            let is_part = part.uuid.as_ref().map_or(true, |own| lease.has(own));
            !is_whole && !is_part
        };
        device.processes.as_ref().is_ok_and(|listed| !is_used(listed))
            && account == Some(Bytes(0))
            && usage.unfit(device.id()).is_none()
            && self.on(device).all(is_of_other)
    }

    /// Returns how many MIG devices of a machine are free by [`is_part_free`](Self::is_part_free).
    pub fn free_parts(&self, snapshot: &Snapshot, usage: &Usage) -> usize {
        let free = |device: &DeviceState| {
            let parts = device.partitions.iter().flatten();
            parts.filter(|part| self.is_part_free(device, part, usage)).count()
        };
        snapshot.devices.iter().map(free).sum()
    }

    /// Removes the findings that call a process idle although it has just got a lease on the
    /// device: it descends from the process that has the lease, or belongs to the owner of the
    /// lease.
    ///
    /// A lease file may contain any time and any process. So the time counts only if it is not in
    /// the future, and the process has to run, with the recorded start time, as the owner's: a
    /// lease file that does not change excuses no process after the first minutes.
    pub fn excuse(&self, snapshot: &Snapshot, diagnosis: &mut Diagnosis) {
        let is_held = |lease: &LeaseEntry| {
            snapshot.process(lease.root.pid).is_ok_and(|info| is_root_of(info, lease))
        };
        let is_new = |lease: &&LeaseEntry| {
            let age = snapshot.taken_at.since(lease.since);
            lease.since <= snapshot.taken_at && age < gpu_reaper::SETTLED_AFTER && is_held(lease)
        };
        let has = |lease: &LeaseEntry, pid: Pid| {
            let is_of_owner =
                |pid| snapshot.process(pid).is_ok_and(|info| info.uid == Ok(lease.owner));
            is_of_owner(pid) || line(snapshot, pid).any(|info| is_root_of(info, lease))
        };
        diagnosis.excuse(|id, pid| {
            let device = snapshot.device(id);
            let mut leases = device.into_iter().flat_map(|device| self.on(device)).filter(is_new);
            leases.any(|lease| has(lease, pid))
        });
    }
}
