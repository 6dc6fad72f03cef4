//! NVML in this process.

use crate::call::{Caller, CurrentCall};
use crate::code::Code;
use crate::library::{Loaded, SimulatedNvml, load, simulated};
use crate::reset::Resetter;
use crate::sample::sample;
use crate::session::{Opened, Session};
use crate::snapshot::inventory;
use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, GpuBackend, Groups, Inventory, MigInstance, Origin, Result, Topology,
};
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

/// NVML in this process.
///
/// The first question initialises it. Questions from several threads are put at the same time, as
/// NVML allows; closing it waits until all of them are answered.
pub struct Nvml {
    caller: Caller,
    /// Keeps the library loaded from one initialisation to the next.
    library: Loaded,
    simulated: Option<SimulatedNvml>,
    session: RwLock<Option<Session>>,
}

impl Nvml {
    /// Opens the library at `path`, or the first that loads of `libnvidia-ml.so.1`,
    /// `libnvidia-ml.so` and WSL's. Loads only: the driver is asked nothing.
    ///
    /// # Errors
    /// `Machine(NoLibrary)` when there is none that loads; `Invalid` when the one at `path` does
    /// not.
    pub fn open(path: Option<&Path>) -> Result<Nvml> {
        let library = load(path)?;
        let simulated = simulated(&library.library);
        Ok(Nvml { caller: Caller::default(), library, simulated, session: RwLock::default() })
    }

    /// Returns the simulated machine that the library says it serves; `None` for NVIDIA's own.
    pub fn simulated(&self) -> Option<&SimulatedNvml> {
        self.simulated.as_ref()
    }

    /// Returns what NVML is being asked at this moment, the oldest question first, for whoever
    /// waits in another thread.
    pub fn current_call(&self) -> Option<CurrentCall> {
        self.caller.current()
    }

    /// Returns how many NVML calls were made. The initialisation, by which nvml-wrapper asks for
    /// the driver's version too, counts as one.
    pub fn calls(&self) -> u64 {
        self.caller.made()
    }

    /// Shuts NVML down, which closes the device files, once all questions of other threads are
    /// answered; a wait for events is one, and one that hangs keeps this waiting too. The next
    /// question initialises it again.
    pub fn close(&self) {
        if let Some(session) = self.writing().take() {
            session.close(&self.caller);
        }
    }

    /// Returns how many devices there are.
    ///
    /// # Errors
    /// `Machine` when there is none, or no driver answers.
    pub(crate) fn count(&self) -> Result<u32> {
        self.ask(|nvml| nvml.count())
    }

    /// Returns what the device at an index is.
    ///
    /// # Errors
    /// `Machine` when the driver stops to answer.
    pub(crate) fn info(&self, index: u32) -> Result<DeviceInfo> {
        self.ask(|nvml| nvml.device_info(index))
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Option<Session>> {
        self.session.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question, after initialising NVML where that was not done.
    fn ask<T>(&self, question: impl FnOnce(Opened<'_>) -> Result<T>) -> Result<T> {
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
        let answer = question(Opened { caller: &self.caller, session, simulated });
        drop(reading);
        if answer.as_ref().is_err_and(|error| Code::ends_session(error.kind())) {
            self.reinitialise();
        }
        answer
    }

    /// Lets the next question initialise NVML again. Nobody is waited for: where another thread is
    /// still asking, its failure does it.
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
        self.ask(|nvml| nvml.driver())
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.ask(|nvml| nvml.devices())
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        self.ask(|nvml| sample(nvml.named(device)?))
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        self.ask(|nvml| nvml.processes(nvml.named(device)?))
    }

    fn mig_instances(&self, device: &DeviceId) -> Result<Vec<MigInstance>> {
        self.ask(|nvml| nvml.mig_instances(nvml.named(device)?))
    }

    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        self.ask(|nvml| nvml.details(nvml.named(device)?, groups))
    }

    fn topology(&self) -> Result<Topology> {
        self.ask(|nvml| nvml.topology())
    }

    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>> {
        self.ask(|nvml| nvml.events(wait))
    }

    fn look(&self, groups: Groups) -> Inventory {
        let (driver, count) = self.begin_look();
        inventory(driver, (0..count).map(|index| self.look_at(index, groups)).collect())
    }

    /// Closes NVML, which else would be somebody who uses the device, and runs nvidia-smi.
    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        let failed = |kind, why: &str| {
            Err(Error::new(kind, format!("reset {device}")).with_source(why.to_owned()))
        };
        if self.simulated.is_some() {
            return failed(ErrorKind::Unsupported, "the machine is simulated");
        }
        let bus = match device.bus {
            Ok(bus) => Ok(bus),
            Err(_) => self.ask(|nvml| nvml.bus(nvml.named(device)?))?,
        };
        let Ok(bus) = bus else {
            return failed(ErrorKind::Invalid, "its PCI address is not known");
        };
        let resetter = Resetter::installed()?;
        self.close();
        resetter.reset(bus, &device.to_string())
    }
}
