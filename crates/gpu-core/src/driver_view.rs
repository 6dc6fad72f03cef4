//! The port to what the kernel knows of the devices, without a query of their driver.

use crate::absent::Absent;
use crate::device::DeviceInfo;
use crate::driver_message::DriverMessage;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::memory_source::HostMemory;

/// Reads what the kernel knows of the devices, without a query of the driver's library.
pub trait DriverView: Send + Sync {
    /// Returns the devices that the kernel modules list, without any other query: this works when
    /// a driver does not answer. They are in the order of the drivers, and for each in the order of
    /// PCI addresses; a driver has none without its module.
    ///
    /// # Errors
    /// `Io` when a module's list cannot be read.
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Returns the devices, by index, if the kernel has suspended all of them: a query of a driver
    /// would wake them. Does not query any driver.
    fn sleeping_devices(&self) -> Option<Vec<DeviceId>> {
        None
    }

    /// Returns the memory of the host, or of a NUMA node without CPUs, which belongs to a device.
    ///
    /// # Errors
    /// `Invalid` for a node with CPUs; `Field` and `Io` if the kernel does not report it.
    fn host_memory(&self, node: Option<u32>) -> Result<HostMemory> {
        let _ = node;
        Err(Error::new(Absent::NotSupported, "read the memory of the host"))
    }

    /// Returns the driver's error messages that the kernel log of this boot still has, oldest
    /// first.
    ///
    /// # Errors
    /// `Field(NotPermitted)` when the caller may not read the log, `Field(NotFound)` when there is
    /// no log here, and `TimedOut` when it is too long to read; `Io` otherwise.
    fn driver_messages(&self) -> Result<Vec<DriverMessage>>;
}
