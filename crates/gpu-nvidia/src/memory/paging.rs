//! Virtual memory of the CUDA Driver API: what is called of it, and its structs.

use crate::cuda::{Held, find};
use gpu_core::Region;
use libloading::Library;
use std::ffi::{c_int, c_uchar, c_ulonglong, c_ushort, c_void};

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`
const VIRTUAL_MEMORY: c_int = 102;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_AND_WRITE: c_int = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
const SMALLEST: c_int = 0;

/// Virtual memory: the functions that are called, and the size of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging {
    pub(super) page: u64,
    pub(super) reserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, c_ulonglong) -> c_int,
    pub(super) release: unsafe extern "C" fn(u64, usize) -> c_int,
    pub(super) create:
        unsafe extern "C" fn(*mut u64, usize, *const Properties, c_ulonglong) -> c_int,
    pub(super) discard: unsafe extern "C" fn(u64) -> c_int,
    pub(super) map: unsafe extern "C" fn(u64, usize, usize, u64, c_ulonglong) -> c_int,
    pub(super) allow: unsafe extern "C" fn(u64, usize, *const Access, usize) -> c_int,
    pub(super) unmap: unsafe extern "C" fn(u64, usize) -> c_int,
}

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Location {
    kind: c_int,
    device: c_int,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    windows: *mut c_void,
    compression: c_uchar,
    remote_access: c_uchar,
    usage: c_ushort,
    reserved: [c_uchar; 4],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    location: Location,
    flags: c_int,
}

impl Paging {
    /// Returns what there is of virtual memory; nothing where the driver is too old or the device
    /// has none.
    pub(super) fn of(library: &Library, held: Held) -> Option<Self> {
        type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
        type Granularity = unsafe extern "C" fn(*mut usize, *const Properties, c_int) -> c_int;
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: in the CUDA Driver API this name is of the type of its place.
                unsafe { find(library, &[$name]) }.ok()?
            };
        }
        let attribute: Attribute = find!(c"cuDeviceGetAttribute");
        let mut supported = 0;
        // SAFETY: the driver gave the device; the value is filled in.
        let code = unsafe { attribute(&mut supported, VIRTUAL_MEMORY, held.device) };
        if code != 0 || supported == 0 {
            return None;
        }
        let granularity: Granularity = find!(c"cuMemGetAllocationGranularity");
        let properties = Properties::of(held.device);
        let mut page = 0;
        // SAFETY: the size is filled in; the properties are whole and only read.
        let code = unsafe { granularity(&mut page, &properties, SMALLEST) };
        if code != 0 || page == 0 {
            return None;
        }
        Some(Paging {
            page: page as u64,
            reserve: find!(c"cuMemAddressReserve"),
            release: find!(c"cuMemAddressFree"),
            create: find!(c"cuMemCreate"),
            discard: find!(c"cuMemRelease"),
            map: find!(c"cuMemMap"),
            allow: find!(c"cuMemSetAccess"),
            unmap: find!(c"cuMemUnmap"),
        })
    }

    pub(super) fn pages(self, part: Region) -> impl Iterator<Item = u64> {
        (0..part.size.0 / self.page).map(move |number| part.address + number * self.page)
    }

    pub(super) fn whole(self, part: Region) -> bool {
        let whole = |number: u64| number.is_multiple_of(self.page);
        part.size.0 > 0 && whole(part.size.0) && whole(part.address)
    }
}

impl Properties {
    pub(super) fn of(device: c_int) -> Self {
        Properties {
            kind: PINNED,
            handles: 0,
            location: Location { kind: ON_DEVICE, device },
            windows: std::ptr::null_mut(),
            compression: 0,
            remote_access: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

impl Access {
    /// Returns the right of a device to read and write its own memory.
    pub(super) fn of(device: c_int) -> Self {
        Access { location: Location { kind: ON_DEVICE, device }, flags: READ_AND_WRITE }
    }
}
