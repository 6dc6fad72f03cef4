//! Combines the recordings and `machine.toml` into a whole machine.

use crate::cards::Cards;
use crate::device_entry::set;
use crate::empty::{empty, viewer};
use crate::file::{GpuEntry, MachineFile};
use crate::import::{UPTIME, machine_from_snapshot};
use crate::machine::{Device, HostShare, Machine, device_file, drivers};
use crate::toml_source::{TomlSource, date};
use crate::{details, device_entry, driver_log, process_entry, product, script, topology};
use gpu_core::{
    Absent, Bytes, DeviceFile, Error, Fault, FileRole, MachineFault, MemoryKind, Result, Snapshot,
    Timestamp,
};
use gpu_nvidia_driver::memory_kind;
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
    cards: Cards,
) -> Result<Machine> {
    let source = TomlSource(text);
    file.gpus = device_entry::one_by_one(source, file.gpus)?;
    let mut machine = base.map_or_else(|| empty(name), |base| machine_from_snapshot(name, base));
    machine.cards = cards;
    machine.description = file.description.clone();
    machine.clock = date(source, "clock", &file.clock)?;
    machine.booted = match &file.booted {
        Some(booted) => date(source, "booted", booted)?,
        None => Timestamp(machine.clock.0.saturating_sub(UPTIME.as_millis() as u64)),
    };
    // The holders are known now, whether a recording shows them or not.
    machine.holders_fault = None;
    machine.hostname = file.hostname.clone().ok_or(Absent::NotRecorded);
    overlay_driver(&mut machine, &file);
    let recorded: BTreeSet<u32> = machine.devices.iter().map(|d| d.info.id.index).collect();
    for entry in &file.gpus {
        device_entry::overlay(&mut machine.devices, source, entry)?;
    }
    apply_details(&mut machine.devices, source, &file, &recorded)?;
    for device in &mut machine.devices {
        let index = device.info.id.index;
        let mut entries = file.gpus.iter().filter(|entry| *entry.index.get_ref() == index);
        let described = entries.find_map(|entry| entry.memory_kind);
        device.kind = described.unwrap_or_else(|| kind_by_name(device));
    }
    machine.devices.sort_by_key(|device| device.info.id.index);
    if let Some(topology) = topology::read(source, &file, machine.devices.len())? {
        machine.topology = Ok(topology);
    }
    for entry in &file.host_memory {
        let kib = |kib: u64| Bytes(kib.saturating_mul(1024));
        let (total, cache) = (kib(entry.total_kib), kib(entry.cache_kib));
        let share = HostShare { total, cache, other: kib(entry.other_kib) };
        machine.host_memory.insert(entry.node, share);
    }
    for device in &mut machine.devices {
        device_entry::complete(device, name);
    }

    for (i, entry) in file.processes.iter().enumerate() {
        let pid = *entry.pid.get_ref();
        if file.processes.iter().take(i).any(|earlier| *earlier.pid.get_ref() == pid) {
            return Err(process_entry::error(source, entry, "is defined twice"));
        }
        process_entry::overlay(&mut machine, source, entry)?;
    }
    let users = process_entry::users(&machine, &file.events);
    machine.viewer = viewer(file.viewer, &users);
    machine.sees_host_pids = Ok(machine.viewer.namespace.is_none());
    machine.processes.sort_by_key(|process| process.pid());
    if let Some(process) = machine.processes.iter().find(|p| p.hidden == Some(Absent::NotRecorded))
    {
        let what =
            format!("process {} has no name, neither here nor in a recording", process.pid());
        return Err(source.error(None, &what));
    }
    let (clock, booted) = (machine.clock, machine.booted);
    let (devices, cards) = (machine.devices.clone(), machine.cards.clone());
    for process in &mut machine.processes {
        process_entry::complete(process, (&devices, &cards), &users, clock, booted);
    }
    let mut messages = machine.driver_messages.unwrap_or_default();
    machine.driver_messages = Ok(Vec::new());
    for entry in &file.driver_messages {
        messages.push(driver_log::message(&machine, source, entry)?);
    }
    messages.sort_by_key(|message| message.at);
    machine.driver_messages = Ok(messages);
    for entry in &file.events {
        machine.events.push(script::scheduled(&machine, &users, source, entry)?);
    }
    machine.files = device_files(&machine, file.device_files);
    check_processes(&machine, source)?;
    check_files(&machine, source)?;
    check_memory(&machine, source, &file.gpus, base)?;
    Ok(machine)
}

/// Returns the kind of memory that a driver would report for a device without a description of it.
fn kind_by_name(device: &Device) -> MemoryKind {
    let product = device.details.product.as_ref();
    let capability = product.and_then(|product| product.compute_capability.ok());
    let total = device.total.map_err(|_| Absent::NotSupported);
    memory_kind(device.info.name.as_deref().ok(), capability, total)
}

fn overlay_driver(machine: &mut Machine, file: &MachineFile) {
    let entry = &file.driver;
    let reported = entry.version.is_some() || entry.cuda.is_some();
    if machine.driver.is_err() && reported {
        machine.driver = empty("").driver;
    }
    if let Ok(driver) = &mut machine.driver {
        set(&mut driver.version, entry.version.clone());
        set(&mut driver.cuda, entry.cuda.clone());
    }
    // NVIDIA's library is not installed without its devices.
    let has_none = !machine.cards.is_empty() && file.gpus.is_empty() && machine.devices.is_empty();
    let missing = (has_none && !reported).then_some(MachineFault::NoLibrary);
    if let Some(fault) = entry.fault.or(missing) {
        machine.driver =
            Err(Fault { kind: fault.into(), text: "query the driver version".to_owned() });
    }
}

/// Applies the details of each device's product and of its own entry.
fn apply_details(
    devices: &mut [Device],
    source: TomlSource<'_>,
    file: &MachineFile,
    recorded: &BTreeSet<u32>,
) -> Result<()> {
    product::check(devices, &file.products, source)?;
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
            return Err(source.error(span, &format!("{}: {what}", device.info.id)));
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
        let nvidia = (machine.cards.is_empty() || !machine.devices.is_empty())
            .then(|| drivers(&machine.devices));
        let held = held.filter(|file| file.role != FileRole::Render || machine.cards.is_empty());
        nvidia.into_iter().flatten().chain(held.map(|file| file.path.to_string())).collect()
    });
    let mut files: Vec<DeviceFile> = paths.iter().map(|path| device_file(path)).collect();
    files.extend(machine.cards.device_files());
    files.sort_by(|a, b| (a.role, a.device, &a.path).cmp(&(b.role, b.device, &b.path)));
    files.dedup();
    files
}

fn check_processes(machine: &Machine, source: TomlSource<'_>) -> Result<()> {
    for (i, process) in machine.processes.iter().enumerate() {
        let complain =
            |what: &str| Err(source.error(None, &format!("process {} {what}", process.pid())));
        let others = machine.processes.iter().skip(i + 1);
        if process.namespace.is_some()
            && others.into_iter().any(|other| other.namespace == process.namespace)
        {
            complain("shares its namespace PID with another process")?;
        }
        if !process.info.started_at.is_ok_and(|at| at >= machine.booted && at <= machine.clock) {
            complain("starts before the boot of the machine or after its clock")?;
        }
        let has = !process.holdings.is_empty() || !process.files.is_empty();
        if has && process.has_ended() && process.hidden.is_none() {
            complain("is a zombie without live threads and cannot hold anything")?;
        }
    }
    Ok(())
}

fn check_files(machine: &Machine, source: TomlSource<'_>) -> Result<()> {
    for process in machine.ever_has() {
        for held in process.files.iter() {
            if !machine.files.iter().any(|file| file.path == held.path) {
                let what = format!(
                    "process {} has '{}' open, which is not a device file of this machine",
                    process.pid(),
                    held.path
                );
                return Err(source.error(None, &what));
            }
        }
    }
    Ok(())
}

fn check_memory(
    machine: &Machine,
    source: TomlSource<'_>,
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
        let used = device.reserve + device.leaked + held + machine.host_use(device);
        let span = entries.iter().find(|entry| *entry.index.get_ref() == id.index);
        let complain = |what: String| -> Result<()> {
            Err(source.error(span.map(|entry| entry.index.span()), &what))
        };
        if device.kind != MemoryKind::CarveOut
            && device.total.is_ok_and(|total| used + device.reserved.unwrap_or_default() > total)
        {
            complain(format!("{id} uses {used}, more than its memory"))?;
        }
        let recorded = base
            .and_then(|base| base.device(id))
            .map(|state| state.sample.as_ref().map_err(|fault| fault.kind.absent())?.memory.used);
        if let Some(Ok(recorded)) = recorded.filter(|recorded| *recorded != Ok(used)) {
            complain(format!("{id} uses {recorded} in the recording but {used} here"))?;
        }
    }
    Ok(())
}

/// Returns an error that names the unreadable machine, with the cause as its source.
pub(crate) fn unreadable(name: &str, source: Error) -> Error {
    Error::new(source.kind(), format!("read machine '{name}'")).with_source(source)
}
