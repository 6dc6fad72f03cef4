//! The live processes, indexed by PID and by device.

use crate::machine::Process;
use gpu_core::{Absent, Pid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A permanent identifier of a process in the simulation, independent of its PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial(pub(crate) u64);

impl Serial {
    pub(crate) const FIRST: Serial = Serial(0);
    pub(crate) const LAST: Serial = Serial(u64::MAX);
}

/// A live process.
#[derive(Clone, Debug)]
pub(crate) struct Living {
    pub(crate) process: Process,
    /// The time at which it was added to the simulation.
    pub(crate) since: Duration,
}

/// Live processes by serial. Indexed fields change only through [`change`](Population::change),
/// which keeps the indexes current.
#[derive(Clone, Debug, Default)]
pub(crate) struct Population {
    living: BTreeMap<Serial, Box<Living>>,
    by_pid: BTreeSet<(Pid, Serial)>,
    by_device: BTreeSet<(u32, Serial)>,
}

impl Population {
    pub(crate) fn get(&self, serial: Serial) -> Option<&Living> {
        self.living.get(&serial).map(|living| &**living)
    }

    /// Returns all processes, in start order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Serial, &Living)> {
        self.living.iter().map(|(serial, living)| (*serial, &**living))
    }

    /// Returns the processes with this host PID, including ended ones that NVML still lists.
    pub(crate) fn numbered(&self, pid: Pid) -> impl Iterator<Item = (Serial, &Living)> {
        let serials = self.by_pid.range((pid, Serial::FIRST)..=(pid, Serial::LAST));
        serials.filter_map(|(_, serial)| Some((*serial, self.get(*serial)?)))
    }

    /// Returns the process with this host PID. An ended process that NVML still lists does not
    /// count.
    pub(crate) fn find(&self, pid: Pid) -> Option<Serial> {
        let exists = |process: &Process| process.hidden != Some(Absent::NotFound);
        self.numbered(pid).find(|(_, living)| exists(&living.process)).map(|(serial, _)| serial)
    }

    /// Returns the processes that use memory of a device.
    pub(crate) fn on_device(&self, device: u32) -> impl Iterator<Item = (Serial, &Living)> {
        let serials = self.by_device.range((device, Serial::FIRST)..=(device, Serial::LAST));
        serials.filter_map(|(_, serial)| Some((*serial, self.get(*serial)?)))
    }

    pub(crate) fn insert(&mut self, serial: Serial, living: Living) {
        self.put(serial, Box::new(living));
    }

    fn put(&mut self, serial: Serial, living: Box<Living>) {
        self.take(serial);
        self.by_pid.insert((living.process.pid(), serial));
        let holdings = living.process.holdings.iter();
        self.by_device.extend(holdings.map(|holding| (holding.device, serial)));
        self.living.insert(serial, living);
    }

    pub(crate) fn remove(&mut self, serial: Serial) -> Option<Living> {
        self.take(serial).map(|living| *living)
    }

    fn take(&mut self, serial: Serial) -> Option<Box<Living>> {
        let living = self.living.remove(&serial)?;
        self.by_pid.remove(&(living.process.pid(), serial));
        for holding in &living.process.holdings {
            self.by_device.remove(&(holding.device, serial));
        }
        Some(living)
    }

    /// Changes a process; `None` if it is not alive.
    pub(crate) fn change<T>(
        &mut self,
        serial: Serial,
        change: impl FnOnce(&mut Living) -> T,
    ) -> Option<T> {
        let mut living = self.take(serial)?;
        let answer = change(&mut living);
        self.put(serial, living);
        Some(answer)
    }
}
