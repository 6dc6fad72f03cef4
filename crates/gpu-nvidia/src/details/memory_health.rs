//! ECC errors, retired pages and remapped rows.

use super::fields;
use crate::call::reading;
use crate::device::Device;
use crate::value::{number, part, switch};
use gpu_core::{
    ErrorsByPlace, MemoryErrors, MemoryHealth, Reading, RecoveryAction, ResetStatus, Result,
    RetiredPage, SramErrors,
};
use gpu_nvidia_driver::recovery_action;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, MemoryLocation};
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_DRAIN_AND_RESET_STATUS, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    NVML_FI_DEV_RESET_STATUS,
};
use nvml_wrapper_sys::bindings::nvmlEccSramErrorStatus_t;

/// The causes of page retirement (`nvmlPageRetirementCause_t`).
const SINGLE_BIT: u32 = 0;
const DOUBLE_BIT: u32 = 1;

pub(super) fn memory_health(device: Device<'_>) -> Result<MemoryHealth> {
    let errors = |kind, since| -> Result<Reading<u64>> {
        let purpose = "for its memory errors";
        let counted = device.query("nvmlDeviceGetTotalEccErrors", purpose, |device| {
            device.total_ecc_errors(kind, since)
        });
        Ok(reading(counted)?.and_then(number))
    };
    let rows = reading(device.remapped_rows())?;
    let banks = reading(device.banks())?;
    let sram = reading(device.sram_errors())?;
    let pages = |cause| reading(device.retired_pages(cause));
    let (single, double) = (pages(SINGLE_BIT)?, pages(DOUBLE_BIT)?);
    let count = |pages: &Reading<Vec<u64>>| part(pages, |pages| Ok(pages.len() as u32));
    let purpose = "for its pending page retirement";
    let pending = device.value("nvmlDeviceGetRetiredPagesPendingStatus", purpose, |device| {
        device.are_pages_pending_retired()
    })?;
    Ok(MemoryHealth {
        corrected: errors(MemoryError::Corrected, EccCounter::Volatile)?,
        uncorrected: errors(MemoryError::Uncorrected, EccCounter::Volatile)?,
        corrected_lifetime: errors(MemoryError::Corrected, EccCounter::Aggregate)?,
        uncorrected_lifetime: errors(MemoryError::Uncorrected, EccCounter::Aggregate)?,
        retired_single_bit: count(&single),
        retired_double_bit: count(&double),
        retired_pending: pending,
        remapped_corrected: rows.and_then(|rows| number(rows[0])),
        remapped_uncorrected: rows.and_then(|rows| number(rows[1])),
        remapped_pending: rows.and_then(|rows| switch(rows[2])),
        remapped_failure: rows.and_then(|rows| switch(rows[3])),
        banks_max: banks.and_then(|banks| number(banks.max)),
        banks_high: banks.and_then(|banks| number(banks.high)),
        banks_partial: banks.and_then(|banks| number(banks.partial)),
        banks_low: banks.and_then(|banks| number(banks.low)),
        banks_none: banks.and_then(|banks| number(banks.none)),
        sram_threshold_exceeded: sram.and_then(|errors| switch(errors.bThresholdExceeded)),
        retired_pages: single.and_then(|single| Ok(retired(single, double?))),
    })
}

fn retired(single: Vec<u64>, double: Vec<u64>) -> Vec<RetiredPage> {
    let page = |double_bit| move |address| RetiredPage { address, double_bit };
    single.into_iter().map(page(false)).chain(double.into_iter().map(page(true))).collect()
}

/// Returns the uncorrected errors of the SRAM, by kind and place.
pub(super) fn sram_errors(device: Device<'_>) -> Result<SramErrors> {
    let errors = reading(device.sram_errors())?;
    let count =
        |of: fn(&nvmlEccSramErrorStatus_t) -> u64| part(&errors, |errors| number(of(errors)));
    Ok(SramErrors {
        parity: count(|errors| errors.volatileUncParity),
        multi_bit: count(|errors| errors.volatileUncSecDed),
        parity_lifetime: count(|errors| errors.aggregateUncParity),
        multi_bit_lifetime: count(|errors| errors.aggregateUncSecDed),
        l2_cache: count(|errors| errors.aggregateUncBucketL2),
        sm: count(|errors| errors.aggregateUncBucketSm),
        microcontroller: count(|errors| errors.aggregateUncBucketMcu),
        pcie: count(|errors| errors.aggregateUncBucketPcie),
        other: count(|errors| errors.aggregateUncBucketOther),
    })
}

/// Returns the ECC errors by location, with one call per location.
pub(super) fn memory_errors(device: Device<'_>) -> Result<MemoryErrors> {
    let by_location = |kind: MemoryError, since: EccCounter| -> Result<ErrorsByPlace> {
        let errors = |location| -> Result<Reading<u64>> {
            let purpose = "for its memory errors by location";
            let counted = device.query("nvmlDeviceGetMemoryErrorCounter", purpose, |device| {
                device.memory_error_counter(kind, since, location)
            });
            Ok(reading(counted)?.and_then(number))
        };
        Ok(ErrorsByPlace {
            device_memory: errors(MemoryLocation::Device)?,
            register_file: errors(MemoryLocation::RegisterFile)?,
            l1_cache: errors(MemoryLocation::L1Cache)?,
            l2_cache: errors(MemoryLocation::L2Cache)?,
            texture_memory: errors(MemoryLocation::Texture)?,
            cbu: errors(MemoryLocation::Cbu)?,
            sram: errors(MemoryLocation::SRAM)?,
        })
    };
    Ok(MemoryErrors {
        corrected: by_location(MemoryError::Corrected, EccCounter::Volatile)?,
        uncorrected: by_location(MemoryError::Uncorrected, EccCounter::Volatile)?,
        corrected_lifetime: by_location(MemoryError::Corrected, EccCounter::Aggregate)?,
        uncorrected_lifetime: by_location(MemoryError::Uncorrected, EccCounter::Aggregate)?,
    })
}

/// Returns whether the device needs a reset; all values are field values.
pub(super) fn reset_status(device: Device<'_>) -> Result<ResetStatus> {
    let numbers = [
        NVML_FI_DEV_RESET_STATUS,
        NVML_FI_DEV_DRAIN_AND_RESET_STATUS,
        NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    ];
    let [required, drain_recommended, recovery] = fields::values(device, numbers)?;
    Ok(ResetStatus {
        required: required.map(|status| status != 0),
        drain_recommended: drain_recommended.map(|status| status != 0),
        recovery: recovery
            .map(|action| u32::try_from(action).map_or(RecoveryAction::Other, recovery_action)),
    })
}
