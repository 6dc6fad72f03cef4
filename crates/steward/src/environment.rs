//! What a job is told of its devices.

use gpu_core::visible::{self, Form, ORDER, PCI_ORDER, VISIBLE};
use gpu_core::{DeviceState, DeviceUuid, Entry, Result};
use std::ffi::OsString;

/// Names the lease to whoever wants to know it. Nothing rests on it: a variable can be copied.
pub const LEASE: &str = "GPUWS_LEASE";

/// Returns the variables that let a program see the devices of a lease and no others.
///
/// CUDA's order is set to that of PCI addresses even where devices are named by UUID, so that the
/// numbers which a program counts up from 0 are in the order in which nvidia-smi shows them.
///
/// # Errors
/// As [`visible::write`].
pub fn environment(
    lease: &Entry,
    form: Form,
    machine: &[DeviceState],
) -> Result<Vec<(OsString, OsString)>> {
    let devices = visible::write(&lease.devices, form, machine)?;
    let pairs = [(VISIBLE, devices.as_str()), (ORDER, PCI_ORDER), (LEASE, lease.id.as_str())];
    Ok(pairs.map(|(name, value)| (name.into(), value.into())).into())
}

/// Returns the variables that let a placeholder see its device and no other.
pub(crate) fn placeholder_environment(device: &DeviceUuid) -> [(OsString, OsString); 2] {
    [(VISIBLE, device.0.as_str()), (ORDER, PCI_ORDER)]
        .map(|(name, value)| (name.into(), value.into()))
}
