//! The port to the devices.

use crate::details::{DeviceDetails, DeviceEvent, Groups};
use crate::device::{DeviceInfo, DeviceProcess, DeviceSample, Driver, MigInstance};
use crate::error::Result;
use crate::id::{DeviceId, Pid};
use crate::inventory::{self, Inventory};
use crate::snapshot::Origin;
use crate::token::ActToken;
use crate::topology::Topology;
use std::time::Duration;

/// Looks at the devices of a machine.
///
/// One call is one question, and the same question may be put again at any time;
/// [`look`](GpuBackend::look) asks them all. A value the machine does not tell is
/// [`Absent`](crate::Absent) inside an `Ok`; an `Err` says by its [`ErrorKind`](crate::ErrorKind)
/// whether the machine, one device or only this call is spoiled.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait GpuBackend: Send + Sync {
    /// Returns where the answers come from; shown in every output.
    fn origin(&self) -> Origin;

    /// Returns the driver's versions.
    ///
    /// # Errors
    /// `Machine` when no driver answers.
    fn driver(&self) -> Result<Driver>;

    /// Returns every device, by index.
    ///
    /// # Errors
    /// `Machine` when no driver answers.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Returns how a device is now.
    ///
    /// # Errors
    /// `Device` when it is lost; `Again` when the question may be put again at once.
    fn sample(&self, device: &DeviceId) -> Result<DeviceSample>;

    /// Returns the processes that NVML lists on a device, compute, graphics and MPS, by number and
    /// instance, each once. NVML's lists carry no names.
    ///
    /// # Errors
    /// As [`sample`](GpuBackend::sample); `Again` when the list grew between two calls.
    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>>;

    /// Returns the MIG instances of a device; none where MIG is off.
    ///
    /// # Errors
    /// As [`sample`](GpuBackend::sample).
    fn mig_instances(&self, device: &DeviceId) -> Result<Vec<MigInstance>>;

    /// Returns the groups of details that are asked for.
    ///
    /// # Errors
    /// As [`sample`](GpuBackend::sample).
    fn details(&self, device: &DeviceId, groups: Groups) -> Result<DeviceDetails>;

    /// Returns how the devices are connected.
    ///
    /// # Errors
    /// `Field` when the machine does not tell.
    fn topology(&self) -> Result<Topology>;

    /// Waits until a device reports something by itself, for `wait` at most; returns what was
    /// reported, nothing after a quiet wait.
    ///
    /// # Errors
    /// `Machine` when no driver answers; `Unsupported` where nothing is ever reported.
    fn events(&self, wait: Duration) -> Result<Vec<DeviceEvent>>;

    /// Resets a device that nobody uses.
    ///
    /// # Errors
    /// `Device(InUse)` when somebody does, with the driver's refusal as the text.
    fn reset(&self, device: &DeviceId, token: &ActToken) -> Result<()>;

    /// Looks once at all devices, with the groups of details that are asked for.
    ///
    /// It never fails: what could not be learned is a fault at the place that it spoils. Asks the
    /// calls above one after the other; a backend that can answer the whole in one does so.
    fn look(&self, groups: Groups) -> Inventory {
        inventory::take(self, groups)
    }

    /// Returns the children of the calling process that it keeps for its work, and that live.
    fn helpers(&self) -> Vec<Pid> {
        Vec::new()
    }
}
