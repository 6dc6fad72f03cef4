//! One device, and how a question is put to it.

use crate::call::{Answer, Caller, reading};
use gpu_core::Reading;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlDevice_t;

/// NVML's name of a device, good until it is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) nvmlDevice_t);

// SAFETY: it is a token that only NVML looks into, and NVML may be called from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// A device that can be asked.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) nvml: &'a Nvml,
    pub(crate) handle: Handle,
    pub(crate) index: u32,
}

impl Device<'_> {
    /// Returns it as nvml-wrapper has it.
    pub(crate) fn wrapped(&self) -> nvml_wrapper::Device<'_> {
        // SAFETY: the handle is of the initialisation that `nvml` is.
        unsafe { nvml_wrapper::Device::new(self.handle.0, self.nvml) }
    }

    /// Asks nvml-wrapper one question; `function` is what it calls for that.
    pub(crate) fn ask<T>(
        &self,
        function: &'static str,
        wish: &'static str,
        question: impl FnOnce(&nvml_wrapper::Device<'_>) -> Result<T, NvmlError>,
    ) -> Answer<T> {
        let device = self.wrapped();
        self.caller.call(function, wish, Some(self.index), || question(&device))
    }

    /// Asks for one value, or why it is absent; the arguments are those of [`ask`](Self::ask).
    ///
    /// # Errors
    /// The failure of the device or the machine, when the code tells of one.
    pub(crate) fn value<T>(
        &self,
        function: &'static str,
        wish: &'static str,
        question: impl FnOnce(&nvml_wrapper::Device<'_>) -> Result<T, NvmlError>,
    ) -> gpu_core::Result<Reading<T>> {
        reading(self.ask(function, wish, question))
    }
}
