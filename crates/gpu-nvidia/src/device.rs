//! A device and its queries.

use crate::call::{Answer, Caller, reading};
use gpu_core::Reading;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlDevice_t;

/// NVML's handle of a device, valid until NVML is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) nvmlDevice_t);

// SAFETY: only NVML dereferences it, and NVML may be called from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// A device of an initialised NVML.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) nvml: &'a Nvml,
    pub(crate) handle: Handle,
    pub(crate) index: u32,
}

impl Device<'_> {
    /// Returns the device as nvml-wrapper's type.
    pub(crate) fn wrapped(&self) -> nvml_wrapper::Device<'_> {
        // SAFETY: the handle belongs to the initialisation of `nvml`.
        unsafe { nvml_wrapper::Device::new(self.handle.0, self.nvml) }
    }

    /// Runs one query of nvml-wrapper, which calls the NVML function `function`.
    pub(crate) fn query<T>(
        &self,
        function: &'static str,
        purpose: &'static str,
        call: impl FnOnce(&nvml_wrapper::Device<'_>) -> Result<T, NvmlError>,
    ) -> Answer<T> {
        let device = self.wrapped();
        self.caller.call(function, purpose, Some(self.index), || call(&device))
    }

    /// Returns one value, or the reason for its absence. The arguments are those of
    /// [`query`](Self::query).
    ///
    /// # Errors
    /// The failure, if its code concerns the device or the machine.
    pub(crate) fn value<T>(
        &self,
        function: &'static str,
        purpose: &'static str,
        call: impl FnOnce(&nvml_wrapper::Device<'_>) -> Result<T, NvmlError>,
    ) -> gpu_core::Result<Reading<T>> {
        reading(self.query(function, purpose, call))
    }
}
