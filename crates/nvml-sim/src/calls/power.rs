//! Power, temperatures, fans.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{MarginTemperature1, Temperature1};
use crate::pointer::{Out, Versioned, put_all};
use crate::view::Subject;
use gpu_core::{Celsius, Milliwatts, Reading};
use std::ffi::{c_int, c_uint, c_ulonglong};

/// The only sensor: the GPU.
const SENSOR_GPU: c_uint = 0;
/// Kinds of thresholds (`nvmlTemperatureThresholds_t`).
const SHUTDOWN: c_uint = 0;
const SLOWDOWN: c_uint = 1;
const THRESHOLDS: c_uint = 9;

/// Returns a power in NVML's unit, milliwatts.
pub(super) fn milliwatts(power: Reading<Milliwatts>) -> Answer<c_uint> {
    c_uint::try_from(power?.0).map_err(|_| Code::UNKNOWN)
}

/// Returns a temperature; NVML has no negative ones.
pub(super) fn degrees(temperature: Reading<Celsius>) -> Answer<c_uint> {
    Ok(c_uint::try_from(temperature?.0).unwrap_or(0))
}

fn chip(gpu: Subject<'_>, sensor: c_uint) -> Answer<Celsius> {
    if sensor != SENSOR_GPU {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok(gpu.sample()?.temperature?)
}

exports! {
    gpu [nvmlDeviceGetPowerUsage](power: Out<c_uint>) |gpu| {
        power.put(milliwatts(gpu.sample()?.power_draw)?)
    }

    gpu [nvmlDeviceGetEnforcedPowerLimit](limit: Out<c_uint>) |gpu| {
        limit.put(milliwatts(gpu.sample()?.power_limit)?)
    }

    gpu [nvmlDeviceGetPowerManagementMode](mode: Out<c_uint>) |gpu| {
        mode.put(gpu.power_readings()?.managed?.into())
    }

    gpu [nvmlDeviceGetPowerManagementLimit](limit: Out<c_uint>) |gpu| {
        limit.put(milliwatts(gpu.power()?.limit)?)
    }

    gpu [nvmlDeviceGetPowerManagementDefaultLimit](limit: Out<c_uint>) |gpu| {
        limit.put(milliwatts(gpu.power()?.default_limit)?)
    }

    gpu [nvmlDeviceGetPowerManagementLimitConstraints](lowest: Out<c_uint>, highest: Out<c_uint>)
        |gpu| {
        let power = gpu.power()?;
        put_all([
            (lowest, milliwatts(power.limit_min)?),
            (highest, milliwatts(power.limit_max)?),
        ])
    }

    gpu [nvmlDeviceGetTotalEnergyConsumption](energy: Out<c_ulonglong>) |gpu| {
        energy.put(gpu.power()?.energy?)
    }

    gpu [nvmlDeviceGetTemperature](sensor: c_uint, temperature: Out<c_uint>) |gpu| {
        temperature.put(degrees(Ok(chip(gpu, sensor)?))?)
    }

    gpu [nvmlDeviceGetTemperatureV](temperature: Out<Temperature1>) |gpu| {
        temperature.check_version()?;
        let sensor_type = temperature.get()?.sensor_type;
        let degrees: c_int = chip(gpu, sensor_type)?.0;
        let version = Temperature1::VERSION;
        temperature.put(Temperature1 { version, sensor_type, temperature: degrees })
    }

    gpu [nvmlDeviceGetMarginTemperature](margin: Out<MarginTemperature1>) |gpu| {
        margin.check_version()?;
        let degrees = gpu.thermal()?.margin?.0;
        margin.put(MarginTemperature1 { version: MarginTemperature1::VERSION, margin: degrees })
    }

    gpu [nvmlDeviceGetTemperatureThreshold](kind: c_uint, temperature: Out<c_uint>) |gpu| {
        match kind {
            SHUTDOWN => temperature.put(degrees(gpu.thermal()?.shutdown)?),
            SLOWDOWN => temperature.put(degrees(gpu.thermal()?.slowdown)?),
            kind if kind < THRESHOLDS => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    gpu [nvmlDeviceGetFanSpeed](speed: Out<c_uint>) |gpu| {
        speed.put(gpu.thermal()?.fan_speed?)
    }

    gpu [nvmlDeviceGetFanSpeed_v2](fan: c_uint, speed: Out<c_uint>) |gpu| {
        // The machine describes only the first fan.
        if fan > 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        speed.put(gpu.thermal()?.fan_speed?)
    }

    gpu [nvmlDeviceGetNumFans](fans: Out<c_uint>) |gpu| {
        fans.put(gpu.thermal()?.fan_speed.map(|_| 1)?)
    }
}
