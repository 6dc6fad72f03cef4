//! Power, temperatures and fans.

use super::fields;
use crate::call::reading;
use crate::device::Device;
use crate::value::{celsius, celsius_apart, fan_percent, milliwatts, number, part};
use gpu_core::{Absent, Celsius, Milliwatts, ModulePower, Power, PowerReadings, Reading};
use gpu_core::{Result, Thermal};
use nvml_wrapper::enum_wrappers::device::TemperatureThreshold;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_CURRENT_LIMIT,
    NVML_FI_DEV_POWER_DEFAULT_LIMIT, NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_MAX_LIMIT,
    NVML_FI_DEV_POWER_MIN_LIMIT, NVML_FI_DEV_POWER_REQUESTED_LIMIT,
};

/// `NVML_FI_DEV_EDPP_MULTIPLIER` of NVML 13.1, which nvml-wrapper-sys lacks.
const EDPP_MULTIPLIER: u32 = 274;

/// `NVML_POWER_SCOPE_MODULE`
const SCOPE_MODULE: u32 = 1;

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
    let numbers = [NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE, EDPP_MULTIPLIER];
    let [instant, average, peak] = fields::values(device, numbers)?;
    Ok(PowerReadings {
        managed,
        instant: instant.and_then(power_of),
        average: average.and_then(power_of),
        peak_share: peak.and_then(small),
    })
}

pub(super) fn module(device: Device<'_>) -> Result<ModulePower> {
    let numbers = [
        NVML_FI_DEV_POWER_AVERAGE,
        NVML_FI_DEV_POWER_INSTANT,
        NVML_FI_DEV_POWER_REQUESTED_LIMIT,
        NVML_FI_DEV_POWER_CURRENT_LIMIT,
        NVML_FI_DEV_POWER_DEFAULT_LIMIT,
        NVML_FI_DEV_POWER_MIN_LIMIT,
        NVML_FI_DEV_POWER_MAX_LIMIT,
    ];
    let values = fields::values_in(device, SCOPE_MODULE, numbers)?;
    let [average, instant, limit, enforced_limit, default_limit, limit_min, limit_max] =
        values.map(|value| value.and_then(power_of));
    Ok(ModulePower { average, instant, limit, enforced_limit, default_limit, limit_min, limit_max })
}

fn power_of(value: u64) -> Reading<Milliwatts> {
    milliwatts(small(value)?)
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
