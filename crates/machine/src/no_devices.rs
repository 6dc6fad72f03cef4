//! A backend without devices, used to end a job although no driver can be opened.

use gpu_core::{
    ActToken, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess, DeviceSample,
    Driver, Error, ErrorKind, GpuBackend, Groups, Origin, Partition, Result, Topology,
};
use std::time::Duration;

/// The devices of this machine when no driver can be queried.
pub(crate) struct NoDevices;

fn no_driver<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "query a driver that could not be opened"))
}

impl GpuBackend for NoDevices {
    fn origin(&self) -> Origin {
        Origin::Live
    }

    fn driver(&self) -> Result<Driver> {
        no_driver()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        no_driver()
    }

    fn sample(&self, _: &DeviceId) -> Result<DeviceSample> {
        no_driver()
    }

    fn processes(&self, _: &DeviceId) -> Result<Vec<DeviceProcess>> {
        no_driver()
    }

    fn partitions(&self, _: &DeviceId) -> Result<Vec<Partition>> {
        no_driver()
    }

    fn details(&self, _: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        no_driver()
    }

    fn topology(&self) -> Result<Topology> {
        no_driver()
    }

    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        no_driver()
    }

    fn reset(&self, _: &DeviceId, _: &ActToken) -> Result<()> {
        no_driver()
    }
}
