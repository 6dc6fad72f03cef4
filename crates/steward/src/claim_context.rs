//! The snapshot for a claim, and the other inputs of the choice.

use crate::ports::Ports;
use gpu_core::{
    DeviceId, DeviceState, DeviceUuid, Fault, Group, Groups, Snapshot, Timestamp, Topology, ask,
    observe_free,
};
use gpu_reaper::{Usage, defect_groups};
use std::collections::BTreeMap;

/// A snapshot of the machine, with the other data that a choice of devices needs.
///
/// The snapshot is cheap: it queries the driver once, and the operating system only for the
/// processes that the driver lists and their ancestors. It does not contain processes that merely
/// have a device open.
#[derive(Clone, Debug)]
pub struct ClaimContext {
    /// The devices, the processes that use them, and the ancestors of these.
    pub snapshot: Snapshot,
    /// The partitions with a UUID, as separate devices.
    pub partitions: Vec<DeviceState>,
    /// The users of each device.
    pub usage: Usage,
    /// The topology; `None` if it does not matter, was not queried, or is not reported.
    pub topology: Option<Topology>,
    /// When each device was last leased, as far as known.
    pub last_leased: BTreeMap<DeviceUuid, Timestamp>,
    /// The optional data that was queried.
    pub reported: Wants,
}

/// The optional data to query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The topology.
    pub topology: bool,
    /// The compute capability of each device.
    pub capability: bool,
}

impl ClaimContext {
    /// Takes the snapshot. This never fails: the snapshot contains the faults.
    pub fn observe(ports: &Ports<'_>, wants: Wants) -> Self {
        let groups = match wants.capability {
            true => defect_groups().and(Groups::from_iter([Group::Product])),
            false => defect_groups(),
        };
        let snapshot = observe_free(ports.backend, ports.host, ports.clock, groups);
        let topology = wants.topology.then(|| ask(|| ports.backend.topology()).ok()).flatten();
        let partitions = snapshot.devices.iter().flat_map(DeviceState::partitions_as_devices);
        // At the address of its device, a partition without a UUID would have the key of that device.
        let partitions: Vec<DeviceState> =
            partitions.filter(|device| device.id().uuid.is_ok()).collect();
        let usage = if partitions.is_empty() {
            Usage::of(&snapshot)
        } else {
            let devices = [&snapshot.devices[..], &partitions].concat();
            Usage::of(&Snapshot { devices, ..snapshot.clone() })
        };
        let last_leased = ports.locks.last_leased();
        ClaimContext { snapshot, partitions, usage, topology, last_leased, reported: wants }
    }

    /// Returns why nothing can be claimed: the driver does not respond, or there is no device.
    pub fn silence(&self) -> Option<&Fault> {
        self.snapshot.driver.as_ref().err().filter(|_| self.snapshot.devices.is_empty())
    }

    /// Returns every device and every partition.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceState> {
        self.snapshot.devices.iter().chain(&self.partitions)
    }

    /// Returns the device or the partition with this key.
    pub(crate) fn find(&self, uuid: &DeviceUuid) -> Option<&DeviceState> {
        self.devices().find(|device| device.id().has_key(uuid))
    }

    /// Returns the names of the device or the partition with this key.
    pub fn device(&self, uuid: &DeviceUuid) -> Option<&DeviceId> {
        self.find(uuid).map(DeviceState::id)
    }
}
