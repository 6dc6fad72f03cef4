//! How a device is at this moment.

use crate::call::reading;
use crate::device::{Data, Device};
use crate::value::{bytes, celsius, milliwatts, percent};
use gpu_core::{Absent, DeviceSample, MemoryInfo, Result, plausible};
use nvml_wrapper_sys::bindings::{nvmlMemory_v2_t, nvmlUtilization_t};

/// `NVML_TEMPERATURE_GPU`
const CHIP: u32 = 0;

/// Returns how a device is.
///
/// # Errors
/// `Device` or `Machine` when one of the answers tells that.
pub(crate) fn sample(device: Device<'_>) -> Result<DeviceSample> {
    let functions = &device.caller.functions;
    let memory = memory(device)?;
    let rates = reading(device.get(&functions.nvmlDeviceGetUtilizationRates))?;
    let temperature = reading(device.pick(&functions.nvmlDeviceGetTemperature, CHIP))?;
    let draw = reading(device.get(&functions.nvmlDeviceGetPowerUsage))?;
    let limit = reading(device.get(&functions.nvmlDeviceGetEnforcedPowerLimit))?;
    Ok(DeviceSample {
        memory,
        utilization: rates.and_then(|rates: nvmlUtilization_t| percent(rates.gpu)),
        temperature: temperature.and_then(celsius),
        power_draw: draw.and_then(milliwatts),
        power_limit: limit.and_then(milliwatts),
    })
}

/// Returns the memory of a device, or of a MIG instance.
///
/// Version 2 tells what driver and firmware hold back apart from what is used. A driver that does
/// not know it counts that as used, and does not tell it.
///
/// # Errors
/// As [`sample`].
pub(crate) fn memory(device: Device<'_>) -> Result<MemoryInfo> {
    let functions = &device.caller.functions;
    let version = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
    let asked = nvmlMemory_v2_t { version, ..Data::zeroed() };
    match device.fill(&functions.nvmlDeviceGetMemoryInfo_v2, asked) {
        Err(failure) if failure.is_too_old() => {
            let told = reading(device.get(&functions.nvmlDeviceGetMemoryInfo))?;
            Ok(plausible::memory_of(MemoryInfo {
                total: told.and_then(|memory| bytes(memory.total)),
                used: told.and_then(|memory| bytes(memory.used)),
                reserved: Err(told.err().unwrap_or(Absent::NotSupported)),
            }))
        }
        answer => {
            let told = reading(answer)?;
            Ok(plausible::memory_of(MemoryInfo {
                total: told.and_then(|memory| bytes(memory.total)),
                used: told.and_then(|memory| bytes(memory.used)),
                reserved: told.and_then(|memory| bytes(memory.reserved)),
            }))
        }
    }
}
