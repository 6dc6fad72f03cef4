//! The MIG instances of a device.

use crate::call::reading;
use crate::code::Code;
use crate::device::{Device, Handle};
use crate::sample::memory;
use crate::session::{Opened, reported};
use gpu_core::{DeviceUuid, MigInstance, Reading, Result};

/// The maximum number of instances, larger than on any device.
const MAX_INSTANCES: u32 = 64;

impl Opened<'_> {
    /// Returns the MIG instances of a device; empty if MIG is off or its mode is unknown.
    ///
    /// # Errors
    /// `Device` or `Machine` when a query returns such a code; `Field` when MIG is on but the
    /// instances cannot be read.
    pub(crate) fn mig_instances(self, device: Device<'_>) -> Result<Vec<MigInstance>> {
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
                // The index of a destroyed instance stays unused.
                Err(failure) if failure.is(Code::NOT_FOUND) => {}
                Err(failure) => return Err(failure.error(Code::of_value)),
            }
        }
        Ok(instances)
    }
}

fn instance(device: Device<'_>, index: u32) -> Result<MigInstance> {
    let uuid = device.value("nvmlDeviceGetUUID", "for its UUID", |device| device.uuid())?;
    let gpu = reading(device.gpu_instance())?;
    let compute = reading(device.compute_instance())?;
    Ok(MigInstance {
        index,
        uuid: uuid.and_then(reported).map(DeviceUuid),
        gpu_instance: gpu.and_then(instance_id).ok(),
        compute_instance: compute.and_then(instance_id).ok(),
        memory: memory(device)?,
    })
}

/// Decodes an instance ID; all ones mean that there is none.
pub(crate) fn instance_id(id: u32) -> Reading<u32> {
    if id == u32::MAX { Err(gpu_core::Absent::NotFound) } else { Ok(id) }
}
