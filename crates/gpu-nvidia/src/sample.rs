//! How a device is at this moment.

use crate::call::reading;
use crate::device::Device;
use crate::value::{bytes, celsius, milliwatts, part, percent};
use gpu_core::{Absent, DeviceSample, MemoryInfo, Result, plausible};
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

/// Returns how a device is.
///
/// # Errors
/// `Device` or `Machine` when one of the answers tells that.
pub(crate) fn sample(device: Device<'_>) -> Result<DeviceSample> {
    let memory = memory(device)?;
    let rates = device.value("nvmlDeviceGetUtilizationRates", "for its utilisation", |device| {
        device.utilization_rates()
    })?;
    let temperature =
        device.value("nvmlDeviceGetTemperature", "for its temperature", |device| {
            device.temperature(TemperatureSensor::Gpu)
        })?;
    let draw = device.value("nvmlDeviceGetPowerUsage", "for the power it draws", |device| {
        device.power_usage()
    })?;
    let limit = device.value(
        "nvmlDeviceGetEnforcedPowerLimit",
        "for its power limit in force",
        |device| device.enforced_power_limit(),
    )?;
    Ok(DeviceSample {
        memory,
        utilization: rates.and_then(|rates| percent(rates.gpu)),
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
    match device.ask("nvmlDeviceGetMemoryInfo_v2", "for its memory", |d| d.memory_info()) {
        Err(failure) if failure.is_too_old() => {
            let reported = reading(device.memory_v1())?;
            Ok(plausible::memory_of(MemoryInfo {
                total: reported.and_then(|memory| bytes(memory.total)),
                used: reported.and_then(|memory| bytes(memory.used)),
                reserved: Err(reported.err().unwrap_or(Absent::NotSupported)),
            }))
        }
        answer => {
            let reported = reading(answer)?;
            Ok(plausible::memory_of(MemoryInfo {
                total: part(&reported, |memory| bytes(memory.total)),
                used: part(&reported, |memory| bytes(memory.used)),
                reserved: part(&reported, |memory| bytes(memory.reserved)),
            }))
        }
    }
}
