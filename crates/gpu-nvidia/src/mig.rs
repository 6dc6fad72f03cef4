//! The MIG instances of a device.

use crate::call::reading;
use crate::code::Code;
use crate::device::{Device, Handle};
use crate::sample::memory;
use crate::session::{Opened, UUID_SIZE, told};
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
        let functions = &self.caller.functions;
        let most = device.get(&functions.nvmlDeviceGetMaxMigDeviceCount);
        let most: u32 = most.map_err(|failure| failure.error(Code::of_value))?;
        let mut instances = Vec::new();
        for index in 0..most.min(MAX_INSTANCES) {
            match device.pick(&functions.nvmlDeviceGetMigDeviceHandleByIndex, index) {
                Ok(handle) => {
                    let handle = Handle(handle);
                    instances.push(instance(Device { handle, ..device }, index)?);
                }
                // The number of an instance stays free when it goes.
                Err(failure) if failure.code == Code::NOT_FOUND => {}
                Err(failure) => return Err(failure.error(Code::of_value)),
            }
        }
        Ok(instances)
    }
}

fn instance(device: Device<'_>, index: u32) -> Result<MigInstance> {
    let functions = &device.caller.functions;
    let uuid = reading(device.text::<UUID_SIZE>(&functions.nvmlDeviceGetUUID))?;
    let gpu = reading(device.get(&functions.nvmlDeviceGetGpuInstanceId))?;
    let compute = reading(device.get(&functions.nvmlDeviceGetComputeInstanceId))?;
    Ok(MigInstance {
        index,
        uuid: uuid.and_then(told).map(DeviceUuid),
        gpu_instance: gpu.and_then(instance_id).ok(),
        compute_instance: compute.and_then(instance_id).ok(),
        memory: memory(device)?,
    })
}

/// Reads the number of an instance, which is all ones where there is none.
pub(crate) fn instance_id(id: u32) -> Reading<u32> {
    if id == u32::MAX { Err(gpu_core::Absent::NotFound) } else { Ok(id) }
}
