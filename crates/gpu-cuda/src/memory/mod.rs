//! Device memory with `cuMemAlloc`, and with virtual memory.

mod paging;

use crate::code::of_device;
use crate::contexts::{CudaContexts, RetainedContext};
use crate::driver::require;
use cudarc::driver::{DriverError, result, sys};
use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceMemory, DeviceUuid, Error, ErrorKind, MemoryInfo, Region,
    Result,
};
use paging::Paging;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Functions for plain memory.
const FUNCTIONS: &[&str] = &[
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
];

/// The memory of one NVIDIA device, for the calling process.
///
/// It retains the primary CUDA context of the device, which occupies some memory. Dropping it frees
/// all remaining memory. `cuMemFree` waits for submitted work; unmapping does not, so the caller
/// must synchronise before unmapping pages.
#[derive(Debug)]
pub struct CudaMemory {
    /// `None` without virtual memory.
    paging: Option<Paging>,
    held: RetainedContext,
    taken: Mutex<Taken>,
    /// Keeps the context of `held` alive.
    _contexts: CudaContexts,
}

#[derive(Debug, Default)]
struct Taken {
    /// Sizes of regions, by address.
    regions: BTreeMap<u64, u64>,
    /// Address ranges, by address.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Debug)]
struct Range {
    size: u64,
    /// Addresses of the mapped pages.
    mapped: BTreeSet<u64>,
}

impl CudaMemory {
    /// Opens the memory of `device`, which must be visible to the calling process
    /// (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    /// Like [`CudaContexts::hold`].
    pub fn open(device: &DeviceUuid) -> Result<Self> {
        let contexts = CudaContexts::hold(std::slice::from_ref(device))?;
        let none = || Error::new(ErrorKind::Invalid, format!("open the memory of {device}"));
        let held = *contexts.held().first().ok_or_else(none)?;
        require(FUNCTIONS)?;
        let paging = Paging::of(held);
        let taken = Mutex::default();
        Ok(CudaMemory { paging, held, taken, _contexts: contexts })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` with the context current on this thread.
    fn call<T>(
        &self,
        what: impl Fn() -> String,
        call: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T> {
        self.held.with(call).map_err(|code| of_device(code, what()))
    }

    fn paging(&self, what: impl Fn() -> String) -> Result<Paging> {
        self.paging.ok_or_else(|| {
            let why = "driver or device does not support virtual memory management";
            Error::new(ErrorKind::Unsupported, what()).with_source(why)
        })
    }

    fn unmap_pages(&self, part: Region, what: impl Fn() -> String) -> Result<()> {
        let size = length(part.size.0)?;
        // SAFETY: every page of the part was mapped separately.
        self.call(what, || unsafe { sys::cuMemUnmap(part.address, size) }.result())
    }
}

impl Taken {
    /// Returns the range that contains a part.
    fn range(&mut self, part: Region) -> Option<&mut Range> {
        let (start, range) = self.ranges.range_mut(..=part.address).next_back()?;
        let end = part.address.checked_add(part.size.0)?;
        (end <= start + range.size).then_some(range)
    }
}

/// Returns the memory of the current context's device.
pub(crate) fn current_memory() -> Result<MemoryInfo, DriverError> {
    let (free, total) = result::mem_get_info()?;
    let (free, total) = (Bytes(free as u64), Bytes(total as u64));
    let used = Ok(total.saturating_sub(free));
    Ok(MemoryInfo { total: Ok(total), used, reserved: Err(Absent::NotSupported) })
}

impl DeviceMemory for CudaMemory {
    fn info(&self) -> Result<MemoryInfo> {
        let what = || "query the memory of the device".to_owned();
        self.call(what, current_memory)
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes", size.0);
        if size.0 == 0 {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        let bytes = length(size.0)?;
        // SAFETY: the memory is not read here.
        let address = self.call(what, || unsafe { result::malloc_sync(bytes) })?;
        self.lock().regions.insert(address, size.0);
        Ok(Region { address, size })
    }

    fn release(&self, region: Region) -> Result<()> {
        let what = || format!("release the region at {:#x}", region.address);
        let mut taken = self.lock();
        if taken.regions.get(&region.address) != Some(&region.size.0) {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        // SAFETY: the region was allocated here and has not been freed.
        self.call(what, || unsafe { result::free_sync(region.address) })?;
        taken.regions.remove(&region.address);
        Ok(())
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes of addresses", size.0);
        let paging = self.paging(what)?;
        if size.0 == 0 || !size.0.is_multiple_of(paging.page) {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        let bytes = length(size.0)?;
        // SAFETY: the context is current.
        let address = self.call(what, || unsafe { paging.reserve(bytes) })?;
        self.lock().ranges.insert(address, Range { size: size.0, mapped: BTreeSet::new() });
        Ok(Region { address, size })
    }

    /// Allocates memory for each page separately: the driver unmaps only whole mappings, but
    /// callers may unmap any pages.
    fn map(&self, part: Region) -> Result<()> {
        let what = || format!("map {} bytes at {:#x}", part.size.0, part.address);
        let paging = self.paging(what)?;
        let mut taken = self.lock();
        let range = taken.range(part).filter(|_| paging.whole(part));
        let range =
            range.filter(|range| !paging.pages(part).any(|page| range.mapped.contains(&page)));
        let Some(range) = range else { return Err(Error::new(ErrorKind::Invalid, what())) };
        let bytes = length(part.size.0)?;
        let mut done = 0;
        let pages = paging.pages(part).try_for_each(|page| {
            // SAFETY: the context is current; the page lies in a range reserved here and has no
            // memory.
            self.call(what, || unsafe { paging.map_page(page) })?;
            done += paging.page;
            Ok(())
        });
        let mapped = pages.and_then(|()| {
            // SAFETY: the context is current, and all of the part is mapped.
            self.call(what, || unsafe { paging.allow(part.address, bytes) })
        });
        if mapped.is_err() && done > 0 {
            // Undo the partial mapping. If this fails too, the memory ends with the context.
            let _ = self.unmap_pages(Region { size: Bytes(done), ..part }, what);
            return mapped;
        }
        mapped?;
        range.mapped.extend(paging.pages(part));
        Ok(())
    }

    fn unmap(&self, part: Region) -> Result<()> {
        let what = || format!("unmap {} bytes at {:#x}", part.size.0, part.address);
        let paging = self.paging(what)?;
        let mut taken = self.lock();
        let range = taken.range(part).filter(|_| paging.whole(part));
        let range =
            range.filter(|range| paging.pages(part).all(|page| range.mapped.contains(&page)));
        let Some(range) = range else { return Err(Error::new(ErrorKind::Invalid, what())) };
        self.unmap_pages(part, what)?;
        for page in paging.pages(part) {
            range.mapped.remove(&page);
        }
        Ok(())
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        let what = || format!("release the addresses at {:#x}", range.address);
        let paging = self.paging(what)?;
        let mut taken = self.lock();
        let own = taken.ranges.get_mut(&range.address).filter(|own| own.size == range.size.0);
        let Some(own) = own else { return Err(Error::new(ErrorKind::Invalid, what())) };
        while let Some(page) = own.mapped.first().copied() {
            let part = Region { address: page, size: Bytes(paging.page) };
            self.unmap_pages(part, what)?;
            own.mapped.remove(&page);
        }
        let bytes = length(range.size.0)?;
        // SAFETY: the range was reserved here with this size and has no mapped pages.
        self.call(what, || unsafe { sys::cuMemAddressFree(range.address, bytes) }.result())?;
        taken.ranges.remove(&range.address);
        Ok(())
    }

    fn page(&self) -> Result<Bytes> {
        self.paging(|| "query the page size".to_owned()).map(|paging| Bytes(paging.page))
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let taken = self.lock();
        let region = |(at, size): (&u64, u64)| Region { address: *at, size: Bytes(size) };
        let regions: Vec<_> = taken.regions.iter().map(|(at, size)| region((at, *size))).collect();
        let ranges: Vec<_> =
            taken.ranges.iter().map(|(at, range)| region((at, range.size))).collect();
        drop(taken);
        // If this fails, the memory ends with the process.
        for region in regions {
            let _ = self.release(region);
        }
        for range in ranges {
            let _ = self.release_addresses(range);
        }
    }
}

/// Returns a size as `usize`; no device has more memory than fits in it.
pub(crate) fn length(size: u64) -> Result<usize> {
    let none = |_| Error::new(DeviceFault::OutOfMemory, format!("allocate {size} bytes"));
    usize::try_from(size).map_err(none)
}
