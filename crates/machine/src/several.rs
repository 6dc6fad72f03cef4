//! Several backends as one: the devices of all, each once.

use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    DeviceState, Driver, Error, ErrorKind, GpuBackend, Groups, Inventory, Link, MigInstance,
    Origin, PeerAccess, PeerCapability, Pid, Result, Topology,
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
    pub(crate) fn of(mut backends: Vec<Box<dyn GpuBackend>>) -> Box<dyn GpuBackend> {
        if backends.len() == 1 {
            return backends.remove(0);
        }
        Box::new(Several { backends, known: Mutex::default() })
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

    /// Joins square tables of all backends; devices of different backends have `apart`.
    fn join<T: Clone>(&self, tables: &[(usize, Vec<Vec<T>>)], apart: &T) -> Vec<Vec<T>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = |from: &Known, to: &Known| {
            let table = tables.iter().find(|(backend, _)| *backend == from.backend);
            let own = |known: &Known| usize::try_from(known.own.index).ok();
            let same = table.filter(|_| from.backend == to.backend);
            let cell = same.and_then(|(_, table)| table.get(own(from)?)?.get(own(to)?));
            cell.unwrap_or(apart).clone()
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
        let answers = self.answers(|backend| backend.devices())?;
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

    fn mig_instances(&self, device: &DeviceId) -> Result<Vec<MigInstance>> {
        let (backend, own) = self.find(device)?;
        backend.mig_instances(&own)
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        let (backend, own) = self.find(device)?;
        backend.details(&own, groups)
    }

    /// The connections between devices of different drivers are unknown.
    fn topology(&self) -> Result<Topology> {
        self.devices()?;
        let answers = self.answers(|backend| backend.topology())?;
        let table = |part: fn(&Topology) -> &Vec<Vec<Link>>| -> Vec<(usize, Vec<Vec<Link>>)> {
            answers.iter().map(|(at, own)| (*at, part(own).clone())).collect()
        };
        let peers: Vec<_> = answers.iter().map(|(at, own)| (*at, own.peers.clone())).collect();
        let has_paths = answers.iter().any(|(_, own)| !own.paths.is_empty());
        let has_peers = peers.iter().any(|(_, own)| !own.is_empty());
        Ok(Topology {
            links: self.join(&table(|own| &own.links), &Link::Unknown),
            peers: if has_peers { self.join(&peers, &PeerAccess::Unknown) } else { Vec::new() },
            paths: if has_paths {
                self.join(&table(|own| &own.paths), &Link::Unknown)
            } else {
                Vec::new()
            },
        })
    }

    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        self.devices()?;
        let answers = self.answers(|backend| backend.peer_access(capability))?;
        Ok(self.join(&answers, &PeerAccess::Unknown))
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

    fn look(&self, groups: Groups) -> Inventory {
        let inventories: Vec<Inventory> = self.backends.iter().map(|b| b.look(groups)).collect();
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
