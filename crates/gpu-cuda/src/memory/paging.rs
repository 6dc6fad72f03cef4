//! Virtual memory management of the CUDA Driver API.
//!
//! cudarc declares only its functions and structs.

use crate::contexts::RetainedContext;
use crate::driver::has;
use cudarc::driver::{DriverError, result, sys};
use gpu_core::Region;
use std::ffi::c_int;

const FUNCTIONS: &[&str] = &[
    "cuDeviceGetAttribute",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
];

/// Virtual memory of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paging {
    pub(super) page: u64,
    device: c_int,
}

impl Paging {
    /// Returns the virtual memory of a device; `None` if the driver is too old or the device does
    /// not support it.
    pub(super) fn of(held: RetainedContext) -> Option<Self> {
        if !FUNCTIONS.iter().all(|name| has(name)) {
            return None;
        }
        let attribute =
            sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED;
        // SAFETY: the driver returned the device.
        let supported = unsafe { result::device::get_attribute(held.device, attribute) };
        if supported.unwrap_or(0) == 0 {
            return None;
        }
        let smallest = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let properties = properties(held.device);
        let mut page = 0;
        // SAFETY: the size is filled in; the properties are complete and only read.
        let queried =
            unsafe { sys::cuMemGetAllocationGranularity(&mut page, &properties, smallest) };
        (queried.result().is_ok() && page > 0)
            .then_some(Paging { page: page as u64, device: held.device })
    }

    pub(super) fn pages(self, part: Region) -> impl Iterator<Item = u64> {
        (0..part.size.0 / self.page).map(move |number| part.address + number * self.page)
    }

    pub(super) fn whole(self, part: Region) -> bool {
        let whole = |number: u64| number.is_multiple_of(self.page);
        part.size.0 > 0 && whole(part.size.0) && whole(part.address)
    }

    /// Reserves a range of addresses.
    ///
    /// # Safety
    /// A context of the device is current.
    pub(super) unsafe fn reserve(self, size: usize) -> Result<u64, DriverError> {
        let mut address = 0;
        let alignment = self.page as usize;
        // SAFETY: the address is filled in.
        unsafe { sys::cuMemAddressReserve(&mut address, size, alignment, 0, 0) }.result()?;
        Ok(address)
    }

    /// Maps memory to one page.
    ///
    /// # Safety
    /// A context of the device is current; the page lies in a reserved range and has no memory.
    pub(super) unsafe fn map_page(self, page: u64) -> Result<(), DriverError> {
        let (properties, size) = (properties(self.device), self.page as usize);
        let mut handle = 0;
        // SAFETY: the handle is filled in; the properties are complete and only read.
        unsafe { sys::cuMemCreate(&mut handle, size, &properties, 0) }.result()?;
        // SAFETY: the caller guarantees it.
        let mapped = unsafe { sys::cuMemMap(page, size, 0, handle, 0) }.result();
        // SAFETY: the handle was created above. Mapped memory does not need the handle.
        let discarded = unsafe { sys::cuMemRelease(handle) }.result();
        if discarded.is_err() {
            if mapped.is_ok() {
                // A page whose mapping is reported as failed must have no memory.
                // SAFETY: the page was mapped above.
                unsafe { sys::cuMemUnmap(page, size) };
            }
            // SAFETY: the handle has not been released. If this fails again, its memory ends with
            // the context.
            unsafe { sys::cuMemRelease(handle) };
        }
        mapped.and(discarded)
    }

    /// Gives the device read and write access to mapped pages.
    ///
    /// # Safety
    /// A context of the device is current, and all of the part is mapped.
    pub(super) unsafe fn allow(self, address: u64, size: usize) -> Result<(), DriverError> {
        let access = sys::CUmemAccessDesc {
            location: location(self.device),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the caller guarantees it; the description is complete and only read.
        unsafe { sys::cuMemSetAccess(address, size, &access, 1) }.result()
    }
}

fn location(device: c_int) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

fn properties(device: c_int) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
