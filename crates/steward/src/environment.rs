//! The environment variables that show a job its devices.

use gpu_core::visible::{self, Form, ORDER, PCI_ORDER, VISIBLE};
use gpu_core::{DeviceState, DeviceUuid, LeaseEntry, Result};
use std::ffi::OsString;

/// The ID of the lease, for information only: a variable can be copied, so nothing relies on it.
pub const LEASE: &str = "GPUWS_LEASE";

/// Returns the variables that make the devices of a lease, and no others, visible to a program.
///
/// Sets CUDA's device order to that of PCI addresses even if devices are named by UUID, so that the
/// program's device indexes are in the order of nvidia-smi.
///
/// # Errors
/// As [`visible::write`].
pub fn environment(
    lease: &LeaseEntry,
    form: Form,
    machine: &[DeviceState],
) -> Result<Vec<(OsString, OsString)>> {
    let devices = visible::write(&lease.devices, form, machine)?;
    let pairs = [(VISIBLE, devices.as_str()), (ORDER, PCI_ORDER), (LEASE, lease.id.as_str())];
    Ok(pairs.map(|(name, value)| (name.into(), value.into())).into())
}

/// Returns the variables that make only its device visible to a placeholder.
pub(crate) fn placeholder_environment(device: &DeviceUuid) -> [(OsString, OsString); 2] {
    [(VISIBLE, device.0.as_str()), (ORDER, PCI_ORDER)]
        .map(|(name, value)| (name.into(), value.into()))
}
