//! Temperatures, power, clocks, and modes of few devices.

use crate::formats::csv::field::{Field, Row, detail, enabled, mib, plain, watts};
use crate::words;
use gpu_core::{Absent, FabricState, Group, Reading};

/// Makes a column of a clock.
macro_rules! clock {
    ($name:literal, $about:literal, $value:ident $(, $other:literal)?) => {
        detail!($name, $about, Clocks: clocks.$value, plain).unit("MHz").or(&[$($other)?])
    };
}

/// Makes a column of a clock of applications.
macro_rules! application_clock {
    ($name:literal, $about:literal, $value:ident, $other:literal) => {
        detail!($name, $about, ApplicationClocks: application_clocks.$value, plain)
            .unit("MHz")
            .or(&[$other])
    };
}

/// The columns from the temperatures on.
pub(super) const FIELDS: &[Field] = &[
    Field::new("temperature.gpu", "temperature of the chip in degrees Celsius", |row| {
        row.sample()?.temperature.map(|at| plain(&at.0))
    }),
    detail!(
        "temperature.gpu.tlimit", "degrees Celsius below the temperature at which clocks fall",
        Thermal: thermal.margin, |at| plain(&at.0)
    ),
    detail!(
        "temperature.memory", "temperature of the memory in degrees Celsius",
        Thermal: thermal.memory, |at| plain(&at.0)
    )
    .bare(),
    detail!(
        "power.management", "whether the device keeps to a power limit",
        PowerReadings: power_readings.managed, enabled
    ),
    Field::new("power.draw", "power drawn", |row| {
        row.sample()?.power_draw.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.draw.average", "power drawn over the last second",
        PowerReadings: power_readings.average, watts
    )
    .unit("W"),
    detail!(
        "power.draw.instant", "power drawn at this moment",
        PowerReadings: power_readings.instant, watts
    )
    .unit("W"),
    detail!("power.limit", "power limit that was asked for", Power: power.limit, watts).unit("W"),
    Field::new("enforced.power.limit", "power limit in force", |row| {
        row.sample()?.power_limit.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.default_limit", "power limit after a reset",
        Power: power.default_limit, watts
    )
    .unit("W"),
    detail!("power.min_limit", "lowest power limit", Power: power.limit_min, watts).unit("W"),
    detail!("power.max_limit", "highest power limit", Power: power.limit_max, watts).unit("W"),
    clock!("clocks.current.graphics", "graphics clock", graphics, "clocks.gr"),
    clock!("clocks.current.sm", "clock of the multiprocessors", sm, "clocks.sm"),
    clock!("clocks.current.memory", "memory clock", memory, "clocks.mem"),
    clock!("clocks.current.video", "clock of the video engines", video, "clocks.video"),
    application_clock!(
        "clocks.applications.graphics",
        "graphics clock that programs are given",
        graphics,
        "clocks.applications.gr"
    ),
    application_clock!(
        "clocks.applications.memory",
        "memory clock that programs are given",
        memory,
        "clocks.applications.mem"
    ),
    application_clock!(
        "clocks.default_applications.graphics",
        "… where nobody chose one",
        default_graphics,
        "clocks.default_applications.gr"
    ),
    application_clock!(
        "clocks.default_applications.memory",
        "… where nobody chose one",
        default_memory,
        "clocks.default_applications.mem"
    ),
    clock!("clocks.max.graphics", "highest graphics clock", graphics_max, "clocks.max.gr"),
    clock!("clocks.max.sm", "highest clock of the multiprocessors", sm_max),
    clock!("clocks.max.memory", "highest memory clock", memory_max, "clocks.max.mem"),
    Field::new("mig.mode.current", "whether the device is split by MIG", |row| {
        row.device.info.mig_enabled.map(|split| enabled(&split))
    }),
    detail!("mig.mode.pending", "… from the next reset on", Modes: modes.mig_pending, enabled),
    detail!(
        "gsp.mode.current", "whether the device runs firmware of the driver",
        GspFirmware: gsp_firmware.enabled, enabled
    ),
    detail!(
        "gsp.mode.default", "whether it would where nobody chose",
        GspFirmware: gsp_firmware.enabled_by_default, enabled
    ),
    detail!(
        "protected_memory.total", "memory that the host cannot read",
        ProtectedMemory: protected_memory.total, mib
    )
    .unit("MiB"),
    detail!(
        "protected_memory.used", "… that is in use",
        ProtectedMemory: protected_memory.used, mib
    )
    .unit("MiB"),
    Field::new("protected_memory.free", "… that is free", protected_free)
        .unit("MiB")
        .from(Group::ProtectedMemory),
    detail!(
        "fabric.state", "how far the device is registered with its fabric",
        Fabric: fabric.state, |state| format!("state  {}", words::fabric_state(*state))
    ),
    Field::new("fabric.status", "what came of that, once it is complete", fabric_status)
        .from(Group::Fabric),
];

/// Of whole mebibytes, as nvidia-smi reckons it.
fn protected_free(row: &Row<'_>) -> Reading<String> {
    let memory = row.details()?.protected_memory.as_ref().ok_or(Absent::NotRecorded)?;
    Ok(plain(&memory.total?.mib().saturating_sub(memory.used?.mib())))
}

/// Until the registration is complete, the status is told as not available.
fn fabric_status(row: &Row<'_>) -> Reading<String> {
    let fabric = row.details()?.fabric.as_ref().ok_or(Absent::NotRecorded)?;
    match fabric.state? {
        FabricState::Completed => fabric.status.map(|code| format!("status {}", said(code))),
        _ => Ok("status N/A".to_owned()),
    }
}

/// The names of NVML's return codes, as the library has them.
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
