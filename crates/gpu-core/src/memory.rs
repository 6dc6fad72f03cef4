//! The port to device memory.

use crate::device::MemoryInfo;
use crate::error::Result;
use crate::units::Bytes;

/// A piece of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Where it begins, in the device's address space.
    pub address: u64,
    /// How long it is.
    pub size: Bytes,
}

/// Takes memory of one device and gives it back.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait DeviceMemory: Send + Sync {
    /// Returns the memory of the device as it is now.
    ///
    /// # Errors
    /// `Device` when the device is lost.
    fn info(&self) -> Result<MemoryInfo>;

    /// Takes `size` bytes; the region is aligned to 256 bytes at least.
    ///
    /// # Errors
    /// `Device(OutOfMemory)` when the device has no such piece; `Invalid` for no bytes.
    fn reserve(&self, size: Bytes) -> Result<Region>;

    /// Gives a region back, whole.
    ///
    /// # Errors
    /// `Invalid` for a region that [`reserve`](DeviceMemory::reserve) did not return or that was
    /// given back before.
    fn release(&self, region: Region) -> Result<()>;
}
