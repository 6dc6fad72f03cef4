//! Errors of device memory and what was done about them.

use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::value::{number, switch};
use gpu_core::{Absent, MemoryHealth, Reading, Result};
use std::ptr::null_mut;

/// Kinds of errors (`nvmlMemoryErrorType_t`).
const CORRECTED: u32 = 0;
const UNCORRECTED: u32 = 1;
/// Since when errors are counted (`nvmlEccCounterType_t`).
const SINCE_LOAD: u32 = 0;
const LIFETIME: u32 = 1;
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
