//! The device's memories: their health, and what the driver keeps account of.

use super::{Noted, view};
use crate::json::status::known;
use gpu_core::{MemoryHealth, Percent};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct ProtectedMemory {
    total_bytes: Option<u64>,
    used_bytes: Option<u64>,
}

impl ProtectedMemory {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::ProtectedMemory) -> Self {
        view!(
            noted,
            "protected_memory",
            ProtectedMemory {
                total_bytes: group.total.map(|bytes| bytes.0),
                used_bytes: group.used.map(|bytes| bytes.0),
            }
        )
    }
}

#[derive(Serialize)]
pub(super) struct Health {
    corrected_count: Option<u64>,
    uncorrected_count: Option<u64>,
    corrected_lifetime_count: Option<u64>,
    uncorrected_lifetime_count: Option<u64>,
    retired_single_bit_count: Option<u32>,
    retired_double_bit_count: Option<u32>,
    retired_pending: Option<bool>,
    remapped_corrected_count: Option<u32>,
    remapped_uncorrected_count: Option<u32>,
    remapped_pending: Option<bool>,
    remapped_failure: Option<bool>,
}

impl Health {
    pub(super) fn of(noted: &mut Noted, group: MemoryHealth) -> Self {
        view!(
            noted,
            "memory_health",
            Health {
                corrected_count: group.corrected,
                uncorrected_count: group.uncorrected,
                corrected_lifetime_count: group.corrected_lifetime,
                uncorrected_lifetime_count: group.uncorrected_lifetime,
                retired_single_bit_count: group.retired_single_bit,
                retired_double_bit_count: group.retired_double_bit,
                retired_pending: group.retired_pending,
                remapped_corrected_count: group.remapped_corrected,
                remapped_uncorrected_count: group.remapped_uncorrected,
                remapped_pending: group.remapped_pending,
                remapped_failure: group.remapped_failure,
            }
        )
    }
}

/// Errors by the place where they were found.
#[derive(Serialize)]
struct ErrorsByPlace {
    device_memory_count: Option<u64>,
    register_file_count: Option<u64>,
    l1_cache_count: Option<u64>,
    l2_cache_count: Option<u64>,
    texture_memory_count: Option<u64>,
    cbu_count: Option<u64>,
    sram_count: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct MemoryErrors {
    corrected: ErrorsByPlace,
    uncorrected: ErrorsByPlace,
    corrected_lifetime: ErrorsByPlace,
    uncorrected_lifetime: ErrorsByPlace,
}

impl MemoryErrors {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::MemoryErrors) -> Self {
        macro_rules! by_place {
            ($prefix:literal, $errors:expr) => {
                view!(
                    noted,
                    $prefix,
                    ErrorsByPlace {
                        device_memory_count: $errors.device_memory,
                        register_file_count: $errors.register_file,
                        l1_cache_count: $errors.l1_cache,
                        l2_cache_count: $errors.l2_cache,
                        texture_memory_count: $errors.texture_memory,
                        cbu_count: $errors.cbu,
                        sram_count: $errors.sram,
                    }
                )
            };
        }
        MemoryErrors {
            corrected: by_place!("memory_errors.corrected", group.corrected),
            uncorrected: by_place!("memory_errors.uncorrected", group.uncorrected),
            corrected_lifetime: by_place!(
                "memory_errors.corrected_lifetime",
                group.corrected_lifetime
            ),
            uncorrected_lifetime: by_place!(
                "memory_errors.uncorrected_lifetime",
                group.uncorrected_lifetime
            ),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Accounting {
    buffer_count: Option<u32>,
    processes: Option<Vec<AccountedProcess>>,
}

impl Accounting {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Accounting) -> Self {
        Accounting {
            buffer_count: known(noted, "accounting.buffer_count", group.buffer_size),
            processes: known(noted, "accounting.processes", group.processes)
                .map(|processes| processes.iter().map(AccountedProcess::of).collect()),
        }
    }
}

#[derive(Serialize)]
struct AccountedProcess {
    pid: Option<u32>,
    running: Option<bool>,
    memory_max_bytes: Option<u64>,
    utilization_percent: Option<u8>,
    time_ms: Option<u64>,
}

impl AccountedProcess {
    fn of(process: &gpu_core::AccountedProcess) -> Self {
        AccountedProcess {
            pid: process.pid.ok().map(|pid| pid.0),
            running: process.running.ok(),
            memory_max_bytes: process.memory_max.ok().map(|bytes| bytes.0),
            utilization_percent: process.utilization.ok().map(Percent::get),
            time_ms: process.time.ok(),
        }
    }
}
