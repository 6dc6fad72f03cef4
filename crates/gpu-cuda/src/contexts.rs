//! CUDA contexts that hold devices.
//!
//! Nothing runs in them. A device on which a process has a context is in use for everybody who
//! asks NVML or nvidia-smi, safe-gpu among them.

use crate::code::of_device;
use crate::driver::{self, find};
use cudarc::driver::{DriverError, result, sys};
use gpu_core::{DeviceUuid, Result};

/// A context on each of some devices, gone when this is dropped or the process ends.
///
/// cudarc's own context is not used for these: it needs functions that drivers before CUDA 11.2
/// lack.
#[derive(Debug)]
pub struct CudaContexts {
    held: Vec<Held>,
}

/// A device on which a context is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: the handle is only given to the driver, which lets any thread use any context.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl CudaContexts {
    /// Makes a context (the primary one) on each of `devices`, of which the calling process must
    /// see all (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    /// `Machine(NoLibrary)` without a driver; `Invalid` for a device that this process does not
    /// see; `Field(TooOld)` when the driver lacks a function; `Machine` and `Device` as CUDA
    /// answers. Nothing is held then.
    pub fn hold(devices: &[DeviceUuid]) -> Result<Self> {
        let mut contexts = CudaContexts { held: Vec::new() };
        for uuid in devices {
            let what = || format!("create a CUDA context on {uuid}");
            let device = find(uuid, what)?.handle;
            // SAFETY: the driver gave the device.
            let context = unsafe { result::primary_ctx::retain(device) };
            let context = context.map_err(|code| of_device(code, what()))?;
            contexts.held.push(Held { device, context });
        }
        Ok(contexts)
    }

    /// Returns what is held, in the order in which it was asked for.
    pub(crate) fn held(&self) -> &[Held] {
        &self.held
    }
}

impl Drop for CudaContexts {
    fn drop(&mut self) {
        for Held { device, .. } in self.held.drain(..) {
            // SAFETY: its context was retained once and not released yet. Where that fails, it
            // goes with the process.
            let _ = unsafe { driver::release(device) };
        }
    }
}

impl Held {
    /// Makes calls with the context current on this thread.
    pub(crate) fn with<T>(
        self,
        calls: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        // SAFETY: the context is held.
        unsafe { sys::cuCtxPushCurrent_v2(self.context) }.result()?;
        let done = calls();
        let mut popped = std::ptr::null_mut();
        // SAFETY: the place for the context is lent; what was pushed is on top.
        let left = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }.result();
        let done = done?;
        left.map(|()| done)
    }
}
