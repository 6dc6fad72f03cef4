//! What stands for the devices where they cannot be opened, and a job is to end all the same.

use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, GpuBackend, Groups, MigInstance, Origin, Result, Topology,
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
