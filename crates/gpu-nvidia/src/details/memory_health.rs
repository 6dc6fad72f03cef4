//! Errors of device memory and what was done about them.

use super::fields;
use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::value::{number, switch};
use gpu_core::{Absent, ErrorsByPlace, MemoryErrors, MemoryHealth, Reading, ResetStatus, Result};
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_DRAIN_AND_RESET_STATUS, NVML_FI_DEV_RESET_STATUS,
};
use std::ptr::null_mut;

/// Kinds of errors (`nvmlMemoryErrorType_t`).
const CORRECTED: u32 = 0;
const UNCORRECTED: u32 = 1;
/// Since when errors are counted (`nvmlEccCounterType_t`).
const SINCE_LOAD: u32 = 0;
const LIFETIME: u32 = 1;
/// The places where errors are counted (`nvmlMemoryLocation_t`).
const L1_CACHE: u32 = 0;
const L2_CACHE: u32 = 1;
const DEVICE_MEMORY: u32 = 2;
const REGISTER_FILE: u32 = 3;
const TEXTURE_MEMORY: u32 = 4;
const CBU: u32 = 6;
const SRAM: u32 = 7;
/// Why pages were retired (`nvmlPageRetirementCause_t`).
const SINGLE_BIT: u32 = 0;
const DOUBLE_BIT: u32 = 1;

pub(super) fn memory_health(device: Device<'_>) -> Result<MemoryHealth> {
    let functions = &device.caller.functions;
    let errors = |kind, since| -> Result<Reading<u64>> {
        let counted = device.pick_two(&functions.nvmlDeviceGetTotalEccErrors, (kind, since));
        Ok(reading(counted)?.and_then(number))
    };
    let rows = remapped_rows(device)?;
    let pending = reading(device.get(&functions.nvmlDeviceGetRetiredPagesPendingStatus))?;
    Ok(MemoryHealth {
        corrected: errors(CORRECTED, SINCE_LOAD)?,
        uncorrected: errors(UNCORRECTED, SINCE_LOAD)?,
        corrected_lifetime: errors(CORRECTED, LIFETIME)?,
        uncorrected_lifetime: errors(UNCORRECTED, LIFETIME)?,
        retired_single_bit: retired_pages(device, SINGLE_BIT)?,
        retired_double_bit: retired_pages(device, DOUBLE_BIT)?,
        retired_pending: pending.and_then(switch),
        remapped_corrected: rows.and_then(|rows| number(rows[0])),
        remapped_uncorrected: rows.and_then(|rows| number(rows[1])),
        remapped_pending: rows.and_then(|rows| switch(rows[2])),
        remapped_failure: rows.and_then(|rows| switch(rows[3])),
    })
}

/// Returns the errors by place: a call for each.
pub(super) fn memory_errors(device: Device<'_>) -> Result<MemoryErrors> {
    let by_place = |kind, since| -> Result<ErrorsByPlace> {
        let errors = |place| -> Result<Reading<u64>> {
            let function = &device.caller.functions.nvmlDeviceGetMemoryErrorCounter;
            Ok(reading(device.pick_three(function, (kind, since, place)))?.and_then(number))
        };
        Ok(ErrorsByPlace {
            device_memory: errors(DEVICE_MEMORY)?,
            register_file: errors(REGISTER_FILE)?,
            l1_cache: errors(L1_CACHE)?,
            l2_cache: errors(L2_CACHE)?,
            texture_memory: errors(TEXTURE_MEMORY)?,
            cbu: errors(CBU)?,
            sram: errors(SRAM)?,
        })
    };
    Ok(MemoryErrors {
        corrected: by_place(CORRECTED, SINCE_LOAD)?,
        uncorrected: by_place(UNCORRECTED, SINCE_LOAD)?,
        corrected_lifetime: by_place(CORRECTED, LIFETIME)?,
        uncorrected_lifetime: by_place(UNCORRECTED, LIFETIME)?,
    })
}

/// Returns whether the device needs a reset; both values have a number and no function.
pub(super) fn reset_status(device: Device<'_>) -> Result<ResetStatus> {
    let numbers = [NVML_FI_DEV_RESET_STATUS, NVML_FI_DEV_DRAIN_AND_RESET_STATUS];
    let [required, drain_recommended] = fields::values(device, numbers)?;
    Ok(ResetStatus {
        required: required.map(|status| status != 0),
        drain_recommended: drain_recommended.map(|status| status != 0),
    })
}

/// Returns how many pages were retired: without room for their addresses, the driver says how much
/// would be needed.
fn retired_pages(device: Device<'_>, cause: u32) -> Result<Reading<u32>> {
    let mut count = 0;
    let function = &device.caller.functions.nvmlDeviceGetRetiredPages;
    // SAFETY: there is room for no address, as is told.
    let answer =
        device.call(function, |f, handle| unsafe { f(handle, cause, &mut count, null_mut()) });
    match answer {
        Err(failure) if failure.code == Code::INSUFFICIENT_SIZE => {
            // There was no room for none, it says: then it says nothing.
            Ok(if count > 0 { Ok(count) } else { Err(Absent::Failed) })
        }
        answer => Ok(reading(answer)?.map(|()| count)),
    }
}

/// Returns the rows remapped after corrected and uncorrected errors, and whether one waits for
/// that or could not be.
fn remapped_rows(device: Device<'_>) -> Result<Reading<[u32; 4]>> {
    let (mut corrected, mut uncorrected, mut pending, mut failure) = (0, 0, 0, 0);
    let function = &device.caller.functions.nvmlDeviceGetRemappedRows;
    // SAFETY: the four numbers are what the function fills in.
    let answer = device.call(function, |f, handle| unsafe {
        f(handle, &mut corrected, &mut uncorrected, &mut pending, &mut failure)
    });
    Ok(reading(answer)?.map(|()| [corrected, uncorrected, pending, failure]))
}
