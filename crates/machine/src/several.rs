//! Several backends as one: the devices of all, each once.

use gpu_core::{
    Absent, ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess,
    DeviceSample, DeviceState, Driver, Error, ErrorKind, GpuBackend, Groups, Inventory, Link,
    Origin, Partition, PeerAccess, PeerCapability, Pid, Result, Topology,
};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The devices of several backends.
///
/// The index counts on from one backend to the next, in their order. Two backends may report one
/// device, such as a vendor's library and the kernel's graphics drivers: the PCI address shows it,
/// and the first backend answers for the device.
pub(crate) struct Several {
    backends: Vec<Box<dyn GpuBackend>>,
    /// The devices that the kernel lists for the first backend: they are reported with its failure
    /// if it does not answer.
    listed: fn() -> Vec<DeviceInfo>,
    /// Returns whether all devices of the first backend sleep: it is not queried then.
    sleeps: fn() -> bool,
    /// The backend of each device, and the device's identity there, as last reported.
    known: Mutex<Vec<Known>>,
}

#[derive(Clone)]
struct Known {
    backend: usize,
    own: DeviceId,
}

impl Several {
    /// Returns these backends as one; a single backend stays as it is.
    pub(crate) fn of(backends: Vec<Box<dyn GpuBackend>>) -> Box<dyn GpuBackend> {
        Several::with_list(backends, Vec::new, || false)
    }

    /// Returns these backends as one, with the devices that the kernel lists for the first, which is
    /// not queried in a snapshot while all of them sleep.
    pub(crate) fn with_list(
        mut backends: Vec<Box<dyn GpuBackend>>,
        listed: fn() -> Vec<DeviceInfo>,
        sleeps: fn() -> bool,
    ) -> Box<dyn GpuBackend> {
        if backends.len() == 1 {
            return backends.remove(0);
        }
        Box::new(Several { backends, listed, sleeps, known: Mutex::default() })
    }

    /// Returns the inventory of each backend.
    fn inventories(&self, groups: Groups) -> Vec<Inventory> {
        let mut backends = self.backends.iter();
        let asleep = (self.sleeps)().then(|| {
            backends.next();
            Inventory::failed(&Error::new(Absent::Asleep, "query devices that sleep"))
        });
        asleep.into_iter().chain(backends.map(|backend| backend.inventory(groups))).collect()
    }

    /// Numbers the devices of all backends and records which backend answers for each.
    fn merge<T>(&self, reported: Vec<(usize, T)>, id: impl Fn(&mut T) -> &mut DeviceId) -> Vec<T> {
        let (mut known, mut merged) = (Vec::<Known>::new(), Vec::new());
        for (backend, mut device) in reported {
            let own = id(&mut device).clone();
            let is_reported = |other: &Known| own.bus.is_ok() && other.own.bus == own.bus;
            if known.iter().any(is_reported) {
                continue;
            }
            id(&mut device).index = u32::try_from(merged.len()).unwrap_or(u32::MAX);
            known.push(Known { backend, own });
            merged.push(device);
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        merged
    }

    /// Returns the backend of a device, and the device's identity there.
    fn find(&self, device: &DeviceId) -> Result<(&dyn GpuBackend, DeviceId)> {
        let look_up = || {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let known = known.get(usize::try_from(device.index).ok()?)?.clone();
            let whole = DeviceId { index: device.index, ..known.own.clone() };
            whole.same_device(device).then_some(known)
        };
        let known = match look_up() {
            Some(known) => Some(known),
            None => {
                self.devices()?;
                look_up()
            }
        };
        let gone = || Error::new(ErrorKind::Invalid, format!("find the driver of {device}"));
        let Known { backend, own } = known.ok_or_else(gone)?;
        Ok((&*self.backends[backend], own))
    }

    /// Joins a square table of all backends; empty if none has it. A device has `itself` on the
    /// diagonal; devices of different backends, or of a backend without a table, have `unknown`.
    fn join<A, T: Copy>(
        &self,
        answers: &[(usize, A)],
        table: impl Fn(&A) -> &Vec<Vec<T>>,
        itself: T,
        unknown: T,
    ) -> Vec<Vec<T>> {
        if answers.iter().all(|(_, answer)| table(answer).is_empty()) {
            return Vec::new();
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = |from: &Known, to: &Known| {
            if from.backend != to.backend {
                return unknown;
            }
            if from.own.index == to.own.index {
                return itself;
            }
            let answer = answers.iter().find(|(backend, _)| *backend == from.backend);
            let own = |known: &Known| usize::try_from(known.own.index).ok();
            let cell = answer.and_then(|(_, own_answer)| {
                table(own_answer).get(own(from)?)?.get(own(to)?).copied()
            });
            cell.unwrap_or(unknown)
        };
        known.iter().map(|from| known.iter().map(|to| cell(from, to)).collect()).collect()
    }

    /// Returns the answers of the backends that have devices, or the first failure if none answers.
    fn answers<T>(&self, ask: impl Fn(&dyn GpuBackend) -> Result<T>) -> Result<Vec<(usize, T)>> {
        let (mut answers, mut failure) = (Vec::new(), None);
        for (at, backend) in self.backends.iter().enumerate() {
            match ask(&**backend) {
                Ok(answer) => answers.push((at, answer)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }
}

impl GpuBackend for Several {
    fn origin(&self) -> Origin {
        self.backends.first().map_or(Origin::Live, |backend| backend.origin())
    }

    /// Returns the versions of the first driver that answers.
    fn driver(&self) -> Result<Driver> {
        let mut answers = self.answers(|backend| backend.driver())?;
        let none = || Error::new(ErrorKind::Unsupported, "query a driver");
        (!answers.is_empty()).then(|| answers.remove(0).1).ok_or_else(none)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut answers = self.answers(|backend| backend.devices())?;
        if answers.first().is_none_or(|(at, _)| *at > 0) {
            answers.insert(0, (0, (self.listed)()));
        }
        let all =
            answers.into_iter().flat_map(|(at, devices)| devices.into_iter().map(move |d| (at, d)));
        Ok(self.merge(all.collect(), |device| &mut device.id))
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        let (backend, own) = self.find(device)?;
        backend.sample(&own)
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let (backend, own) = self.find(device)?;
        backend.processes(&own)
    }

    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>> {
        let (backend, own) = self.find(device)?;
        backend.partitions(&own)
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        let (backend, own) = self.find(device)?;
        backend.details(&own, groups)
    }

    /// The connections between devices of different drivers are unknown.
    fn topology(&self) -> Result<Topology> {
        self.devices()?;
        let answers = self.answers(|backend| backend.topology())?;
        Ok(Topology {
            links: self.join(&answers, |own| &own.links, Link::Itself, Link::Unknown),
            peers: self.join(&answers, |own| &own.peers, PeerAccess::Itself, PeerAccess::Unknown),
            paths: self.join(&answers, |own| &own.paths, Link::Itself, Link::Unknown),
        })
    }

    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        self.devices()?;
        let answers = self.answers(|backend| backend.peer_access(capability))?;
        Ok(self.join(&answers, |own| own, PeerAccess::Itself, PeerAccess::Unknown))
    }

    /// Waits for each backend in turn, for its share of the time.
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        let count = u32::try_from(self.backends.len()).unwrap_or(u32::MAX).max(1);
        let answers = self.answers(|backend| backend.events(wait / count))?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let renumbered = |backend: usize, event: DeviceEvent| {
            let is_it = |own: u32| {
                (0..).zip(&*known).find(|(_, device): &(u32, &Known)| {
                    device.backend == backend && device.own.index == own
                })
            };
            let device = event.device.and_then(is_it).map(|(index, _)| index);
            DeviceEvent { device, ..event }
        };
        let events = answers
            .into_iter()
            .flat_map(|(backend, events)| events.into_iter().map(move |event| (backend, event)));
        Ok(events.map(|(backend, event)| renumbered(backend, event)).collect())
    }

    fn reset(&self, device: &DeviceId, token: &ActToken) -> Result<()> {
        let (backend, own) = self.find(device)?;
        backend.reset(&own, token)
    }

    fn inventory(&self, groups: Groups) -> Inventory {
        let mut inventories = self.inventories(groups);
        if let Some(Inventory { driver: Err(fault), devices }) = inventories.first_mut()
            && devices.is_empty()
        {
            let unanswered = |info| DeviceState::unanswered(info, groups, fault);
            devices.extend((self.listed)().into_iter().map(unanswered));
        }
        let drivers = inventories.iter().map(|inventory| &inventory.driver);
        let driver = drivers.clone().find(|driver| driver.is_ok()).or(drivers.into_iter().next());
        let none = || Err(Error::new(ErrorKind::Unsupported, "query a driver").fault());
        let driver = driver.cloned().unwrap_or_else(none);
        let all: Vec<(usize, DeviceState)> = (0..)
            .zip(inventories)
            .flat_map(|(at, inventory)| {
                inventory.devices.into_iter().map(move |device| (at, device))
            })
            .collect();
        Inventory { driver, devices: self.merge(all, |device| &mut device.info.id) }
    }

    fn helpers(&self) -> Vec<Pid> {
        self.backends.iter().flat_map(|backend| backend.helpers()).collect()
    }

    fn keeps_devices_awake(&self) -> bool {
        self.backends.iter().all(|backend| backend.keeps_devices_awake())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::DeviceEventKind;
    use gpu_sim::{Call, Event, Fault, Simulation};

    /// Returns two simulated machines, and a backend that merges their devices.
    fn of(names: [&str; 2]) -> (Vec<Simulation>, Box<dyn GpuBackend>) {
        let machines = names.map(|name| Simulation::embedded(name).unwrap());
        let backends = machines.iter().map(|machine| Box::new(machine.clone()) as _).collect();
        (machines.to_vec(), Several::of(backends))
    }

    #[test]
    fn indexes_continue_and_each_backend_answers_for_its_devices() {
        let (machines, both) = of(["k80-single", "gb10-unified"]);
        let own: Vec<_> = machines.iter().flat_map(|one| one.devices().unwrap()).collect();
        let merged = both.devices().unwrap();
        assert_eq!(merged.len(), own.len());
        for (index, (device, own)) in (0..).zip(merged.iter().zip(&own)) {
            assert_eq!(device.id, DeviceId { index, ..own.id.clone() });
        }
        let last = &merged.last().unwrap().id;
        let seen = both.inventory(Groups::default()).devices;
        let of_second = machines[1].inventory(Groups::default()).devices;
        assert_eq!(seen.last().unwrap().sample, of_second.last().unwrap().sample);
        assert_eq!(both.processes(last).unwrap(), {
            let own = machines[1].devices().unwrap();
            GpuBackend::processes(&machines[1], &own.last().unwrap().id).unwrap()
        });
        let foreign = DeviceId { index: last.index, ..merged[0].id.clone() };
        assert_eq!(both.sample(&foreign).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn device_of_two_backends_is_reported_once_by_the_first() {
        let (machines, both) = of(["labbox", "labbox"]);
        assert_eq!(both.devices().unwrap(), machines[0].devices().unwrap());
    }

    #[test]
    fn tables_of_backends_join_with_unknown_links_between_them() {
        let (machines, both) = of(["dgx1-v100", "gb10-unified"]);
        let own = machines[0].topology().unwrap();
        let count = own.links.len();
        let topology = both.topology().unwrap();
        for (from, row) in topology.links.iter().enumerate() {
            assert_eq!(row.len(), count + 1);
            for (to, link) in row.iter().enumerate() {
                let want = match (from < count, to < count) {
                    (true, true) => own.links[from][to],
                    (false, false) => Link::Itself,
                    _ => Link::Unknown,
                };
                assert_eq!(*link, want, "{from} to {to}");
            }
        }
        machines[1].inject_from(Call::Topology, 1, Fault::Error(ErrorKind::Unsupported));
        assert_eq!(both.topology().unwrap().links, topology.links);
    }

    #[test]
    fn events_carry_index_of_merged_list() {
        let (machines, both) = of(["k80-single", "gb10-unified"]);
        let first_of_second = u32::try_from(machines[0].devices().unwrap().len()).unwrap();
        both.devices().unwrap();
        machines[1].happen(Event::Reports(0, DeviceEventKind::UncorrectedMemoryError));
        let events = both.events(Duration::ZERO).unwrap();
        let kind = DeviceEventKind::UncorrectedMemoryError;
        assert_eq!(events, [DeviceEvent { device: Some(first_of_second), kind }]);
    }

    #[test]
    fn driver_of_sleeping_devices_is_not_queried() {
        let machines = ["k80-single", "gb10-unified"].map(|n| Simulation::embedded(n).unwrap());
        let backends = machines.iter().map(|machine| Box::new(machine.clone()) as _).collect();
        let listed = || vec![DeviceInfo::unknown(DeviceId::from_index(0))];
        let both = Several::with_list(backends, listed, || true);
        machines[0].inject_from(Call::Driver, 1, Fault::Error(ErrorKind::TimedOut));
        let seen = both.inventory(Groups::default());
        assert!(seen.driver.is_ok());
        let fault = seen.devices[0].sample.as_ref().unwrap_err();
        assert_eq!(fault.kind, Absent::Asleep.into());
        assert!(seen.devices[1].sample.is_ok());
    }

    #[test]
    fn one_driver_that_fails_hides_no_device_of_another() {
        let (machines, both) = of(["k80-single", "gb10-unified"]);
        for call in [Call::Driver, Call::Devices] {
            machines[0].inject_from(call, 1, Fault::Error(ErrorKind::TimedOut));
        }
        assert_eq!(both.driver().unwrap(), machines[1].driver().unwrap());
        assert_eq!(both.devices().unwrap(), machines[1].devices().unwrap());
        machines[1].inject_from(Call::Devices, 1, Fault::Error(ErrorKind::Io));
        assert_eq!(both.devices().unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
