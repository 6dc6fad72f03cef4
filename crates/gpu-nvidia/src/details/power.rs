//! Power, temperatures and fans.

use super::fields;
use crate::call::reading;
use crate::device::Device;
use crate::value::{celsius, celsius_apart, fan_percent, milliwatts, number, part};
use gpu_core::{Absent, Celsius, Power, PowerReadings, Reading, Result, Thermal};
use nvml_wrapper::enum_wrappers::device::TemperatureThreshold;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT,
};

pub(super) fn power(device: Device<'_>) -> Result<Power> {
    let limit = device.value("nvmlDeviceGetPowerManagementLimit", "for its power limit", |d| {
        d.power_management_limit()
    })?;
    let purpose = "for its default power limit";
    let default = device.value("nvmlDeviceGetPowerManagementDefaultLimit", purpose, |device| {
        device.power_management_limit_default()
    })?;
    let purpose = "for the range of its power limit";
    let range =
        device.value("nvmlDeviceGetPowerManagementLimitConstraints", purpose, |device| {
            device.power_management_limit_constraints()
        })?;
    let purpose = "for its energy consumption";
    let energy = device.value("nvmlDeviceGetTotalEnergyConsumption", purpose, |device| {
        device.total_energy_consumption()
    })?;
    Ok(Power {
        limit: limit.and_then(milliwatts),
        default_limit: default.and_then(milliwatts),
        limit_min: part(&range, |range| milliwatts(range.min_limit)),
        limit_max: part(&range, |range| milliwatts(range.max_limit)),
        energy: energy.and_then(number),
    })
}

pub(super) fn readings(device: Device<'_>) -> Result<PowerReadings> {
    let purpose = "for its power management mode";
    #[expect(deprecated, reason = "nvidia-smi still shows it, and there is no replacement")]
    let managed = device.value("nvmlDeviceGetPowerManagementMode", purpose, |device| {
        device.is_power_management_algo_active()
    })?;
    let draws = [NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE];
    let [instant, average] = fields::values(device, draws)?;
    let power = |draw: u64| milliwatts(small(draw)?);
    Ok(PowerReadings {
        managed,
        instant: instant.and_then(power),
        average: average.and_then(power),
    })
}

pub(super) fn thermal(device: Device<'_>) -> Result<Thermal> {
    let threshold = |which| -> Result<Reading<Celsius>> {
        let purpose = "for a temperature threshold";
        let limit = device.query("nvmlDeviceGetTemperatureThreshold", purpose, |device| {
            device.temperature_threshold(which)
        });
        Ok(reading(limit)?.and_then(celsius))
    };
    let fan_speed = match device.fan_speed_v1() {
        Err(failure) if failure.is_too_old() => {
            device.query("nvmlDeviceGetFanSpeed_v2", "for its fan speed", |d| d.fan_speed(0))
        }
        answer => answer,
    };
    Ok(Thermal {
        fan_speed: reading(fan_speed)?.and_then(fan_percent),
        memory: memory_temperature(device)?,
        slowdown: threshold(TemperatureThreshold::Slowdown)?,
        shutdown: threshold(TemperatureThreshold::Shutdown)?,
        margin: reading(device.margin())?.and_then(celsius_apart),
    })
}

/// Returns the temperature of the memory, which is a field value.
fn memory_temperature(device: Device<'_>) -> Result<Reading<Celsius>> {
    let [value] = fields::values(device, [NVML_FI_DEV_MEMORY_TEMP])?;
    Ok(value.and_then(|number| celsius(small(number)?)))
}

fn small(number: u64) -> Reading<u32> {
    u32::try_from(number).map_err(|_| Absent::Implausible)
}
