//! The device's memories: their health, and what the driver keeps account of.

use super::{Noted, view};
use crate::json::known;
use gpu_core::{MemoryHealth, Percent};
use serde::Serialize;

/// Memory that neither the host nor other guests can read (confidential computing).
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProtectedMemory {
    /// Total protected memory, in bytes. Null if unknown.
    pub total_bytes: Option<u64>,
    /// Protected memory in use, in bytes. Null if unknown.
    pub used_bytes: Option<u64>,
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

/// Errors of the memory and repairs.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// Number of corrected errors since the driver was loaded. Null if unknown.
    pub corrected_count: Option<u64>,
    /// Number of uncorrected errors since the driver was loaded. Null if unknown.
    pub uncorrected_count: Option<u64>,
    /// Number of corrected errors over the lifetime of the GPU. Null if unknown.
    pub corrected_lifetime_count: Option<u64>,
    /// Number of uncorrected errors over the lifetime of the GPU. Null if unknown.
    pub uncorrected_lifetime_count: Option<u64>,
    /// Number of pages retired after several single-bit errors. Null if unknown.
    pub retired_single_bit_count: Option<u32>,
    /// Number of pages retired after a double-bit error. Null if unknown.
    pub retired_double_bit_count: Option<u32>,
    /// Whether a page will be retired at the next reset. Null if unknown.
    pub retired_pending: Option<bool>,
    /// Number of rows remapped after corrected errors. Null if unknown.
    pub remapped_corrected_count: Option<u32>,
    /// Number of rows remapped after uncorrected errors. Null if unknown.
    pub remapped_uncorrected_count: Option<u32>,
    /// Whether a row will be remapped at the next reset. Null if unknown.
    pub remapped_pending: Option<bool>,
    /// Whether a row could not be remapped, so that the GPU should be replaced. Null if unknown.
    pub remapped_failure: Option<bool>,
    /// Number of banks of the memory with all of their spare rows. Null if unknown.
    pub banks_max_count: Option<u32>,
    /// Number of banks with most of their spare rows. Null if unknown.
    pub banks_high_count: Option<u32>,
    /// Number of banks with some of their spare rows. Null if unknown.
    pub banks_partial_count: Option<u32>,
    /// Number of banks with few spare rows. Null if unknown.
    pub banks_low_count: Option<u32>,
    /// Number of banks without a spare row: the next bad row there cannot be remapped. Null if
    /// unknown.
    pub banks_none_count: Option<u32>,
    /// Whether uncorrected errors of the SRAM are past NVIDIA's limit, so that the GPU should be
    /// replaced. Null if unknown.
    pub sram_threshold_exceeded: Option<bool>,
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
                banks_max_count: group.banks_max,
                banks_high_count: group.banks_high,
                banks_partial_count: group.banks_partial,
                banks_low_count: group.banks_low,
                banks_none_count: group.banks_none,
                sram_threshold_exceeded: group.sram_threshold_exceeded,
            }
        )
    }
}

/// Number of errors by location.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorsByPlace {
    /// Errors of the device memory. Null if unknown.
    pub device_memory_count: Option<u64>,
    /// Errors of the register file. Null if unknown.
    pub register_file_count: Option<u64>,
    /// Errors of the L1 cache. Null if unknown.
    pub l1_cache_count: Option<u64>,
    /// Errors of the L2 cache. Null if unknown.
    pub l2_cache_count: Option<u64>,
    /// Errors of the texture memory. Null if unknown.
    pub texture_memory_count: Option<u64>,
    /// Errors of the convergence barrier unit. Null if unknown.
    pub cbu_count: Option<u64>,
    /// Errors of the SRAM as a whole. Null if unknown.
    pub sram_count: Option<u64>,
}

/// Errors of the memories of the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryErrors {
    /// Corrected errors since the driver was loaded.
    pub corrected: ErrorsByPlace,
    /// Uncorrected errors since the driver was loaded.
    pub uncorrected: ErrorsByPlace,
    /// Corrected errors over the lifetime of the GPU.
    pub corrected_lifetime: ErrorsByPlace,
    /// Uncorrected errors over the lifetime of the GPU.
    pub uncorrected_lifetime: ErrorsByPlace,
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

/// Accounting data of processes, kept by the driver.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accounting {
    /// Capacity of the buffer; the oldest entry is overwritten. Null if unknown.
    pub buffer_count: Option<u32>,
    /// The processes. Empty if accounting is off. Null if unknown.
    pub processes: Option<Vec<AccountedProcess>>,
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

/// Resource use of a process over its lifetime.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountedProcess {
    /// Process ID on the host, which another process may have reused. Null if unknown.
    pub pid: Option<u32>,
    /// Whether the process is still running. Null if unknown.
    pub running: Option<bool>,
    /// Peak memory use, in bytes. Null if unknown.
    pub memory_max_bytes: Option<u64>,
    /// Percentage of the lifetime in which its kernels were running. Null if unknown.
    pub utilization_percent: Option<u8>,
    /// Lifetime of the CUDA context, in milliseconds. Null if unknown.
    pub time_ms: Option<u64>,
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
