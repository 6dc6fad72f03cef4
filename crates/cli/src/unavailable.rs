//! What stands for the devices and for the audit log where neither can be opened, and a job is to
//! end all the same.

use crate::failure::Failure;
use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, GpuBackend, Groups, Journal, MigInstance, Origin, Result, Topology,
};
use std::time::Duration;

/// The devices of this machine, of which nobody is asked.
pub(crate) struct NoDevices;

fn unasked<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "ask a driver that could not be opened"))
}

impl GpuBackend for NoDevices {
    fn origin(&self) -> Origin {
        Origin::Live
    }

    fn driver(&self) -> Result<Driver> {
        unasked()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        unasked()
    }

    fn sample(&self, _: &DeviceId) -> Result<DeviceSample> {
        unasked()
    }

    fn processes(&self, _: &DeviceId) -> Result<Vec<DeviceProcess>> {
        unasked()
    }

    fn mig_instances(&self, _: &DeviceId) -> Result<Vec<MigInstance>> {
        unasked()
    }

    fn details(&self, _: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        unasked()
    }

    fn topology(&self) -> Result<Topology> {
        unasked()
    }

    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        unasked()
    }

    fn reset(&self, _: &DeviceId, _: &ActToken) -> Result<()> {
        unasked()
    }
}

/// An audit log that cannot be opened, and why.
pub(crate) struct NoJournal(String);

impl NoJournal {
    pub(crate) fn new(why: &Failure) -> Self {
        NoJournal(why.reason())
    }
}

impl Journal for NoJournal {
    fn append(&self, _: &str) -> Result<()> {
        Err(Error::new(ErrorKind::Io, self.0.clone()))
    }
}
