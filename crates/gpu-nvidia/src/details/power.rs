//! Power, temperatures and fans.

use super::fields;
use crate::call::reading;
use crate::device::{Data, Device};
use crate::value::{celsius, celsius_apart, fan_percent, milliwatts, number, switch};
use gpu_core::{Absent, Celsius, Power, PowerReadings, Reading, Result, Thermal};
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT,
};
use nvml_wrapper_sys::bindings::nvmlMarginTemperature_t;

/// Limits of the temperature (`nvmlTemperatureThresholds_t`).
const SHUTDOWN: u32 = 0;
const SLOWDOWN: u32 = 1;

pub(super) fn power(device: Device<'_>) -> Result<Power> {
    let functions = &device.caller.functions;
    let limit = reading(device.get(&functions.nvmlDeviceGetPowerManagementLimit))?;
    let default = reading(device.get(&functions.nvmlDeviceGetPowerManagementDefaultLimit))?;
    let range = &functions.nvmlDeviceGetPowerManagementLimitConstraints;
    let range = reading(device.get_two(range))?;
    Ok(Power {
        limit: limit.and_then(milliwatts),
        default_limit: default.and_then(milliwatts),
        limit_min: range.and_then(|(lowest, _): (u32, u32)| milliwatts(lowest)),
        limit_max: range.and_then(|(_, highest)| milliwatts(highest)),
        energy: reading(device.get(&functions.nvmlDeviceGetTotalEnergyConsumption))?
            .and_then(number),
    })
}

pub(super) fn readings(device: Device<'_>) -> Result<PowerReadings> {
    let managed = reading(device.get(&device.caller.functions.nvmlDeviceGetPowerManagementMode))?;
    let draws = [NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE];
    let [instant, average] = fields::values(device, draws)?;
    let power = |draw: u64| milliwatts(small(draw)?);
    Ok(PowerReadings {
        managed: managed.and_then(switch),
        instant: instant.and_then(power),
        average: average.and_then(power),
    })
}

pub(super) fn thermal(device: Device<'_>) -> Result<Thermal> {
    let functions = &device.caller.functions;
    let threshold = |which| -> Result<Reading<Celsius>> {
        let limit = device.pick(&functions.nvmlDeviceGetTemperatureThreshold, which);
        Ok(reading(limit)?.and_then(celsius))
    };
    let fan_speed = match device.get(&functions.nvmlDeviceGetFanSpeed) {
        Err(failure) if failure.is_too_old() => device.pick(&functions.nvmlDeviceGetFanSpeed_v2, 0),
        answer => answer,
    };
    Ok(Thermal {
        fan_speed: reading(fan_speed)?.and_then(fan_percent),
        memory: memory_temperature(device)?,
        slowdown: threshold(SLOWDOWN)?,
        shutdown: threshold(SHUTDOWN)?,
        margin: margin(device)?,
    })
}

/// Returns how far the chip is from the temperature at which its clocks fall.
fn margin(device: Device<'_>) -> Result<Reading<Celsius>> {
    let version = size_of::<nvmlMarginTemperature_t>() as u32 | 1 << 24;
    let asked = nvmlMarginTemperature_t { version, ..Data::zeroed() };
    let answer = device.fill(&device.caller.functions.nvmlDeviceGetMarginTemperature, asked);
    Ok(reading(answer)?.and_then(|told| celsius_apart(told.marginTemperature)))
}

/// Returns the temperature of the memory, which has a number but no function of its own.
fn memory_temperature(device: Device<'_>) -> Result<Reading<Celsius>> {
    let [value] = fields::values(device, [NVML_FI_DEV_MEMORY_TEMP])?;
    Ok(value.and_then(|number| celsius(small(number)?)))
}

fn small(number: u64) -> Reading<u32> {
    u32::try_from(number).map_err(|_| Absent::Implausible)
}
