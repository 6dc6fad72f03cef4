//! Errors of device memory and the reactions to them.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{EccSramErrorStatus1, RowRemapperHistogram};
use crate::pointer::{Out, Versioned, put_all};
use crate::view::Subject;
use std::ffi::{c_uint, c_ulonglong};

/// Kinds of errors (`nvmlMemoryErrorType_t`).
const CORRECTED: c_uint = 0;
const UNCORRECTED: c_uint = 1;
/// The counting periods (`nvmlEccCounterType_t`).
const VOLATILE: c_uint = 0;
const AGGREGATE: c_uint = 1;
/// The causes of page retirement (`nvmlPageRetirementCause_t`).
const SINGLE_BIT: c_uint = 0;
const DOUBLE_BIT: c_uint = 1;
/// The memory locations (`nvmlMemoryLocation_t`).
const L1_CACHE: c_uint = 0;
const L2_CACHE: c_uint = 1;
const DEVICE_MEMORY: c_uint = 2;
const REGISTER_FILE: c_uint = 3;
const TEXTURE_MEMORY: c_uint = 4;
const TEXTURE_SHARED: c_uint = 5;
const CBU: c_uint = 6;
const SRAM: c_uint = 7;

fn errors(gpu: Subject<'_>, kind: c_uint, since: c_uint) -> Answer<u64> {
    let health = gpu.memory_health()?;
    Ok(match (kind, since) {
        (CORRECTED, VOLATILE) => health.corrected?,
        (UNCORRECTED, VOLATILE) => health.uncorrected?,
        (CORRECTED, AGGREGATE) => health.corrected_lifetime?,
        (UNCORRECTED, AGGREGATE) => health.uncorrected_lifetime?,
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

fn errors_at(gpu: Subject<'_>, which: (c_uint, c_uint), location: c_uint) -> Answer<u64> {
    let errors = gpu.memory_errors()?;
    let errors = match which {
        (CORRECTED, VOLATILE) => &errors.corrected,
        (UNCORRECTED, VOLATILE) => &errors.uncorrected,
        (CORRECTED, AGGREGATE) => &errors.corrected_lifetime,
        (UNCORRECTED, AGGREGATE) => &errors.uncorrected_lifetime,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    Ok(match location {
        L1_CACHE => errors.l1_cache?,
        L2_CACHE => errors.l2_cache?,
        DEVICE_MEMORY => errors.device_memory?,
        REGISTER_FILE => errors.register_file?,
        TEXTURE_MEMORY => errors.texture_memory?,
        TEXTURE_SHARED => return Err(Code::NOT_SUPPORTED),
        CBU => errors.cbu?,
        SRAM => errors.sram?,
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

/// Returns the addresses of retired pages.
fn pages(gpu: Subject<'_>, cause: c_uint) -> Answer<Vec<c_ulonglong>> {
    let double_bit = match cause {
        SINGLE_BIT => false,
        DOUBLE_BIT => true,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    let pages = gpu.memory_health()?.retired_pages.as_deref().map_err(|absent| *absent)?;
    let of_cause = pages.iter().filter(|page| page.double_bit == double_bit);
    Ok(of_cause.map(|page| page.address).collect())
}

exports! {
    gpu [nvmlDeviceGetTotalEccErrors](kind: c_uint, since: c_uint, count: Out<c_ulonglong>) |gpu| {
        count.put(errors(gpu, kind, since)?)
    }

    gpu [nvmlDeviceGetMemoryErrorCounter](
        kind: c_uint, since: c_uint, location: c_uint, count: Out<c_ulonglong>,
    ) |gpu| {
        count.put(errors_at(gpu, (kind, since), location)?)
    }

    gpu [nvmlDeviceGetRetiredPages](cause: c_uint, count: Out<c_uint>, addresses: Out<c_ulonglong>)
        |gpu| {
        addresses.put_list(count, &pages(gpu, cause)?)
    }

    gpu [nvmlDeviceGetRetiredPagesPendingStatus](pending: Out<c_uint>) |gpu| {
        pending.put(gpu.memory_health()?.retired_pending?.into())
    }

    gpu [nvmlDeviceGetRemappedRows](
        corrected: Out<c_uint>, uncorrected: Out<c_uint>, pending: Out<c_uint>,
        failure: Out<c_uint>,
    ) |gpu| {
        let health = gpu.memory_health()?;
        put_all([
            (corrected, health.remapped_corrected?),
            (uncorrected, health.remapped_uncorrected?),
            (pending, health.remapped_pending?.into()),
            (failure, health.remapped_failure?.into()),
        ])
    }

    gpu [nvmlDeviceGetRowRemapperHistogram](banks: Out<RowRemapperHistogram>) |gpu| {
        let health = gpu.memory_health()?;
        banks.put(RowRemapperHistogram {
            max: health.banks_max?,
            high: health.banks_high?,
            partial: health.banks_partial?,
            low: health.banks_low?,
            none: health.banks_none?,
        })
    }

    gpu [nvmlDeviceGetSramEccErrorStatus](status: Out<EccSramErrorStatus1>) |gpu| {
        status.check_version()?;
        let (sram, errors) = (gpu.sram_errors()?, gpu.memory_errors()?);
        status.put(EccSramErrorStatus1 {
            version: EccSramErrorStatus1::VERSION,
            aggregate_parity: sram.parity_lifetime?,
            aggregate_sec_ded: sram.multi_bit_lifetime?,
            aggregate_corrected: errors.corrected_lifetime.sram.unwrap_or(0),
            volatile_parity: sram.parity?,
            volatile_sec_ded: sram.multi_bit?,
            volatile_corrected: errors.corrected.sram.unwrap_or(0),
            of_l2: sram.l2_cache?,
            of_sm: sram.sm?,
            of_pcie: sram.pcie?,
            of_mcu: sram.microcontroller?,
            of_others: sram.other?,
            threshold_exceeded: gpu.memory_health()?.sram_threshold_exceeded?.into(),
        })
    }
}
