//! The environment variables that show a job its devices.

use gpu_core::visible::{self, Form, ORDER, PCI_ORDER, VISIBLE};
use gpu_core::{DeviceState, DeviceUuid, Error, ErrorKind, LeaseEntry, Result};
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

/// The kind of NVIDIA's devices in the Container Device Interface (CDI).
const CDI_KIND: &str = "nvidia.com/gpu";

/// Returns the names of a lease's devices in the Container Device Interface, for `--device` of podman
/// and docker: `nvidia.com/gpu=GPU-…`. NVIDIA's container toolkit defines a device for each UUID.
///
/// # Errors
/// `Invalid` for a MIG device with an old name, which the interface does not permit (CDI
/// specification 1.1.0).
pub fn cdi_names(lease: &LeaseEntry) -> Result<Vec<String>> {
    let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    let name = |device: &DeviceUuid| {
        if device.0.bytes().all(is_permitted) {
            Ok(format!("{CDI_KIND}={device}"))
        } else {
            Err(Error::new(ErrorKind::Invalid, format!("name '{device}' for a container"))
                .with_source(
                    "a container needs a UUID, which drivers have for MIG devices since R470",
                ))
        }
    };
    lease.devices.iter().map(name).collect()
}

/// Returns the variables that make only its device visible to a placeholder.
pub(crate) fn placeholder_environment(device: &DeviceUuid) -> [(OsString, OsString); 2] {
    [(VISIBLE, device.0.as_str()), (ORDER, PCI_ORDER)]
        .map(|(name, value)| (name.into(), value.into()))
}
