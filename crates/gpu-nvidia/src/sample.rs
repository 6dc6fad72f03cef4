//! How a device is at this moment.

use crate::call::{plausible, reading};
use crate::device::{Data, Device};
use gpu_core::{Absent, Bytes, Celsius, DeviceSample, MemoryInfo, Milliwatts, Percent, Result};
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
        utilization: plausible(rates, |rates: nvmlUtilization_t| percent(rates.gpu)),
        temperature: plausible(temperature, celsius),
        power_draw: draw.map(milliwatts),
        power_limit: limit.map(milliwatts),
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
            Ok(MemoryInfo {
                total: told.map(|memory| Bytes(memory.total)),
                used: told.map(|memory| Bytes(memory.used)),
                reserved: Err(told.err().unwrap_or(Absent::NotSupported)),
            })
        }
        answer => {
            let told = reading(answer)?;
            Ok(MemoryInfo {
                total: told.map(|memory| Bytes(memory.total)),
                used: told.map(|memory| Bytes(memory.used)),
                reserved: told.map(|memory| Bytes(memory.reserved)),
            })
        }
    }
}

pub(crate) fn percent(value: u32) -> Option<Percent> {
    Percent::new(value.into())
}

pub(crate) fn milliwatts(value: u32) -> Milliwatts {
    Milliwatts(value.into())
}

/// Reads a temperature: NVML's numbers have no sign, but nothing is colder than this.
pub(crate) fn celsius(value: u32) -> Option<Celsius> {
    let degrees = value as i32;
    (-273..=1000).contains(&degrees).then_some(Celsius(degrees))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures_that_no_chip_has() {
        assert_eq!(celsius(71), Some(Celsius(71)));
        assert_eq!(celsius(-4i32 as u32), Some(Celsius(-4)));
        assert_eq!(celsius(u32::MAX >> 1), None);
    }
}
