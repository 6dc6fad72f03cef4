//! Idle CUDA contexts that mark devices as in use.
//!
//! NVML and nvidia-smi, and therefore safe-gpu, report a device as in use while a process has a
//! context on it.

use crate::code::of_device;
use crate::driver::{self, find};
use cudarc::driver::{DriverError, result, sys};
use gpu_core::{DeviceUuid, Result};

/// A context on each of several devices, until this is dropped or the process ends.
///
/// It does not use cudarc's own context, which needs functions that drivers before CUDA 11.2 lack.
#[derive(Debug)]
pub struct CudaContexts {
    held: Vec<RetainedContext>,
}

/// A device on which a context is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedContext {
    pub(crate) device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: the handle is only passed to the driver, which lets any thread use any context.
unsafe impl Send for RetainedContext {}
// SAFETY: as above.
unsafe impl Sync for RetainedContext {}

impl CudaContexts {
    /// Retains the primary context on each of `devices`, all of which must be visible to the
    /// calling process (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    /// `Machine(NoLibrary)` without a driver; `Invalid` for a device that is not visible to this
    /// process; `Field(TooOld)` when the driver lacks a function; `Machine` and `Device` for CUDA's
    /// error codes. No context is kept after an error.
    pub fn hold(devices: &[DeviceUuid]) -> Result<Self> {
        let mut contexts = CudaContexts { held: Vec::new() };
        for uuid in devices {
            let what = || format!("create a CUDA context on {uuid}");
            let device = find(uuid, what)?.handle;
            // SAFETY: the driver returned the device.
            let context = unsafe { result::primary_ctx::retain(device) };
            let context = context.map_err(|code| of_device(code, what()))?;
            contexts.held.push(RetainedContext { device, context });
        }
        Ok(contexts)
    }

    /// Returns the contexts, in the order of the devices passed to [`hold`](Self::hold).
    pub(crate) fn held(&self) -> &[RetainedContext] {
        &self.held
    }
}

impl Drop for CudaContexts {
    fn drop(&mut self) {
        for RetainedContext { device, .. } in self.held.drain(..) {
            // SAFETY: its context was retained once and has not been released. If the release
            // fails, the context ends with the process.
            let _ = unsafe { driver::release(device) };
        }
    }
}

impl RetainedContext {
    /// Runs `calls` with the context current on this thread.
    pub(crate) fn with<T>(
        self,
        calls: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        // SAFETY: the context is held.
        unsafe { sys::cuCtxPushCurrent_v2(self.context) }.result()?;
        let done = calls();
        let mut popped = std::ptr::null_mut();
        // SAFETY: `popped` is filled in; the pushed context is on top of the stack.
        let left = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }.result();
        let done = done?;
        left.map(|()| done)
    }
}
