//! Joins several texts about one machine.
//!
//! Devices are matched by the strongest identifier that two texts share. Values of a later text
//! replace those of an earlier one. Data that no text has stays absent: without output of `fuser`
//! or `lsof` the holders are a fault, never an empty list, and likewise the driver's messages
//! without a kernel log. A message without a time is undated.

mod devices;
mod holders;
mod listed;
mod other;

use crate::document::{Document, ErrorCode, Kind, Value};
use crate::field;
use crate::kernel_log;
use crate::stamp::TextTimes;
use devices::Devices;
use gpu_core::{
    Absent, DeviceState, Driver, DriverMessage, ErrorKind, Fault, Holder, MachineFault, Origin,
    PciBusId, Pid, Process, ProcessInfo, Reading, Snapshot, Timestamp, Unreadable,
};
use std::collections::{BTreeMap, BTreeSet};

/// Joins documents about one machine, in the order of the paste.
pub fn snapshot(documents: &[Document], taken_at: Timestamp) -> Snapshot {
    let documents = &*other::adapted(documents);
    let devices = Devices::read(documents).into_states();
    let (files, holders) = holders::read(documents, &devices);
    let driver = driver(documents, devices.is_empty());
    let processes = processes(documents, &devices, holders.as_deref().unwrap_or_default());
    Snapshot {
        driver,
        devices,
        files,
        holders,
        unreadable: unreadable(documents),
        processes,
        driver_messages: driver_messages(documents, taken_at),
        ..Snapshot::empty(Origin::Pasted, taken_at)
    }
}

/// Returns the latest time in the texts. The texts are judged at this time, not at the time of
/// `clock`, which only supplies the year of dates that lack it. Returns `clock` if the texts have
/// no date.
pub fn moment(documents: &[Document], clock: Timestamp) -> Timestamp {
    times(documents).with_year_of(clock).latest().unwrap_or(clock)
}

fn times(documents: &[Document]) -> TextTimes {
    documents.iter().fold(TextTimes::default(), |times, document| times.and(document.times))
}

fn driver(documents: &[Document], no_devices: bool) -> Result<Driver, Fault> {
    let last = |value: fn(&Document) -> &Option<String>| {
        // Of several vendors, the driver is that of the first one.
        let latest = documents.iter().rev().filter(|document| value(document).is_some());
        let found = latest.min_by_key(|document| other::vendor(document));
        found.and_then(|document| value(document).clone()).ok_or(Absent::NotRecorded)
    };
    let driver = Driver {
        version: last(|document| &document.driver_version),
        cuda: last(|document| &document.cuda_version),
    };
    if !no_devices {
        return Ok(driver);
    }
    let codes = documents.iter().flat_map(|document| &document.errors);
    let fault = |kind: ErrorKind, text: &str| Err(Fault { kind, text: text.to_owned() });
    match codes.rev().find_map(|code| machine_fault(*code)) {
        Some((kind, text)) => fault(kind.into(), text),
        None if driver.version.is_ok() => Ok(driver),
        None => fault(Absent::NotRecorded.into(), "find output of nvidia-smi in the text"),
    }
}

/// Returns the messages of the kernel log, oldest first; dates without a year are taken to precede
/// `taken_at`.
fn driver_messages(
    documents: &[Document],
    taken_at: Timestamp,
) -> Result<Vec<DriverMessage>, Fault> {
    let is_log = |d: &Document| d.kind == Kind::KernelLog || !d.driver_messages.is_empty();
    if !documents.iter().any(is_log) {
        let text = "find kernel log messages in the text".to_owned();
        return Err(Fault { kind: Absent::NotRecorded.into(), text });
    }
    let rows = documents.iter().flat_map(|document| &document.driver_messages);
    let times = times(documents).with_year_of(taken_at);
    let mut messages: Vec<_> = rows.map(|row| kernel_log::of_row(row, times)).collect();
    messages.sort_by_key(|message| message.at);
    Ok(messages)
}

/// Returns the fault of the whole machine that a failure text reports, and a fragment that
/// completes 'failed to …'.
fn machine_fault(code: ErrorCode) -> Option<(MachineFault, &'static str)> {
    Some(match code {
        ErrorCode::DriverNotRunning => {
            (MachineFault::DriverNotLoaded, "communicate with the driver: it is not loaded")
        }
        ErrorCode::NvmlMismatch => (
            MachineFault::VersionMismatch,
            "communicate with the driver: library and kernel module versions differ",
        ),
        ErrorCode::NoDevices => (MachineFault::NoDevices, "find a device"),
        ErrorCode::NoLibrary => (MachineFault::NoLibrary, "load the NVML library"),
        ErrorCode::Blocked => {
            (MachineFault::Blocked, "open the devices: the operating system blocks them")
        }
        ErrorCode::NotPermitted => (MachineFault::NotPermitted, "open the devices: not permitted"),
        _ => return None,
    })
}

fn unreadable(documents: &[Document]) -> Unreadable {
    let pids: BTreeSet<u32> =
        documents.iter().flat_map(|document| &document.unreadable_pids).copied().collect();
    let mut unreadable = Unreadable::default();
    pids.iter().for_each(|_| unreadable.count(Absent::NotPermitted));
    unreadable
}

/// Returns the data of every process that a device lists or that holds a file.
fn processes(
    documents: &[Document],
    devices: &[DeviceState],
    holders: &[Holder],
) -> BTreeMap<Pid, Process> {
    // Tools that read /proc print the short name; nvidia-smi prints a path, which is often
    // truncated.
    let (short, users) = (holders::commands(documents), holders::users(documents));
    let commands = short.into_iter().chain(monitored(documents)).rev();
    let commands: BTreeMap<Pid, String> = commands.collect();
    let mut processes = BTreeMap::new();
    let listed = devices.iter().filter_map(|device| device.processes.as_ref().ok()).flatten();
    let listed = listed.map(|process| (process.pid, process.name.clone()));
    let holding = holders.iter().map(|holder| (holder.process.pid, Err(Absent::NotRecorded)));
    for (pid, name) in listed.chain(holding) {
        // A process without a PID has no further data, and no command can name it.
        let name = if listed::is_anonymous_pid(pid) { Err(Absent::NotRecorded) } else { name };
        let name = match commands.get(&pid) {
            Some(command) => Ok(command.clone()),
            None => name.map(|path| program(&path).to_owned()),
        };
        let process = processes.entry(pid).or_insert(Process(Err(Absent::NotRecorded)));
        if process.0.is_err() && name != Err(Absent::NotRecorded) {
            *process = Process::from(name.map(|name| {
                let user = users.get(&pid).cloned().ok_or(Absent::NotRecorded);
                ProcessInfo { user, ..ProcessInfo::from_name(pid, name) }
            }));
        }
    }
    processes
}

/// The names that `pmon` prints.
fn monitored(documents: &[Document]) -> Vec<(Pid, String)> {
    let rows = documents.iter().filter(|document| document.kind == Kind::Pmon);
    let name = |row: &BTreeMap<String, Value>| match (row.get("pid")?, row.get("command")?) {
        (Value::Integer(pid), Value::Text(name)) if field::absent(name).is_none() => {
            Some((Pid(u32::try_from(*pid).ok()?), name.clone()))
        }
        _ => None,
    };
    rows.flat_map(|document| document.rows.iter().filter_map(name)).collect()
}

/// Returns the program name in a path; on Linux, arguments may follow it.
fn program(path: &str) -> &str {
    let path =
        if path.starts_with(['/', '.']) { path.split(' ').next() } else { None }.unwrap_or(path);
    path.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Takes a later reading: a value, or a reason more specific than "not recorded".
fn take_later<T>(earlier: &mut Reading<T>, later: Reading<T>) {
    let takes = match &later {
        Ok(_) | Err(Absent::DeviceLost | Absent::Failed) => true,
        Err(_) => matches!(earlier, Err(Absent::NotRecorded)),
    };
    if takes {
        *earlier = later;
    }
}

/// Returns a GPU whose bus ID differs between documents, by index and with two of the IDs: the
/// documents come from different machines. Each vendor's tools number its own devices.
pub fn differing(documents: &[Document]) -> Option<(u32, &str, &str)> {
    let mut seen: BTreeMap<(usize, u32), &str> = BTreeMap::new();
    let gpus = |document| std::iter::repeat(other::vendor(document)).zip(&document.gpus);
    documents.iter().flat_map(gpus).find_map(|(vendor, gpu)| {
        let (index, now) = (gpu.index?, gpu.bus_id.as_deref()?);
        let before = *seen.entry((vendor, index)).or_insert(now);
        let same = match (before.parse::<PciBusId>(), now.parse::<PciBusId>()) {
            (Ok(before), Ok(now)) => before == now,
            _ => before == now,
        };
        (!same).then_some((index, before, now))
    })
}

#[cfg(test)]
mod tests;
