//! Power, temperatures and fans.

use crate::call::reading;
use crate::device::{Data, Device};
use crate::value::{celsius, milliwatts, number};
use gpu_core::{Absent, Celsius, Power, Reading, Result, Thermal};
use nvml_wrapper_sys::bindings::{field_id::NVML_FI_DEV_MEMORY_TEMP, nvmlFieldValue_t};

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
        fan_speed: reading(fan_speed)?.and_then(number),
        memory: memory_temperature(device)?,
        slowdown: threshold(SLOWDOWN)?,
        shutdown: threshold(SHUTDOWN)?,
    })
}

/// Returns the temperature of the memory, which has a number but no function of its own; the
/// answer carries a code of its own, too.
fn memory_temperature(device: Device<'_>) -> Result<Reading<Celsius>> {
    let mut field = nvmlFieldValue_t { fieldId: NVML_FI_DEV_MEMORY_TEMP, ..Data::zeroed() };
    let function = &device.caller.functions.nvmlDeviceGetFieldValues;
    // SAFETY: there is one field, as is told.
    let asked = device.call(function, |f, handle| match unsafe { f(handle, 1, &mut field) } {
        0 => field.nvmlReturn,
        code => code,
    });
    let value = reading(asked)?.and_then(|()| whole_number(&field).ok_or(Absent::Implausible));
    Ok(value.and_then(|number| celsius(u32::try_from(number).map_err(|_| Absent::Implausible)?)))
}

/// Reads a value that is a number without fraction, by its type (`nvmlValueType_t`).
fn whole_number(field: &nvmlFieldValue_t) -> Option<u64> {
    let value = field.value;
    Some(match field.valueType {
        // SAFETY: each is a number, and every pattern of bits is one.
        1 => unsafe { value.uiVal }.into(),
        // SAFETY: as above.
        2 => unsafe { value.ulVal },
        // SAFETY: as above.
        3 => unsafe { value.ullVal },
        // SAFETY: as above.
        4 => u64::try_from(unsafe { value.sllVal }).ok()?,
        // SAFETY: as above.
        5 => u64::try_from(unsafe { value.siVal }).ok()?,
        // SAFETY: as above.
        6 => unsafe { value.usVal }.into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper_sys::bindings::nvmlValue_t;

    #[test]
    fn a_number_is_read_by_its_type() {
        let read = |kind, value| {
            whole_number(&nvmlFieldValue_t { valueType: kind, value, ..Data::zeroed() })
        };
        let beyond = nvmlValue_t { ullVal: 7 << 32 | 66 };
        assert_eq!(read(1, beyond), Some(66));
        assert_eq!(read(3, beyond), Some(7 << 32 | 66));
        assert_eq!(read(6, beyond), Some(66));
        assert_eq!(read(5, nvmlValue_t { siVal: -1 }), None);
        assert_eq!(read(0, nvmlValue_t { dVal: 66.0 }), None);
    }
}
