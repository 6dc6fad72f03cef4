//! The port to device memory.

use crate::device::MemoryInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::units::Bytes;

/// A region of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its start, in the device's address space.
    pub address: u64,
    /// Its length.
    pub size: Bytes,
}

/// Allocates and frees memory of one device.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait DeviceMemory: Send + Sync {
    /// Returns the current memory of the device.
    ///
    /// # Errors
    /// `Device` when the device is lost.
    fn info(&self) -> Result<MemoryInfo>;

    /// Allocates `size` bytes; the region is aligned to at least 256 bytes.
    ///
    /// # Errors
    /// `Device(OutOfMemory)` when the device has no such region; `Invalid` for zero bytes.
    fn reserve(&self, size: Bytes) -> Result<Region>;

    /// Frees a whole region.
    ///
    /// # Errors
    /// `Invalid` for a region that [`reserve`](DeviceMemory::reserve) did not return or that was
    /// already freed.
    fn release(&self, region: Region) -> Result<()>;

    /// Reserves an address range without memory (`cuMemAddressReserve`); it starts and ends at a
    /// page.
    ///
    /// # Errors
    /// `Unsupported` if the device has no virtual memory management, `Device(OutOfMemory)` when no
    /// such range is left, `Invalid` for a size that is not a multiple of the page size.
    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        Err(unsupported(format!("reserve {} bytes of addresses", size.0)))
    }

    /// Maps memory to a part of a range that [`reserve_addresses`] returned (`cuMemCreate`,
    /// `cuMemMap`); the part consists of whole pages and has no memory yet.
    ///
    /// # Errors
    /// `Device(OutOfMemory)` when the device has too little memory, `Invalid` for a part outside
    /// such a range or already mapped, `Unsupported` as above.
    ///
    /// [`reserve_addresses`]: DeviceMemory::reserve_addresses
    fn map(&self, part: Region) -> Result<()> {
        Err(unsupported(format!("map {} bytes at {:#x}", part.size.0, part.address)))
    }

    /// Frees the memory of a part of a range; all of its pages must be mapped.
    ///
    /// # Errors
    /// `Invalid` if a page of the part is not mapped, `Unsupported` as above.
    fn unmap(&self, part: Region) -> Result<()> {
        Err(unsupported(format!("unmap {} bytes at {:#x}", part.size.0, part.address)))
    }

    /// Frees a whole address range, with the memory that is still mapped in it.
    ///
    /// # Errors
    /// `Invalid` for a range that [`reserve_addresses`](DeviceMemory::reserve_addresses) did not
    /// return or that was already freed; `Unsupported` as above.
    fn release_addresses(&self, range: Region) -> Result<()> {
        Err(unsupported(format!("release the addresses at {:#x}", range.address)))
    }

    /// Returns the smallest size that [`map`](DeviceMemory::map) accepts (2 MiB on every NVIDIA
    /// device so far).
    ///
    /// # Errors
    /// `Unsupported` if the device has no virtual memory management.
    fn page(&self) -> Result<Bytes> {
        Err(unsupported("query the page size".to_owned()))
    }
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

impl<M: DeviceMemory + ?Sized> DeviceMemory for std::sync::Arc<M> {
    fn info(&self) -> Result<MemoryInfo> {
        (**self).info()
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        (**self).reserve(size)
    }

    fn release(&self, region: Region) -> Result<()> {
        (**self).release(region)
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        (**self).reserve_addresses(size)
    }

    fn map(&self, part: Region) -> Result<()> {
        (**self).map(part)
    }

    fn unmap(&self, part: Region) -> Result<()> {
        (**self).unmap(part)
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        (**self).release_addresses(range)
    }

    fn page(&self) -> Result<Bytes> {
        (**self).page()
    }
}
