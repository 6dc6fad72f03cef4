//! The port to what the kernel knows of the devices, without a query of their driver.

use crate::device::DeviceInfo;
use crate::driver_message::DriverMessage;
use crate::error::Result;
use crate::id::DeviceId;

/// Reads what the kernel knows of the devices, without a query of the driver's library.
pub trait DriverView: Send + Sync {
    /// Returns the devices that the kernel module lists, without any other query: this works when
    /// the driver does not answer. They are in the order of their PCI addresses; there are none
    /// without the module.
    ///
    /// # Errors
    /// `Io` when the module's list cannot be read.
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Returns the devices, by index, if the kernel has suspended all of them: a query of the driver
    /// would wake them. Does not query the driver.
    fn sleeping_devices(&self) -> Option<Vec<DeviceId>> {
        None
    }

    /// Returns the driver's error messages that the kernel log of this boot still has, oldest
    /// first.
    ///
    /// # Errors
    /// `Field(NotPermitted)` when the caller may not read the log, `Field(NotFound)` when there is
    /// no log here, and `TimedOut` when it is too long to read; `Io` otherwise.
    fn driver_messages(&self) -> Result<Vec<DriverMessage>>;
}
