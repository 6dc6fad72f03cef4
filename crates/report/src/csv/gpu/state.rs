//! Columns for temperatures, power, clocks, and modes that few devices have.

use crate::csv::field::{Field, Row, detail, enabled, plain, watts};
use crate::wording;
use gpu_core::{Absent, FabricState, Group, ProtectedMemory, Reading};

/// Makes a column for a clock, in MHz.
macro_rules! clock {
    ($name:literal, $about:literal, $value:ident $(, $other:literal)?) => {
        detail!($name, $about, Clocks: clocks.$value, plain).unit("MHz").or(&[$($other)?])
    };
}

/// Makes a column for an applications clock, in MHz.
macro_rules! application_clock {
    ($name:literal, $about:literal, $value:ident, $other:literal) => {
        detail!($name, $about, ApplicationClocks: application_clocks.$value, plain)
            .unit("MHz")
            .or(&[$other])
    };
}

/// The columns from `temperature.gpu` on.
pub(super) const FIELDS: &[Field] = &[
    Field::new("temperature.gpu", "core temperature in °C", |row| {
        row.sample()?.temperature.map(|at| plain(&at.0))
    }),
    detail!(
        "temperature.gpu.tlimit", "T.Limit margin to slowdown in °C",
        Thermal: thermal.margin, |at| plain(&at.0)
    ),
    detail!(
        "temperature.memory", "temperature of the memory in degrees Celsius",
        Thermal: thermal.memory, |at| plain(&at.0)
    )
    .bare(),
    detail!(
        "power.management", "power management mode",
        PowerReadings: power_readings.managed, enabled
    ),
    Field::new("power.draw", "power drawn", |row| {
        row.sample()?.power_draw.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.draw.average", "average power draw",
        PowerReadings: power_readings.average, watts
    )
    .unit("W"),
    detail!(
        "power.draw.instant", "instantaneous power draw",
        PowerReadings: power_readings.instant, watts
    )
    .unit("W"),
    detail!("power.limit", "requested power limit", Power: power.limit, watts).unit("W"),
    Field::new("enforced.power.limit", "enforced power limit", |row| {
        row.sample()?.power_limit.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.default_limit", "default power limit",
        Power: power.default_limit, watts
    )
    .unit("W"),
    detail!("power.min_limit", "lowest power limit", Power: power.limit_min, watts).unit("W"),
    detail!("power.max_limit", "highest power limit", Power: power.limit_max, watts).unit("W"),
    clock!("clocks.current.graphics", "graphics clock", graphics, "clocks.gr"),
    clock!("clocks.current.sm", "SM clock", sm, "clocks.sm"),
    clock!("clocks.current.memory", "memory clock", memory, "clocks.mem"),
    clock!("clocks.current.video", "video clock", video, "clocks.video"),
    application_clock!(
        "clocks.applications.graphics",
        "applications graphics clock",
        graphics,
        "clocks.applications.gr"
    ),
    application_clock!(
        "clocks.applications.memory",
        "applications memory clock",
        memory,
        "clocks.applications.mem"
    ),
    application_clock!(
        "clocks.default_applications.graphics",
        "default applications clock",
        default_graphics,
        "clocks.default_applications.gr"
    ),
    application_clock!(
        "clocks.default_applications.memory",
        "default applications clock",
        default_memory,
        "clocks.default_applications.mem"
    ),
    clock!("clocks.max.graphics", "highest graphics clock", graphics_max, "clocks.max.gr"),
    clock!("clocks.max.sm", "highest clock of the multiprocessors", sm_max),
    clock!("clocks.max.memory", "highest memory clock", memory_max, "clocks.max.mem"),
    Field::new("mig.mode.current", "MIG mode", |row| {
        row.device.info.mig_enabled.map(|split| enabled(&split))
    }),
    detail!("mig.mode.pending", "… from the next reset on", Modes: modes.mig_pending, enabled),
    detail!(
        "gsp.mode.current", "current GSP firmware mode",
        GspFirmware: gsp_firmware.enabled, enabled
    ),
    detail!(
        "gsp.mode.default", "default GSP firmware mode",
        GspFirmware: gsp_firmware.enabled_by_default, enabled
    ),
    Field::new("protected_memory.total", "protected (Confidential Compute) memory", |row| {
        row.mib(protected_memory(row)?.total)
    })
    .unit("MiB")
    .from(Group::ProtectedMemory),
    Field::new("protected_memory.used", "… that is in use", |row| {
        row.mib(protected_memory(row)?.used)
    })
    .unit("MiB")
    .from(Group::ProtectedMemory),
    Field::new("protected_memory.free", "… that is free", protected_free)
        .unit("MiB")
        .from(Group::ProtectedMemory),
    Field::new("fabric.state", "NVLink fabric registration state", fabric_state)
        .from(Group::Fabric),
    Field::new("fabric.status", "NVLink fabric registration status", fabric_status)
        .from(Group::Fabric),
];

fn protected_memory<'a>(row: &Row<'a>) -> Reading<&'a ProtectedMemory> {
    row.details()?.protected_memory.as_ref().ok_or(Absent::NotRecorded)
}

/// Returns the free protected memory: the difference of whole MiB, as nvidia-smi computes it.
fn protected_free(row: &Row<'_>) -> Reading<String> {
    let (memory, release) = (protected_memory(row)?, row.release());
    Ok(plain(&release.mib(memory.total?).saturating_sub(release.mib(memory.used?))))
}

fn fabric_state(row: &Row<'_>) -> Reading<String> {
    let fabric = row.details()?.fabric.as_ref().ok_or(Absent::NotRecorded)?;
    Ok(labelled(row, "state", wording::fabric_state(fabric.state?)))
}

fn labelled(row: &Row<'_>, label: &str, value: &str) -> String {
    match row.release().labels_fabric() {
        true => format!("{label:<7}{value}"),
        false => value.to_owned(),
    }
}

/// Returns the registration status, which is `N/A` until the registration is complete.
fn fabric_status(row: &Row<'_>) -> Reading<String> {
    let fabric = row.details()?.fabric.as_ref().ok_or(Absent::NotRecorded)?;
    match fabric.state? {
        FabricState::Completed => fabric.status.map(|code| labelled(row, "status", said(code))),
        _ => Ok(labelled(row, "status", "N/A")),
    }
}

/// Returns NVML's text for a return code.
fn said(code: u32) -> &'static str {
    match code {
        0 => "Success",
        1 => "Uninitialized",
        2 => "Invalid Argument",
        3 => "Not Supported",
        4 => "Insufficient Permissions",
        5 => "Already Initialized",
        6 => "Not Found",
        7 => "Insufficient Size",
        8 => "Insufficient External Power",
        9 => "Driver Not Loaded",
        10 => "Timeout",
        11 => "Interrupt Request Issue",
        12 => "NVML Shared Library Not Found",
        13 => "Function Not Found",
        14 => "Corrupted infoROM",
        15 => "GPU is lost",
        16 => "GPU requires reset",
        17 => "Operating System Blocked Request",
        _ => "Unknown Error",
    }
}
