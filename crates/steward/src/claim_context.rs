//! What a claim looks at before it decides.

use crate::ports::Ports;
use gpu_core::{
    DeviceId, DeviceState, DeviceUuid, Fault, Group, Groups, Snapshot, Timestamp, Topology, ask,
    observe_users,
};
use gpu_reaper::Usage;
use std::collections::BTreeMap;

/// A look at the machine, with what a choice of devices needs beside it.
///
/// It is a light look: the driver is asked once, and the operating system only for the processes
/// that the driver lists and their ancestors. So it does not tell who merely has a device open.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Devices, those who use them, and their ancestors.
    pub snapshot: Snapshot,
    /// The MIG devices, as devices of their own; those that have a name.
    pub mig: Vec<DeviceState>,
    /// Who uses each device.
    pub usage: Usage,
    /// How the devices are connected; `None` where it does not matter, was not asked for, or is
    /// not told.
    pub topology: Option<Topology>,
    /// When each device was last leased, as far as is known.
    pub last_leased: BTreeMap<DeviceUuid, Timestamp>,
    /// What was asked for beside who uses what.
    pub told: Wants,
}

/// What a look is to tell beside who uses what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// How the devices are connected.
    pub topology: bool,
    /// What each device is capable of.
    pub capability: bool,
}

impl Scene {
    /// Looks once. It never fails: what could not be learned is told in the snapshot.
    pub fn look(ports: &Ports<'_>, wants: Wants) -> Self {
        let groups = match wants.capability {
            true => Groups::from_iter([Group::Product]),
            false => Groups::NONE,
        };
        let snapshot = observe_users(ports.backend, ports.host, ports.clock, groups);
        let topology = wants.topology.then(|| ask(|| ports.backend.topology()).ok()).flatten();
        let mig = snapshot.devices.iter().flat_map(DeviceState::mig_devices);
        let mig: Vec<DeviceState> = mig.filter(|device| device.id().uuid.is_ok()).collect();
        let usage = match mig.is_empty() {
            true => Usage::of(&snapshot),
            false => {
                let devices = [&snapshot.devices[..], &mig].concat();
                Usage::of(&Snapshot { devices, ..snapshot.clone() })
            }
        };
        let last_leased = ports.locks.last_leased();
        Scene { snapshot, mig, usage, topology, last_leased, told: wants }
    }

    /// Returns why nothing can be claimed: the driver does not answer, or there is no device.
    pub fn silence(&self) -> Option<&Fault> {
        self.snapshot.driver.as_ref().err().filter(|_| self.snapshot.devices.is_empty())
    }

    /// Returns every device and every MIG device.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &DeviceState> {
        self.snapshot.devices.iter().chain(&self.mig)
    }

    /// Returns the device or the MIG device with this UUID.
    pub(crate) fn find(&self, uuid: &DeviceUuid) -> Option<&DeviceState> {
        self.devices().find(|device| device.id().uuid.as_ref() == Ok(uuid))
    }

    /// Returns the names of the device or the MIG device with this UUID.
    pub fn device(&self, uuid: &DeviceUuid) -> Option<&DeviceId> {
        self.find(uuid).map(DeviceState::id)
    }
}
