//! Device memory through the CUDA driver's own interface: `DeviceMemory`.
//!
//! The functions are declared here and looked up in a `libcuda` that is loaded at run time, as for
//! [`CudaContexts`]. cudarc was weighed: it loads one library for the whole process, by names of
//! its own, and panics where the library or a function is missing, while a driver may be too old
//! for virtual memory and still give plain memory; its safe layer keeps memory as typed slices of a
//! stream and has nothing for address ranges, so that all that would be used of it is the raw
//! declarations, for which seventeen thousand lines are compiled. And a test could not put a library
//! of its own in the driver's place.

mod paging;

use crate::cuda::{CudaContexts, Held, OUT_OF_MEMORY, check, find};
use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceMemory, DeviceUuid, Error, ErrorKind, MemoryInfo, Region,
    Result,
};
use libloading::Library;
use paging::{Access, Paging, Properties};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

const INVALID_VALUE: c_int = 1;
const NOT_SUPPORTED: c_int = 801;

/// The memory of one NVIDIA device, for the calling process.
///
/// It holds a CUDA context on the device (the primary one), which takes some memory of its own. What
/// is still taken when it is dropped goes back with it. A region is not given back before all work
/// that was submitted has ended (`cuMemFree` waits for it); pages are, so their user must have
/// waited.
#[derive(Debug)]
pub struct CudaMemory {
    calls: Calls,
    /// Absent where driver or device have no virtual memory.
    paging: Option<Paging>,
    held: Held,
    taken: Mutex<Taken>,
    /// What the functions are part of; dropped last.
    _contexts: CudaContexts,
}

#[derive(Debug, Default)]
struct Taken {
    /// Regions, by where they begin.
    regions: BTreeMap<u64, u64>,
    /// Ranges of addresses, by where they begin.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Debug)]
struct Range {
    size: u64,
    /// Where the pages begin that have memory.
    mapped: BTreeSet<u64>,
}

/// The functions of context and memory management that are called.
#[derive(Clone, Copy, Debug)]
struct Calls {
    push: unsafe extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    info: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
}

impl CudaMemory {
    /// Opens the memory of `device`, which the calling process must see (`CUDA_VISIBLE_DEVICES`),
    /// with the `libcuda` at `library`, or the system's.
    ///
    /// # Errors
    /// As [`CudaContexts::hold`].
    pub fn open(library: Option<&Path>, device: &DeviceUuid) -> Result<Self> {
        let contexts = CudaContexts::hold(library, std::slice::from_ref(device))?;
        let none = || Error::new(ErrorKind::Invalid, format!("open the memory of {device}"));
        let held = *contexts.held().first().ok_or_else(none)?;
        let library = contexts.library().ok_or_else(none)?;
        let calls = Calls::of(library)?;
        let paging = Paging::of(library, held);
        let taken = Mutex::default();
        Ok(CudaMemory { calls, paging, held, taken, _contexts: contexts })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call with the context current on this thread.
    fn call(&self, what: impl Fn() -> String, call: impl FnOnce() -> c_int) -> Result<()> {
        // SAFETY: the context is held while this is.
        check(unsafe { (self.calls.push)(self.held.context.0) }, &what, kind_of)?;
        let code = call();
        let mut popped = std::ptr::null_mut();
        // SAFETY: the place for the context is lent; what was pushed is on top.
        let left = unsafe { (self.calls.pop)(&mut popped) };
        check(code, &what, kind_of)?;
        check(left, &what, kind_of)
    }

    fn paging(&self, what: impl Fn() -> String) -> Result<Paging> {
        self.paging.ok_or_else(|| {
            let why = "driver or device does not support virtual memory management";
            Error::new(ErrorKind::Unsupported, what()).with_source(why)
        })
    }

    /// Puts memory behind one page.
    fn map_page(&self, paging: &Paging, page: u64, what: impl Fn() -> String) -> Result<()> {
        let properties = Properties::of(self.held.device);
        let size = length(paging.page)?;
        self.call(what, || {
            let mut handle = 0;
            // SAFETY: the handle is filled in; the properties are whole and only read.
            let created = unsafe { (paging.create)(&mut handle, size, &properties, 0) };
            if created != 0 {
                return created;
            }
            // SAFETY: the page lies in a range that was reserved and has no memory.
            let mapped = unsafe { (paging.map)(page, size, 0, handle, 0) };
            // SAFETY: the handle was created above. Memory that is mapped stays without it.
            let discarded = unsafe { (paging.discard)(handle) };
            if discarded != 0 {
                if mapped == 0 {
                    // A page that is told to have no memory has none.
                    // SAFETY: the page was mapped above.
                    unsafe { (paging.unmap)(page, size) };
                }
                // SAFETY: the handle was not discarded. Where that fails again, its memory goes
                // with the context.
                unsafe { (paging.discard)(handle) };
            }
            if mapped != 0 { mapped } else { discarded }
        })
    }

    fn unmap_pages(&self, paging: &Paging, part: Region, what: impl Fn() -> String) -> Result<()> {
        let size = length(part.size.0)?;
        // SAFETY: every page of the part was mapped, each by itself.
        self.call(what, || unsafe { (paging.unmap)(part.address, size) })
    }
}

impl Calls {
    fn of(library: &Library) -> Result<Self> {
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: in the CUDA Driver API this name is of the type of its field.
                unsafe { find(library, &[$name]) }?
            };
        }
        Ok(Calls {
            push: find!(c"cuCtxPushCurrent_v2"),
            pop: find!(c"cuCtxPopCurrent_v2"),
            info: find!(c"cuMemGetInfo_v2"),
            alloc: find!(c"cuMemAlloc_v2"),
            free: find!(c"cuMemFree_v2"),
        })
    }
}

impl Taken {
    /// Returns the range that a part is of.
    fn range(&mut self, part: Region) -> Option<&mut Range> {
        let (start, range) = self.ranges.range_mut(..=part.address).next_back()?;
        let end = part.address.checked_add(part.size.0)?;
        (end <= start + range.size).then_some(range)
    }
}

impl DeviceMemory for CudaMemory {
    fn info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        let what = || "ask CUDA for the memory of the device".to_owned();
        // SAFETY: both are filled in.
        self.call(what, || unsafe { (self.calls.info)(&mut free, &mut total) })?;
        let (free, total) = (Bytes(free as u64), Bytes(total as u64));
        let used = Ok(total.saturating_sub(free));
        Ok(MemoryInfo { total: Ok(total), used, reserved: Err(Absent::NotSupported) })
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes", size.0);
        if size.0 == 0 {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        let (bytes, mut address) = (length(size.0)?, 0);
        // SAFETY: the address is filled in.
        self.call(what, || unsafe { (self.calls.alloc)(&mut address, bytes) })?;
        self.lock().regions.insert(address, size.0);
        Ok(Region { address, size })
    }

    fn release(&self, region: Region) -> Result<()> {
        let what = || format!("release the region at {:#x}", region.address);
        let mut taken = self.lock();
        if taken.regions.get(&region.address) != Some(&region.size.0) {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        // SAFETY: the region was allocated here and not freed yet.
        self.call(what, || unsafe { (self.calls.free)(region.address) })?;
        taken.regions.remove(&region.address);
        Ok(())
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes of addresses", size.0);
        let paging = self.paging(what)?;
        if size.0 == 0 || !size.0.is_multiple_of(paging.page) {
            return Err(Error::new(ErrorKind::Invalid, what()));
        }
        let (bytes, mut address) = (length(size.0)?, 0);
        let alignment = length(paging.page)?;
        // SAFETY: the address is filled in.
        self.call(what, || unsafe { (paging.reserve)(&mut address, bytes, alignment, 0, 0) })?;
        self.lock().ranges.insert(address, Range { size: size.0, mapped: BTreeSet::new() });
        Ok(Region { address, size })
    }

    /// Each page gets memory of its own, since the driver unmaps only what was mapped at once, and
    /// any pages may be unmapped.
    fn map(&self, part: Region) -> Result<()> {
        let what = || format!("map {} bytes at {:#x}", part.size.0, part.address);
        let paging = self.paging(what)?;
        let mut taken = self.lock();
        let range = taken.range(part).filter(|_| paging.whole(part));
        let range =
            range.filter(|range| !paging.pages(part).any(|page| range.mapped.contains(&page)));
        let Some(range) = range else { return Err(Error::new(ErrorKind::Invalid, what())) };
        let access = Access::of(self.held.device);
        let bytes = length(part.size.0)?;
        let mut done = 0;
        let pages = paging.pages(part).try_for_each(|page| {
            self.map_page(&paging, page, what)?;
            done += paging.page;
            Ok(())
        });
        let mapped = pages.and_then(|()| {
            // SAFETY: all of the part is mapped; the description is whole and only read.
            self.call(what, || unsafe { (paging.allow)(part.address, bytes, &access, 1) })
        });
        if mapped.is_err() && done > 0 {
            // What came of it goes back; where that fails too, it goes with the context.
            let _ = self.unmap_pages(&paging, Region { size: Bytes(done), ..part }, what);
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
        self.unmap_pages(&paging, part, what)?;
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
            self.unmap_pages(&paging, part, what)?;
            own.mapped.remove(&page);
        }
        let bytes = length(range.size.0)?;
        // SAFETY: the range was reserved here with this size, and nothing is behind it any more.
        self.call(what, || unsafe { (paging.release)(range.address, bytes) })?;
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
        // Where that fails, it goes with the process.
        for region in regions {
            let _ = self.release(region);
        }
        for range in ranges {
            let _ = self.release_addresses(range);
        }
    }
}

/// Says what a code is about.
fn kind_of(code: c_int) -> ErrorKind {
    match code {
        OUT_OF_MEMORY => DeviceFault::OutOfMemory.into(),
        INVALID_VALUE => ErrorKind::Invalid,
        NOT_SUPPORTED => ErrorKind::Unsupported,
        code => DeviceFault::Unknown(c_uint::from_ne_bytes(code.to_ne_bytes())).into(),
    }
}

/// Returns a size as C has it; what does not fit there, no device has.
fn length(size: u64) -> Result<usize> {
    let none = |_| Error::new(DeviceFault::OutOfMemory, format!("ask for {size} bytes"));
    usize::try_from(size).map_err(none)
}
