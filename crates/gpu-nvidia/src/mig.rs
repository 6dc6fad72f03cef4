//! The MIG instances of a device.

use crate::call::reading;
use crate::code::Code;
use crate::device::{Device, Handle};
use crate::sample::memory;
use crate::session::{Opened, reported};
use gpu_core::{DeviceUuid, MigInstance, Reading, Result};

/// No device can be split into more; a driver that says so is not believed.
const MAX_INSTANCES: u32 = 64;

impl Opened<'_> {
    /// Returns the MIG instances of a device; none where MIG is off or not known.
    ///
    /// # Errors
    /// `Device` or `Machine` when one of the answers tells that; `Field` when the device does not
    /// tell its instances though it has some.
    pub(crate) fn mig_instances(self, device: Device<'_>) -> Result<Vec<MigInstance>> {
        if !self.mig_mode(device)?.is_ok_and(|(now, _)| now) {
            return Ok(Vec::new());
        }
        let wish = "how many MIG instances it can have";
        let most =
            device.ask("nvmlDeviceGetMaxMigDeviceCount", wish, |device| device.mig_device_count());
        let most = most.map_err(|failure| failure.error(Code::of_value))?;
        let mut instances = Vec::new();
        for index in 0..most.min(MAX_INSTANCES) {
            let wish = "for a MIG instance";
            let handle = device.ask("nvmlDeviceGetMigDeviceHandleByIndex", wish, |device| {
                let instance = device.mig_device_by_index(index)?;
                // SAFETY: the handle is used while NVML is initialised, and not to free anything.
                Ok(Handle(unsafe { instance.handle() }))
            });
            match handle {
                Ok(handle) => {
                    instances.push(instance(Device { handle, ..device }, index)?);
                }
                // The number of an instance stays free when it goes.
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

/// Reads the number of an instance, which is all ones where there is none.
pub(crate) fn instance_id(id: u32) -> Reading<u32> {
    if id == u32::MAX { Err(gpu_core::Absent::NotFound) } else { Ok(id) }
}
