//! The current state of a device.

use crate::call::reading;
use crate::device::Device;
use crate::value::{bytes, celsius, milliwatts, part, percent};
use gpu_core::{Absent, DeviceSample, MemoryInfo, Result, plausible};
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

/// Returns the current state of a device.
///
/// # Errors
/// `Device` or `Machine` when a query returns such a code.
pub(crate) fn sample(device: Device<'_>) -> Result<DeviceSample> {
    let memory = memory(device)?;
    let rates = device.value("nvmlDeviceGetUtilizationRates", "for its utilisation", |device| {
        device.utilization_rates()
    })?;
    let temperature =
        device.value("nvmlDeviceGetTemperature", "for its temperature", |device| {
            device.temperature(TemperatureSensor::Gpu)
        })?;
    let draw = device
        .value("nvmlDeviceGetPowerUsage", "for its power draw", |device| device.power_usage())?;
    let limit = device.value(
        "nvmlDeviceGetEnforcedPowerLimit",
        "for its enforced power limit",
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
/// Version 2 reports the memory reserved by driver and firmware separately. A driver without
/// version 2 counts it as used.
///
/// # Errors
/// As [`sample`].
pub(crate) fn memory(device: Device<'_>) -> Result<MemoryInfo> {
    match device.query("nvmlDeviceGetMemoryInfo_v2", "for its memory", |d| d.memory_info()) {
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
