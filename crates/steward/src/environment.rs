//! The environment variables that show a job its devices.

use gpu_core::visible::cuda::{ORDER, PCI_ORDER, VISIBLE};
use gpu_core::visible::intel::LEVEL_ZERO;
use gpu_core::visible::rocm::ROCM;
use gpu_core::visible::{Form, Grammar, devices_of};
use gpu_core::{DeviceState, DeviceUuid, Error, ErrorKind, LeaseEntry, Result};
use std::ffi::OsString;

/// The ID of the lease, for information only: a variable can be copied, so nothing relies on it.
pub const LEASE: &str = "GPUWS_LEASE";

/// Returns the variables that make the devices of a lease, and no others of any vendor, visible to
/// a program. `grammars` are all, usually [`GRAMMARS`](gpu_core::visible::GRAMMARS); `inherited`
/// returns the value that a variable has in the environment of the program.
///
/// Sets the device order even if devices are named by UUID, so that the program's device indexes
/// are in the order of PCI addresses, as in nvidia-smi.
///
/// # Errors
/// As [`Grammar::write`], and `Invalid` for a device that no grammar makes visible.
pub fn environment(
    grammars: &[&dyn Grammar],
    lease: &LeaseEntry,
    form: Form,
    machine: &[DeviceState],
    inherited: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(OsString, OsString)>> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut others = lease.devices.clone();
    for grammar in grammars {
        let devices = devices_of(grammar.visibility(), machine);
        let own: Vec<DeviceUuid>;
        (own, others) = others.into_iter().partition(|key| has(&devices, key));
        // A vendor without a device in the lease gets an empty list: unset would mean all devices.
        let set = grammar.variables(&own, form, &devices, inherited)?;
        variables.extend(set.into_iter().map(|(name, value)| (name.into(), value.into())));
    }
    if let Some(device) = others.first() {
        let error = Error::new(ErrorKind::Invalid, format!("make {device} visible to programs"));
        return Err(error.with_source("no known variable lists the devices of its vendor"));
    }
    variables.push((LEASE.into(), lease.id.as_str().into()));
    Ok(variables)
}

/// Returns whether one of the devices, or a partition of one, has this key.
pub(crate) fn has(devices: &[DeviceState], key: &DeviceUuid) -> bool {
    let is_part = |device: &DeviceState| {
        device.partitions.iter().flatten().any(|part| part.uuid.as_ref() == Ok(key))
    };
    devices.iter().any(|device| device.id().has_key(key) || is_part(device))
}

/// Returns the names of a lease's devices in the Container Device Interface (CDI), for `--device` of
/// podman and docker: `nvidia.com/gpu=GPU-…` or `amd.com/gpu=0`. NVIDIA's container toolkit defines a
/// device for each UUID, and AMD's for each index among its GPUs. `machine` has the devices.
///
/// # Errors
/// `Invalid` for a MIG device with an old name, which the interface does not permit (CDI
/// specification 1.1.0), and for Intel's devices, to which each administrator gives names.
pub fn cdi_names(lease: &LeaseEntry, machine: &[DeviceState]) -> Result<Vec<String>> {
    let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    let index = |visibility, key: &DeviceUuid| {
        let devices = devices_of(visibility, machine);
        devices.iter().find(|device| device.id().has_key(key)).map(|device| device.id().index)
    };
    let name = |key: &DeviceUuid| {
        if let Some(index) = index(ROCM, key) {
            return Ok(format!("amd.com/gpu={index}"));
        }
        let why = match index(LEVEL_ZERO, key) {
            Some(_) => "a container needs the file of an Intel GPU: --device /dev/dri/renderD…",
            None if key.0.bytes().all(is_permitted) => return Ok(format!("nvidia.com/gpu={key}")),
            None => "a container needs a UUID, which drivers have for MIG devices since R470",
        };
        Err(Error::new(ErrorKind::Invalid, format!("name '{key}' for a container"))
            .with_source(why))
    };
    lease.devices.iter().map(name).collect()
}

/// Returns the variables that make only its device visible to a placeholder, a CUDA program.
pub(crate) fn placeholder_environment(device: &DeviceUuid) -> [(OsString, OsString); 2] {
    [(VISIBLE, device.0.as_str()), (ORDER, PCI_ORDER)]
        .map(|(name, value)| (name.into(), value.into()))
}
