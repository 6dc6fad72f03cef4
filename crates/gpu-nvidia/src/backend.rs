//! NVML in this process.

use crate::call::{Caller, CurrentCall};
use crate::code::Code;
use crate::inventory::inventory;
use crate::library::{Loaded, SimulatedNvml, load, simulated};
use crate::reset::Resetter;
use crate::sample::sample;
use crate::session::{Opened, Session};
use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, GpuBackend, Groups, Inventory, Origin, Partition, PeerAccess,
    PeerCapability, Result, Topology,
};
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

/// NVML in this process.
///
/// The first query initialises it. Like NVML itself, it allows concurrent queries from several
/// threads; [`close`](Self::close) waits until all queries have returned.
pub struct Nvml {
    caller: Caller,
    /// Keeps the library loaded between initialisations.
    library: Loaded,
    simulated: Option<SimulatedNvml>,
    session: RwLock<Option<Session>>,
}

impl Nvml {
    /// Loads the library at `path`; without a path, the first of `libnvidia-ml.so.1`,
    /// `libnvidia-ml.so` and WSL's library that loads. Does not query the driver.
    ///
    /// # Errors
    /// `Machine(NoLibrary)` if none of them loads; `Invalid` if the library at `path` does not.
    pub fn open(path: Option<&Path>) -> Result<Nvml> {
        let library = load(path)?;
        let simulated = simulated(&library.library);
        Ok(Nvml { caller: Caller::default(), library, simulated, session: RwLock::default() })
    }

    /// Returns the simulated machine that the library serves; `None` for NVIDIA's library.
    pub fn simulated(&self) -> Option<&SimulatedNvml> {
        self.simulated.as_ref()
    }

    /// Returns the oldest running NVML call, for threads that wait for it.
    pub fn current_call(&self) -> Option<CurrentCall> {
        self.caller.current()
    }

    /// Returns the number of NVML calls. The initialisation counts as one call, although
    /// nvml-wrapper also queries the driver version in it.
    pub fn calls(&self) -> u64 {
        self.caller.made()
    }

    /// Shuts NVML down, which closes the device files, after all queries of other threads have
    /// returned, including waits for events. A query that hangs blocks this call too. The next
    /// query initialises NVML again.
    pub fn close(&self) {
        if let Some(session) = self.writing().take() {
            session.close(&self.caller);
        }
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// `Machine` if there is no device or the driver does not respond.
    pub(crate) fn count(&self) -> Result<u32> {
        self.with_session(|nvml| nvml.count())
    }

    /// Returns the device at an index.
    ///
    /// # Errors
    /// `Machine` if the driver stops responding.
    pub(crate) fn info(&self, index: u32) -> Result<DeviceInfo> {
        self.with_session(|nvml| nvml.device_info(index))
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Option<Session>> {
        self.session.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a query, after initialising NVML if necessary.
    fn with_session<T>(&self, query: impl FnOnce(Opened<'_>) -> Result<T>) -> Result<T> {
        let mut reading = self.session.read().unwrap_or_else(PoisonError::into_inner);
        if reading.is_none() {
            drop(reading);
            let mut writing = self.writing();
            if writing.is_none() {
                *writing = Some(Session::open(&self.caller, &self.library.name)?);
            }
            reading = RwLockWriteGuard::downgrade(writing);
        }
        let Some(session) = &*reading else {
            return Err(Error::new(ErrorKind::Again, "initialise NVML"));
        };
        let simulated = self.simulated.is_some();
        let result = query(Opened { caller: &self.caller, session, simulated });
        drop(reading);
        if result.as_ref().is_err_and(|error| Code::ends_session(error.kind())) {
            self.reinitialise();
        }
        result
    }

    /// Makes the next query initialise NVML again. Does not wait: a query running in another thread
    /// fails and then calls this itself.
    fn reinitialise(&self) {
        if let Ok(mut session) = self.session.try_write()
            && let Some(session) = session.take()
        {
            session.close(&self.caller);
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        self.close();
    }
}

impl GpuBackend for Nvml {
    fn origin(&self) -> Origin {
        match &self.simulated {
            Some(simulated) => Origin::Simulated(simulated.machine.clone()),
            None => Origin::Live,
        }
    }

    fn driver(&self) -> Result<Driver> {
        self.with_session(|nvml| nvml.driver())
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.with_session(|nvml| nvml.devices())
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        self.with_session(|nvml| sample(nvml, nvml.named(device)?))
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        self.with_session(|nvml| nvml.processes(nvml.named(device)?))
    }

    fn partitions(&self, device: &DeviceId) -> Result<Vec<Partition>> {
        self.with_session(|nvml| nvml.partitions(nvml.named(device)?))
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        self.with_session(|nvml| nvml.details(nvml.named(device)?, groups))
    }

    fn topology(&self) -> Result<Topology> {
        self.with_session(|nvml| nvml.topology())
    }

    fn peer_access(&self, capability: PeerCapability) -> Result<Vec<Vec<PeerAccess>>> {
        self.with_session(|nvml| nvml.peer_access(capability))
    }

    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        self.with_session(|nvml| nvml.events(wait))
    }

    fn inventory(&self, groups: Groups) -> Inventory {
        let (driver, count) = self.begin_snapshot();
        inventory(driver, (0..count).map(|index| self.query_device(index, groups)).collect())
    }

    /// Closes NVML, which would count as a user of the device, and runs nvidia-smi.
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        let failed = |kind, why: &str| {
            Err(Error::new(kind, format!("reset {device}")).with_source(why.to_owned()))
        };
        if self.simulated.is_some() {
            return failed(ErrorKind::Unsupported, "the machine is simulated");
        }
        let bus = match device.bus {
            Ok(bus) => Ok(bus),
            Err(_) => self.with_session(|nvml| nvml.bus(nvml.named(device)?))?,
        };
        let Ok(bus) = bus else {
            return failed(ErrorKind::Invalid, "its PCI bus ID is unknown");
        };
        let resetter = Resetter::installed()?;
        self.close();
        resetter.reset(bus, &device.to_string())
    }
}
