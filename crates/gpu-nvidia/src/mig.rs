//! The MIG instances of a device.

use crate::call::reading;
use crate::code::Code;
use crate::device::{Device, Handle};
use crate::sample::memory;
use crate::session::{Opened, reported};
use gpu_core::{Absent, DeviceUuid, Partition, Reading, Result};

/// The maximum number of instances, larger than on any device.
const MAX_INSTANCES: u32 = 64;

impl Opened<'_> {
    /// Returns the MIG instances of a device; empty if MIG is off or its mode is unknown.
    ///
    /// # Errors
    /// `Device` or `Machine` when a query returns such a code; `Field` if MIG is on but the
    /// instances cannot be read.
    pub(crate) fn partitions(self, device: Device<'_>) -> Result<Vec<Partition>> {
        if !self.mig_mode(device)?.is_ok_and(|(now, _)| now) {
            return Ok(Vec::new());
        }
        let purpose = "for its maximum number of MIG devices";
        let most = device
            .query("nvmlDeviceGetMaxMigDeviceCount", purpose, |device| device.mig_device_count());
        let most = most.map_err(|failure| failure.error(Code::of_value))?;
        let mut instances = Vec::new();
        for index in 0..most.min(MAX_INSTANCES) {
            let purpose = "for a MIG instance";
            let handle = device.query("nvmlDeviceGetMigDeviceHandleByIndex", purpose, |device| {
                let instance = device.mig_device_by_index(index)?;
                // SAFETY: the handle is used while NVML is initialised, and is not freed.
                Ok(Handle(unsafe { instance.handle() }))
            });
            match handle {
                Ok(handle) => {
                    instances.push(instance(Device { handle, ..device }, index)?);
                }
                // The index of a destroyed instance remains unused.
                Err(failure) if failure.is(Code::NOT_FOUND) => {}
                Err(failure) => return Err(failure.error(Code::of_value)),
            }
        }
        Ok(instances)
    }
}

fn instance(device: Device<'_>, index: u32) -> Result<Partition> {
    let uuid = device.value("nvmlDeviceGetUUID", "for its UUID", |device| device.uuid())?;
    let name = device.value("nvmlDeviceGetName", "for its name", |device| device.name())?;
    let gpu = reading(device.gpu_instance())?;
    let compute = reading(device.compute_instance())?;
    Ok(Partition {
        index,
        uuid: uuid.and_then(reported).map(DeviceUuid),
        profile: name.and_then(|name| profile(&name)),
        gpu_instance: gpu.and_then(instance_id).ok(),
        compute_instance: compute.and_then(instance_id).ok(),
        memory: memory(device)?,
    })
}

/// Returns the profile that ends the name of a MIG device, `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
fn profile(name: &str) -> Reading<String> {
    let (_, profile) = name.rsplit_once("MIG ").ok_or(Absent::NotSupported)?;
    reported(profile.to_owned())
}

/// Decodes an instance ID; all ones mean no instance.
pub(crate) fn instance_id(id: u32) -> Reading<u32> {
    if id == u32::MAX { Err(Absent::NotFound) } else { Ok(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_is_the_end_of_the_name() {
        for (name, known) in [
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Ok("1g.5gb")),
            ("A100-SXM4-40GB MIG 1c.3g.20gb+me", Ok("1c.3g.20gb+me")),
            ("MIG 7g.40gb ", Ok("7g.40gb")),
            ("NVIDIA A100-SXM4-40GB", Err(Absent::NotSupported)),
            ("NVIDIA A100 MIG ", Err(Absent::NotFound)),
        ] {
            assert_eq!(profile(name), known.map(str::to_owned), "{name}");
        }
    }
}
