//! Combines the recordings and `machine.toml` into a whole machine.

use crate::device_entry::set;
use crate::empty::{empty, viewer};
use crate::file::{DriverEntry, GpuEntry, MachineFile};
use crate::import::{UPTIME, machine_from_snapshot};
use crate::machine::{Device, Machine, device_file, drivers};
use crate::place::{Place, date};
use crate::{details, device_entry, driver_log, process_entry, product, script, topology};
use gpu_core::{Absent, Bytes, DeviceFile, Error, Fault, FileRole, Result, Snapshot, Timestamp};
use std::collections::BTreeSet;

/// Returns the machine in `base`, from the recordings, with the additions and corrections of the
/// file.
///
/// # Errors
/// `Invalid`, naming the line, when the file contradicts itself or the recordings.
pub(crate) fn assemble(
    name: &str,
    text: &str,
    mut file: MachineFile,
    base: Option<&Snapshot>,
) -> Result<Machine> {
    let place = Place(text);
    file.gpus = device_entry::one_by_one(place, file.gpus)?;
    let mut machine = base.map_or_else(|| empty(name), |base| machine_from_snapshot(name, base));
    machine.description = file.description.clone();
    machine.clock = date(place, "clock", &file.clock)?;
    machine.booted = match &file.booted {
        Some(booted) => date(place, "booted", booted)?,
        None => Timestamp(machine.clock.0.saturating_sub(UPTIME.as_millis() as u64)),
    };
    // The holders are known now, whether a recording shows them or not.
    machine.holders_fault = None;
    machine.hostname = file.hostname.clone().ok_or(Absent::NotRecorded);
    overlay_driver(&mut machine, &file.driver);
    let recorded: BTreeSet<u32> = machine.devices.iter().map(|d| d.info.id.index).collect();
    for entry in &file.gpus {
        device_entry::overlay(&mut machine.devices, place, entry)?;
    }
    apply_details(&mut machine.devices, place, &file, &recorded)?;
    machine.devices.sort_by_key(|device| device.info.id.index);
    if let Some(topology) = topology::read(place, &file, machine.devices.len())? {
        machine.topology = Ok(topology);
    }
    for device in &mut machine.devices {
        device_entry::complete(device, name);
    }

    for (i, entry) in file.processes.iter().enumerate() {
        let pid = *entry.pid.get_ref();
        if file.processes.iter().take(i).any(|earlier| *earlier.pid.get_ref() == pid) {
            return Err(process_entry::error(place, entry, "is defined twice"));
        }
        process_entry::overlay(&mut machine, place, entry)?;
    }
    let users = process_entry::users(&machine, &file.events);
    machine.viewer = viewer(file.viewer, &users);
    machine.sees_host_pids = Ok(machine.viewer.namespace.is_none());
    machine.processes.sort_by_key(|process| process.pid());
    if let Some(process) = machine.processes.iter().find(|p| p.hidden == Some(Absent::NotRecorded))
    {
        let what = format!("process {} has no name, here or in a recording", process.pid());
        return Err(place.error(None, &what));
    }
    let (clock, booted) = (machine.clock, machine.booted);
    let devices = machine.devices.clone();
    for process in &mut machine.processes {
        process_entry::complete(process, &devices, &users, clock, booted);
    }
    let mut messages = machine.driver_messages.unwrap_or_default();
    machine.driver_messages = Ok(Vec::new());
    for entry in &file.driver_messages {
        messages.push(driver_log::message(&machine, place, entry)?);
    }
    messages.sort_by_key(|message| message.at);
    machine.driver_messages = Ok(messages);
    for entry in &file.events {
        machine.events.push(script::scheduled(&machine, &users, place, entry)?);
    }
    machine.files = device_files(&machine, file.device_files);
    check_processes(&machine, place)?;
    check_files(&machine, place)?;
    check_memory(&machine, place, &file.gpus, base)?;
    Ok(machine)
}

fn overlay_driver(machine: &mut Machine, entry: &DriverEntry) {
    let reported = entry.version.is_some() || entry.cuda.is_some();
    if machine.driver.is_err() && reported {
        machine.driver = empty("").driver;
    }
    if let Ok(driver) = &mut machine.driver {
        set(&mut driver.version, entry.version.clone());
        set(&mut driver.cuda, entry.cuda.clone());
    }
    if let Some(fault) = entry.fault {
        machine.driver =
            Err(Fault { kind: fault.into(), text: "ask the driver for its version".to_owned() });
    }
}

/// Applies the details of each device's product and of its own entry.
fn apply_details(
    devices: &mut [Device],
    place: Place<'_>,
    file: &MachineFile,
    recorded: &BTreeSet<u32>,
) -> Result<()> {
    product::check(devices, &file.products, place)?;
    for device in devices {
        let index = device.info.id.index;
        let recorded = recorded.contains(&index);
        product::overlay(device, &file.products, recorded);
        let entry = file.gpus.iter().find(|entry| *entry.index.get_ref() == index);
        if let Some(entry) = entry {
            device.details.overlay(&entry.details);
            device.busy.overlay(&entry.busy);
        }
        if !recorded {
            details::complete(device);
        }
        if let Some(what) = details::contradiction(device) {
            let span = entry.map(|entry| entry.index.span());
            return Err(place.error(span, &format!("{}: {what}", device.info.id)));
        }
    }
    Ok(())
}

/// Returns the device files: those that the file lists, or by default one per device, the two that
/// every driver has, and any other file that a process has.
fn device_files(machine: &Machine, listed: Option<Vec<String>>) -> Vec<DeviceFile> {
    let paths = listed.unwrap_or_else(|| {
        let held = machine.ever_has().flat_map(|process| process.files.iter());
        let held = held.filter(|file| file.role != FileRole::Other);
        drivers(&machine.devices).chain(held.map(|file| file.path.to_string())).collect()
    });
    let mut files: Vec<DeviceFile> = paths.iter().map(|path| device_file(path)).collect();
    files.sort_by(|a, b| (a.role, a.device, &a.path).cmp(&(b.role, b.device, &b.path)));
    files.dedup();
    files
}

fn check_processes(machine: &Machine, place: Place<'_>) -> Result<()> {
    for (i, process) in machine.processes.iter().enumerate() {
        let complain =
            |what: &str| Err(place.error(None, &format!("process {} {what}", process.pid())));
        let others = machine.processes.iter().skip(i + 1);
        if process.namespace.is_some()
            && others.into_iter().any(|other| other.namespace == process.namespace)
        {
            complain("shares its namespace PID with another process")?;
        }
        if !process.info.started_at.is_ok_and(|at| at >= machine.booted && at <= machine.clock) {
            complain("starts before the machine or after its clock")?;
        }
        let has = !process.holdings.is_empty() || !process.files.is_empty();
        if has && process.has_ended() && process.hidden.is_none() {
            complain("is a zombie without live threads and cannot hold anything")?;
        }
    }
    Ok(())
}

fn check_files(machine: &Machine, place: Place<'_>) -> Result<()> {
    for process in machine.ever_has() {
        for held in process.files.iter() {
            if !machine.files.iter().any(|file| file.path == held.path) {
                let what = format!(
                    "process {} has '{}', which is not a device file of this machine",
                    process.pid(),
                    held.path
                );
                return Err(place.error(None, &what));
            }
        }
    }
    Ok(())
}

fn check_memory(
    machine: &Machine,
    place: Place<'_>,
    entries: &[GpuEntry],
    base: Option<&Snapshot>,
) -> Result<()> {
    for device in &machine.devices {
        let id = &device.info.id;
        let held: Bytes = machine
            .processes
            .iter()
            .flat_map(|process| &process.holdings)
            .filter(|holding| holding.device == id.index)
            .map(|holding| holding.memory)
            .sum();
        let used = device.reserve + device.leaked + held;
        let span = entries.iter().find(|entry| *entry.index.get_ref() == id.index);
        let complain = |what: String| -> Result<()> {
            Err(place.error(span.map(|entry| entry.index.span()), &what))
        };
        if device.total.is_ok_and(|total| used + device.reserved.unwrap_or_default() > total) {
            complain(format!("{id} has less memory than is used, {used}"))?;
        }
        let recorded = base.and_then(|base| base.device(id)).map(|state| state.memory_used());
        if let Some(Ok(recorded)) = recorded.filter(|recorded| *recorded != Ok(used)) {
            complain(format!("{id} has {recorded} used in the recording and {used} here"))?;
        }
    }
    Ok(())
}

/// Returns an error that names the unreadable machine, with the cause as its source.
pub(crate) fn unreadable(name: &str, source: Error) -> Error {
    Error::new(source.kind(), format!("read machine '{name}'")).with_source(source)
}
