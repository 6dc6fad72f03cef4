//! The port to device memory.

use crate::device::MemoryInfo;
use crate::error::{Error, ErrorKind, Result};
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

    /// Takes a range of addresses that has no memory yet (`cuMemAddressReserve`); it begins and
    /// ends at a page.
    ///
    /// # Errors
    /// `Unsupported` where the device has no virtual memory management, `Device(OutOfMemory)` when
    /// no such range is left, `Invalid` for a size that is not of whole pages.
    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        Err(unsupported(format!("reserve {} bytes of addresses", size.0)))
    }

    /// Puts memory behind a part of a range that [`reserve_addresses`] returned (`cuMemCreate`,
    /// `cuMemMap`); the part is of whole pages and has no memory yet.
    ///
    /// # Errors
    /// `Device(OutOfMemory)` when the device has not that much, `Invalid` for a part that is not of
    /// such a range or has memory already, `Unsupported` as above.
    ///
    /// [`reserve_addresses`]: DeviceMemory::reserve_addresses
    fn map(&self, part: Region) -> Result<()> {
        Err(unsupported(format!("map {} bytes at {:#x}", part.size.0, part.address)))
    }

    /// Gives the memory behind a part of a range back; each of its pages was mapped.
    ///
    /// # Errors
    /// `Invalid` where a page of the part is not mapped, `Unsupported` as above.
    fn unmap(&self, part: Region) -> Result<()> {
        Err(unsupported(format!("unmap {} bytes at {:#x}", part.size.0, part.address)))
    }

    /// Gives a range of addresses back, whole, with the memory that is still behind it.
    ///
    /// # Errors
    /// `Invalid` for a range that [`reserve_addresses`](DeviceMemory::reserve_addresses) did not
    /// return or that was given back before; `Unsupported` as above.
    fn release_addresses(&self, range: Region) -> Result<()> {
        Err(unsupported(format!("release the addresses at {:#x}", range.address)))
    }

    /// Returns the smallest piece that [`map`](DeviceMemory::map) takes (2 MiB on every NVIDIA
    /// device so far).
    ///
    /// # Errors
    /// `Unsupported` where the device has no virtual memory management.
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
