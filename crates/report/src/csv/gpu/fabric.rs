//! Columns for modes, protected memory, and the place of the GPU in its NVLink fabric and its rack.

use crate::csv::field::{Field, Row, detail, enabled, plain};
use crate::wording;
use gpu_core::{Absent, FabricState, Group, ProtectedMemory, Reading};

/// Makes a column for the fabric.
macro_rules! fabric {
    ($name:literal, $about:literal, $value:ident, $write:expr) => {
        detail!(concat!("fabric.", $name), $about, Fabric: fabric.$value, $write).bare(|_| true)
    };
}

/// Makes a column for the platform.
macro_rules! platform {
    ($name:literal, $about:literal, $value:ident, $write:expr) => {
        detail!(concat!("platform.", $name), $about, Platform: platform.$value, $write)
    };
}

/// The columns from `mig.mode.current` on.
pub(super) const FIELDS: &[Field] = &[
    Field::new("mig.mode.current", "MIG mode", |row| {
        row.device.info.partitioned.map(|split| enabled(&split))
    }),
    detail!("mig.mode.pending", "… after the next reset", Modes: modes.mig_pending, enabled),
    detail!(
        "gsp.mode.current", "current GSP firmware mode",
        GspFirmware: gsp_firmware.enabled, enabled
    ),
    detail!(
        "gsp.mode.default", "default GSP firmware mode",
        GspFirmware: gsp_firmware.enabled_by_default, enabled
    ),
    detail!("c2c.mode", "NVLink-C2C to the CPU", RareModes: rare_modes.c2c, enabled),
    Field::new("protected_memory.total", "protected (Confidential Compute) memory", |row| {
        row.mib(protected_memory(row)?.total)
    })
    .unit("MiB")
    .from(Group::ProtectedMemory),
    Field::new("protected_memory.used", "… in use", |row| row.mib(protected_memory(row)?.used))
        .unit("MiB")
        .from(Group::ProtectedMemory),
    Field::new("protected_memory.free", "… free", protected_free)
        .unit("MiB")
        .from(Group::ProtectedMemory),
    Field::new("fabric.state", "NVLink fabric registration state", fabric_state)
        .from(Group::Fabric)
        .bare(|release| !release.labels_fabric()),
    Field::new("fabric.status", "NVLink fabric registration status", fabric_status)
        .from(Group::Fabric)
        .bare(|release| !release.labels_fabric()),
    fabric!("cliqueId", "clique of GPUs that can reach each other", clique, plain),
    fabric!("clusterUuid", "UUID of the cluster", cluster, plain),
    fabric!("health.summary", "health of the fabric", health, plain),
    fabric!("health.bandwidth", "Full or Degraded", bandwidth_degraded, |degraded| {
        if *degraded { "Degraded" } else { "Full" }.to_owned()
    }),
    fabric!("health.route_recovery_in_progress", "recovery of a route", route_recovery, truth),
    fabric!("health.route_unhealthy", "unhealthy route", route_unhealthy, truth),
    fabric!(
        "health.access_timeout_recovery",
        "recovery from a timeout of an access",
        access_timeout_recovery,
        truth
    ),
    fabric!(
        "health.incorrect_configuration",
        "what is wrong with the configuration",
        incorrect_configuration,
        |wrong| if wrong.is_empty() { "None".to_owned() } else { wrong.clone() }
    ),
    Field::unreported("fabric.health.partition_assigned", "whether a partition is assigned")
        .bare(|_| true),
    platform!("chassis_serial_number", "serial number of the chassis", chassis_serial, plain),
    platform!("slot_number", "slot in the chassis", slot, plain),
    platform!("tray_index", "tray in the slot", tray, plain),
    platform!("host_id", "host in the slot", host, plain),
    platform!("peer_type", "Direct Connected or Switch Connected", switched, |switched| {
        if *switched { "Switch Connected" } else { "Direct Connected" }.to_owned()
    }),
    platform!("module_id", "module in the host", module, plain),
    platform!("gpu_fabric_guid", "identifier in the fabric, in hex", fabric_guid, |guid| {
        format!("0x{guid:016X}")
    }),
    Field::unreported("hostname", "host name that an administrator assigned to the GPU"),
    Field::unreported("bbx.time_run", "time of operation in the black box (BBX)").unit("seconds"),
];

/// Formats `True` or `False`.
fn truth(value: &bool) -> String {
    if *value { "True" } else { "False" }.to_owned()
}

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
