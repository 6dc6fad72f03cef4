//! Columns for ECC errors, retired pages and remapped rows.

use crate::csv::field::{Field, detail, enabled, plain, yes};
use gpu_core::Absent;

/// Makes a column for the errors in one location.
macro_rules! at {
    ($kind:literal, $since:literal, $errors:ident, $name:literal, $location:ident, $words:literal) => {
        Field::new(
            concat!("ecc.errors.", $kind, ".", $name),
            concat!("errors in ", $words, ", ", $since),
            |row| {
                let errors = row.details()?.memory_errors.as_ref().ok_or(Absent::NotRecorded)?;
                errors.$errors.$location.as_ref().map(plain).map_err(|absent| *absent)
            },
        )
        .from(gpu_core::Group::MemoryErrors)
    };
}

/// Makes the columns for one kind of error: each location, and the total.
macro_rules! errors {
    ($kind:literal, $about:literal, $since:literal, $errors:ident) => {
        &[
            at!($kind, $since, $errors, "device_memory", device_memory, "device memory"),
            at!($kind, $since, $errors, "dram", device_memory, "device memory"),
            at!($kind, $since, $errors, "register_file", register_file, "the register file"),
            at!($kind, $since, $errors, "l1_cache", l1_cache, "L1 cache"),
            at!($kind, $since, $errors, "l2_cache", l2_cache, "L2 cache"),
            at!($kind, $since, $errors, "texture_memory", texture_memory, "texture memory"),
            at!($kind, $since, $errors, "cbu", cbu, "CBU (convergence barrier unit)"),
            at!($kind, $since, $errors, "sram", sram, "SRAM"),
            detail!(
                concat!("ecc.errors.", $kind, ".total"), $about,
                MemoryHealth: memory_health.$errors, plain
            ),
        ]
    };
}

/// The columns of the modes of the memory.
pub(super) const MODES: &[Field] = &[
    detail!(
        "dramEncryption.mode.current", "encryption of the device memory",
        RareModes: rare_modes.memory_encryption, enabled
    ),
    detail!(
        "dramEncryption.mode.pending", "… after the next reboot",
        RareModes: rare_modes.memory_encryption_pending, enabled
    ),
    detail!("ecc.mode.current", "ECC mode", Modes: modes.ecc, enabled),
    detail!("ecc.mode.pending", "… after the next reset", Modes: modes.ecc_pending, enabled),
];

pub(super) const CORRECTED: &[Field] = errors!(
    "corrected.volatile",
    "volatile corrected errors (since driver load)",
    "corrected since the driver was loaded",
    corrected
);

pub(super) const CORRECTED_LIFETIME: &[Field] = errors!(
    "corrected.aggregate",
    "corrected errors over the GPU lifetime",
    "corrected over the GPU lifetime",
    corrected_lifetime
);

pub(super) const UNCORRECTED: &[Field] = errors!(
    "uncorrected.volatile",
    "uncorrected errors since the driver was loaded",
    "uncorrected since the driver was loaded",
    uncorrected
);

pub(super) const UNCORRECTED_LIFETIME: &[Field] = errors!(
    "uncorrected.aggregate",
    "uncorrected errors over the GPU lifetime",
    "uncorrected over the GPU lifetime",
    uncorrected_lifetime
);

/// Makes a column for uncorrected errors of the SRAM.
macro_rules! sram {
    ($name:literal, $about:literal, $value:ident) => {
        detail!(
            concat!("ecc.errors.uncorrected.", $name), $about,
            SramErrors: sram_errors.$value, plain
        )
    };
}

/// The columns of uncorrected errors of the SRAM, by kind and place.
pub(super) const SRAM: &[Field] = &[
    sram!("volatile.sram.parity", "parity errors in SRAM since the driver was loaded", parity),
    sram!(
        "volatile.sram.secded",
        "multi-bit errors in SRAM since the driver was loaded",
        multi_bit
    ),
    sram!("aggregate.sram.parity", "parity errors in SRAM, lifetime", parity_lifetime),
    sram!("aggregate.sram.secded", "multi-bit errors in SRAM, lifetime", multi_bit_lifetime),
    detail!(
        "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        "whether the errors in SRAM are past NVIDIA's limit",
        MemoryHealth: memory_health.sram_threshold_exceeded, yes
    ),
    sram!("aggregate.sram.l2", "errors in L2 cache, lifetime", l2_cache),
    sram!("aggregate.sram.sm", "errors in the SMs, lifetime", sm),
    sram!("aggregate.sram.mcu", "errors in microcontrollers, lifetime", microcontroller),
    sram!("aggregate.sram.pcie", "errors in the PCIe unit, lifetime", pcie),
    sram!("aggregate.sram.other", "errors in other SRAM, lifetime", other),
];

/// The columns of retired pages.
pub(super) const RETIRED_PAGES: &[Field] = &[
    detail!(
        "retired_pages.single_bit_ecc.count", "pages retired after single-bit errors",
        MemoryHealth: memory_health.retired_single_bit, plain
    )
    .or(&["retired_pages.sbe"]),
    detail!(
        "retired_pages.double_bit.count", "pages retired after a double-bit error",
        MemoryHealth: memory_health.retired_double_bit, plain
    )
    .or(&["retired_pages.dbe"]),
    detail!(
        "retired_pages.pending", "whether a page retirement is pending",
        MemoryHealth: memory_health.retired_pending, yes
    ),
];

/// The columns of remapped rows.
pub(in crate::csv) const REMAPPED_ROWS: &[Field] = &[
    detail!(
        "remapped_rows.correctable", "rows remapped after corrected errors",
        MemoryHealth: memory_health.remapped_corrected, plain
    )
    .or(&["remapped_rows.sbe"]),
    Field::unreported(
        "remapped_rows.correctable_inactive",
        "inactive rows remapped after corrected errors",
    ),
    detail!(
        "remapped_rows.uncorrectable", "rows remapped after uncorrected errors",
        MemoryHealth: memory_health.remapped_uncorrected, plain
    )
    .or(&["remapped_rows.dbe"]),
    Field::unreported(
        "remapped_rows.uncorrectable_inactive",
        "inactive rows remapped after uncorrected errors",
    ),
    detail!(
        "remapped_rows.pending", "whether a row remapping is pending",
        MemoryHealth: memory_health.remapped_pending, yes
    ),
    detail!(
        "remapped_rows.failure", "whether a row remapping failed",
        MemoryHealth: memory_health.remapped_failure, yes
    ),
    detail!(
        "remapped_rows.histogram.max", "banks with all of their spare rows",
        MemoryHealth: memory_health.banks_max, plain
    ),
    detail!(
        "remapped_rows.histogram.high", "banks with most of their spare rows",
        MemoryHealth: memory_health.banks_high, plain
    ),
    detail!(
        "remapped_rows.histogram.partial", "banks with some of their spare rows",
        MemoryHealth: memory_health.banks_partial, plain
    ),
    detail!(
        "remapped_rows.histogram.low", "banks with few spare rows",
        MemoryHealth: memory_health.banks_low, plain
    ),
    detail!(
        "remapped_rows.histogram.none", "banks without a spare row",
        MemoryHealth: memory_health.banks_none, plain
    ),
];
