//! The leases on each device.

use gpu_claim::Ledger;
use gpu_core::{DeviceState, DeviceUuid, EntryKind, Fault, LeaseEntry, LeaseStore};
use gpu_reaper::Usage;

/// The leases of a machine at one moment, except those that were taken out of others.
#[derive(Clone, Debug)]
pub struct DeviceLeases(Result<Vec<LeaseEntry>, Fault>);

impl DeviceLeases {
    /// Returns the leases of a machine without any.
    pub fn none() -> Self {
        DeviceLeases(Ok(Vec::new()))
    }

    /// Returns the leases of a look at some other time: those of [`entries`](Self::entries).
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
        DeviceLeases(leases.map(|leases| match leases.is_empty() {
            true => leases,
            false => Ledger::new(leases, Vec::new()).pool(None).leases,
        }))
    }

    /// Returns why the leases are unknown.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.as_ref().err()
    }

    /// Returns the leases on a device or on a part of it, earliest first.
    pub fn on(&self, device: &DeviceState) -> impl Iterator<Item = &LeaseEntry> {
        let uuid = device.id().uuid.as_ref().ok();
        let parts = device.mig.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
        let names: Vec<DeviceUuid> = uuid.into_iter().chain(parts).cloned().collect();
        let leases = self.0.iter().flatten();
        leases.filter(move |lease| names.iter().any(|name| lease.has(name)))
    }

    /// Returns whether a device is certainly unused and has no known lease.
    pub fn is_free(&self, device: &DeviceState, usage: &Usage) -> bool {
        usage.is_free(device.id()) && self.on(device).next().is_none()
    }
}
