//! The driver: checks for it and its functions, and its devices by UUID.
//!
//! cudarc loads one driver per process and keeps it loaded. To load another driver, as tests do,
//! set `LD_LIBRARY_PATH` before the process starts.

use crate::code::{of_device, of_machine};
use cudarc::driver::{CudaContext, DriverError, result, sys};
use gpu_core::{Absent, DeviceUuid, Error, ErrorKind, MachineFault, Result};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Functions that find devices and retain their primary contexts; those with two versions follow.
const CONTEXTS: &[&str] =
    &["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"];
const UUID: [&str; 2] = ["cuDeviceGetUuid_v2", "cuDeviceGetUuid"];
const RELEASE: [&str; 2] = ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"];

/// The newest functions that cudarc calls for contexts, streams, events, copies, kernels and
/// stream-ordered memory. A driver with these functions also has the others, which are older.
const OPEN: &[&str] = &["cuDevicePrimaryCtxRelease_v2", "cuMemAllocAsync", "cuMemFreeAsync"];

/// A device that is visible to this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: c_int,
    pub(crate) handle: sys::CUdevice,
    uuid: [u8; 16],
}

/// Opens cudarc's primary context of `device`, which must be visible to the calling process
/// (`CUDA_VISIBLE_DEVICES`). It creates streams, events, memory and kernels. Other parts of cudarc
/// (graphs, managed memory) may need a newer driver, and panic if a function is missing.
///
/// # Errors
/// `Machine(NoLibrary)` without a driver; `Field(TooOld)` when the driver lacks a function, as
/// drivers before CUDA 11.2 do; `Invalid` for a device that is not visible to this process;
/// `Machine` and `Device` for CUDA's error codes.
pub fn open(device: &DeviceUuid) -> Result<Arc<CudaContext>> {
    let what = || format!("create a CUDA context on {device}");
    let found = find(device, what)?;
    require(OPEN)?;
    let ordinal = usize::try_from(found.ordinal).unwrap_or_default();
    CudaContext::new(ordinal).map_err(|code| of_device(code, what()))
}

/// Returns the device with this UUID; `what` is the fragment for the error.
///
/// # Errors
/// Like [`open`].
pub(crate) fn find(device: &DeviceUuid, what: impl Fn() -> String) -> Result<Device> {
    let found = devices()?.into_iter().find(|found| is_named(device, &found.uuid));
    found.ok_or_else(|| {
        let why = "no such device is visible to this process (CUDA_VISIBLE_DEVICES)";
        Error::new(ErrorKind::Invalid, what()).with_source(why)
    })
}

/// Returns the devices that are visible to this process.
fn devices() -> Result<Vec<Device>> {
    require(CONTEXTS)?;
    for versions in [UUID, RELEASE] {
        if !versions.iter().any(|name| has(name)) {
            return Err(too_old(versions[0]));
        }
    }
    let failed = |code| of_machine(code, "list CUDA devices".to_owned());
    result::init().map_err(failed)?;
    let count = result::device::get_count().map_err(failed)?;
    let device = |ordinal| {
        let handle = result::device::get(ordinal)?;
        Ok(Device { ordinal, handle, uuid: uuid(handle)? })
    };
    (0..count).map(device).collect::<Result<_, DriverError>>().map_err(failed)
}

/// Returns a device's UUID. The second version of the function returns that of the MIG device, the
/// first version that of its parent.
fn uuid(device: sys::CUdevice) -> Result<[u8; 16], DriverError> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    if has(UUID[0]) {
        // SAFETY: the driver returned the device; the UUID is filled in.
        unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }.result()?;
    } else {
        uuid = result::device::get_uuid(device)?;
    }
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// Releases a primary context.
///
/// # Errors
/// The driver's error codes.
///
/// # Safety
/// The context was retained once for this release and is not used through that reference again.
pub(crate) unsafe fn release(device: sys::CUdevice) -> Result<(), DriverError> {
    if has(RELEASE[0]) {
        // SAFETY: the caller guarantees it.
        return unsafe { result::primary_ctx::release(device) };
    }
    // Drivers before CUDA 11 have only the first version, which cudarc does not declare.
    type Release = unsafe extern "C" fn(sys::CUdevice) -> sys::CUresult;
    // SAFETY: the library is loaded, because the context was retained through it.
    let library = unsafe { sys::culib() };
    // SAFETY: in the CUDA Driver API the name is of this type.
    let release = unsafe { library.get::<Release>(RELEASE[1].as_bytes()) };
    match release {
        // SAFETY: the caller guarantees it.
        Ok(release) => unsafe { release(device) }.result(),
        Err(_) => Ok(()),
    }
}

/// Checks that there is a driver and that it has all these functions.
///
/// # Errors
/// `Machine(NoLibrary)` and `Field(TooOld)`.
pub(crate) fn require(functions: &[&str]) -> Result<()> {
    if !is_present() {
        let why = "the dynamic loader cannot find libcuda.so or libcuda.so.1";
        return Err(Error::new(MachineFault::NoLibrary, "load the CUDA driver").with_source(why));
    }
    match functions.iter().find(|name| !has(name)) {
        Some(missing) => Err(too_old(missing)),
        None => Ok(()),
    }
}

fn too_old(function: &str) -> Error {
    Error::new(Absent::TooOld, format!("find {function} in the CUDA driver"))
}

/// Returns whether a driver is installed. A positive answer is cached, because the library stays
/// loaded.
fn is_present() -> bool {
    static PRESENT: AtomicBool = AtomicBool::new(false);
    // SAFETY: loading runs the library's constructors. It is the driver's own library, found by
    // the system's loader.
    PRESENT.load(Ordering::Relaxed)
        || unsafe { sys::is_culib_present() } && {
            PRESENT.store(true, Ordering::Relaxed);
            true
        }
}

/// Returns whether the driver has a function. The caller has checked that there is a driver.
pub(crate) fn has(function: &str) -> bool {
    // SAFETY: the callers have checked for the driver, so this does not panic.
    let library = unsafe { sys::culib() };
    // SAFETY: the function is looked up and not called.
    unsafe { library.get::<unsafe extern "C" fn()>(function.as_bytes()) }.is_ok()
}

/// Returns whether these bytes are the UUID, which is in NVML's form.
fn is_named(uuid: &DeviceUuid, bytes: &[u8; 16]) -> bool {
    let text = uuid.0.strip_prefix("GPU-").or_else(|| uuid.0.strip_prefix("MIG-"));
    let digits = text.map(|text| text.replace('-', "").to_ascii_lowercase());
    digits.is_some_and(|digits| digits == format!("{:032x}", u128::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_compared_as_nvml_writes_them() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xab, 0x29];
        let named = |text: &str| is_named(&DeviceUuid(text.into()), &bytes);
        assert!(named("GPU-00010203-0405-0607-0809-0a0b0c0dAB29"));
        assert!(named("MIG-00010203-0405-0607-0809-0a0b0c0dab29"));
        assert!(!named("GPU-00010203-0405-0607-0809-0a0b0c0dab28"));
        assert!(!named("00010203-0405-0607-0809-0a0b0c0dab29"));
    }
}
