//! The processes that a text lists, and the devices it covers.

use super::take_later;
use crate::document::{Document, Gpu, Kind, Process, Value};
use crate::field;
use gpu_core::{Absent, Bytes, DeviceProcess, DeviceProcessKind, Pid, Reading, plausible};
use std::collections::{BTreeMap, BTreeSet};

/// A process by its PID and MIG instance.
pub(super) type Key = (Pid, Option<u32>, Option<u32>);

pub(super) struct Listed {
    /// The identifiers of its device.
    pub(super) device: Gpu,
    pub(super) process: DeviceProcess,
}

impl Listed {
    pub(super) fn key(&self) -> Key {
        let process = &self.process;
        (process.pid, process.gpu_instance, process.compute_instance)
    }
}

/// The process list of a text.
pub(super) struct List {
    pub(super) processes: Vec<Listed>,
    /// The devices it covers, by index; `None` for all devices of the text.
    pub(super) devices: Option<BTreeSet<u32>>,
    /// Whether it lists processes of every kind, so that unlisted processes have ended.
    pub(super) is_full: bool,
}

/// Returns the process list of a text; `None` if it has none, or if a PID is impossible: without
/// that row its memory would seem to belong to no process.
///
/// A process without a PID still uses memory. It gets a synthetic PID, counting down from one above
/// the range of real PIDs, so that the numbers are unique and differ from those of holders.
pub(super) fn read(document: &Document) -> Option<List> {
    let list = list(document)?;
    list.processes.iter().all(|listed| plausible::is_pid(listed.process.pid)).then_some(list)
}

fn list(document: &Document) -> Option<List> {
    if document.kind == Kind::Pmon {
        let rows = || document.rows.iter();
        return Some(List {
            processes: rows().filter_map(of_row).collect(),
            devices: Some(rows().filter_map(|row| unsigned(row, "gpu")).collect()),
            is_full: false,
        });
    }
    let processes = document.processes.as_ref()?;
    Some(List {
        processes: (1..).zip(processes).filter_map(|(row, p)| of_process(p, row)).collect(),
        devices: document.listing.clone(),
        is_full: matches!(document.kind, Kind::Table | Kind::Q | Kind::Xml | Kind::Gpustat),
    })
}

/// Merges the data of a later text about the same process.
pub(super) fn take(known: &mut DeviceProcess, later: &DeviceProcess) {
    use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics, Unknown};
    known.kind = match (known.kind, later.kind) {
        (kind, Unknown) => kind,
        (Compute, Graphics) | (Graphics, Compute) => ComputeAndGraphics,
        (_, kind) => kind,
    };
    take_later(&mut known.memory, later.memory);
    take_later(&mut known.utilization, later.utilization);
    // A path says more than the short name from `pmon`.
    if known.name.is_err() {
        known.name.clone_from(&later.name);
    }
}

/// Returns whether a text lists processes without PIDs: they account for memory, but cannot be
/// matched with holders of device files.
pub(super) fn is_anonymous(document: &Document) -> bool {
    document.kind == Kind::Gpustat
        && document.processes.iter().flatten().any(|process| process.pid.is_none())
}

/// Returns whether a PID is synthetic, for a process without a PID.
pub(super) fn is_anonymous_pid(pid: Pid) -> bool {
    pid.0 >= u32::MAX - Document::MAX_ROWS as u32
}

fn of_process(process: &Process, row: u32) -> Option<Listed> {
    let name = process.name.as_deref().or(process.user.as_deref()).unwrap_or_default();
    let anonymous = process.user.is_some().then_some(u32::MAX - row);
    let device = Gpu {
        index: process.gpu_index,
        uuid: process.gpu_uuid.clone(),
        bus_id: process.gpu_bus_id.clone(),
        ..Gpu::default()
    };
    let process = DeviceProcess {
        pid: Pid(process.pid.or(anonymous)?),
        kind: kind(process.type_.as_deref()),
        memory: process.memory_mib.map(Bytes::from_mib).and_then(plausible::memory),
        utilization: Err(Absent::NotRecorded),
        name: given(name),
        gpu_instance: process.gpu_instance_id,
        compute_instance: process.compute_instance_id,
    };
    Some(Listed { device, process })
}

/// Parses a row of `pmon`.
fn of_row(row: &BTreeMap<String, Value>) -> Option<Listed> {
    let text = |column| match row.get(column)? {
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    };
    let count = |column| match row.get(column) {
        Some(Value::Integer(value)) => u64::try_from(*value).map_err(|_| Absent::Implausible),
        Some(_) => Err(Absent::NotSupported),
        None => Err(Absent::NotRecorded),
    };
    let utilization: Reading<u64> = count("sm");
    let process = DeviceProcess {
        pid: Pid(unsigned(row, "pid")?),
        kind: kind(text("type")),
        memory: count("fb").map(Bytes::from_mib).and_then(plausible::memory),
        utilization: utilization.and_then(plausible::percent),
        name: text("command").ok_or(Absent::NotSupported).and_then(given),
        gpu_instance: None,
        compute_instance: None,
    };
    Some(Listed { device: Gpu { index: unsigned(row, "gpu"), ..Gpu::default() }, process })
}

/// Returns a name, or the reason for its absence.
fn given(name: &str) -> Reading<String> {
    field::absent(name).map_or_else(|| Ok(name.to_owned()), Err)
}

/// Parses a whole number of a row, such as an index.
pub(super) fn unsigned(row: &BTreeMap<String, Value>, column: &str) -> Option<u32> {
    match row.get(column)? {
        Value::Integer(value) => u32::try_from(*value).ok(),
        _ => None,
    }
}

fn kind(letters: Option<&str>) -> DeviceProcessKind {
    match letters {
        Some("C") => DeviceProcessKind::Compute,
        Some("G") => DeviceProcessKind::Graphics,
        Some("C+G" | "G+C") => DeviceProcessKind::ComputeAndGraphics,
        Some("M" | "M+C" | "C+M") => DeviceProcessKind::Mps,
        _ => DeviceProcessKind::Unknown,
    }
}
