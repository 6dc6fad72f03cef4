//! Converts a snapshot into a machine that reproduces it.

use crate::cards::Cards;
use crate::empty::IN_USE;
use crate::machine::{
    Device, Event, Holding, HostShare, Machine, Process, Scheduled, Viewer, When,
};
use crate::recording::Recording;
use gpu_core::{
    Absent, Bytes, DeviceDetails, DeviceProcess, DeviceSample, DeviceState, MemorySource, Pid,
    ProcessInfo, Reading, Snapshot,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The default time from boot to the first snapshot.
pub(crate) const UPTIME: Duration = Duration::from_secs(30 * 24 * 3600);

impl Machine {
    /// Returns the machine of a recording. It starts as in the first snapshot and follows the later
    /// ones until an action changes it.
    pub fn from_recording(name: &str, recording: Recording) -> Self {
        let mut snapshots = recording.snapshots.into_iter();
        let first = snapshots
            .next()
            .map(|first| (first.offset_ms, machine_from_snapshot(name, &first.snapshot)));
        let (start, mut machine) = first.unwrap_or_else(|| (0, crate::empty::empty(name)));
        machine.topology = recording.header.topology;
        machine.events = snapshots
            .map(|later| Scheduled {
                when: When::At(Duration::from_millis(later.offset_ms.saturating_sub(start))),
                event: Event::Becomes(Box::new(machine_from_snapshot(name, &later.snapshot))),
            })
            .collect();
        machine
    }
}

/// Returns a machine that reproduces `snapshot`.
///
/// The simplest explanation fills in what a snapshot does not contain. Memory that no listed
/// process accounts for belongs to the unlisted processes that show a CUDA context, in equal parts,
/// or to the driver if there are none; a device's utilisation comes from the process that uses most
/// of its memory. Processes exit a second after SIGTERM.
pub(crate) fn machine_from_snapshot(name: &str, snapshot: &Snapshot) -> Machine {
    let clock = snapshot.taken_at;
    let mut processes = Processes::of(snapshot);
    for holder in snapshot.holders() {
        let process = processes.seen(holder.process.pid);
        process.files = Arc::new(holder.held.clone());
        process.info.key.start = process.info.key.start.or(holder.process.start);
    }
    let devices = snapshot
        .devices
        .iter()
        .map(|state| device_from_snapshot(state, snapshot, &mut processes))
        .collect();
    Machine {
        name: name.to_owned(),
        description: String::new(),
        cards: Cards::default(),
        clock,
        booted: gpu_core::Timestamp(clock.0.saturating_sub(UPTIME.as_millis() as u64)),
        hostname: snapshot.hostname.clone(),
        driver: snapshot.driver.clone(),
        viewer: Viewer {
            uid: 0,
            user: "root".to_owned(),
            privileged: true,
            namespace: None,
            pid: Pid(0),
        },
        sees_host_pids: snapshot.sees_host_pids,
        devices,
        host_memory: snapshot.devices.iter().filter_map(host_share).collect(),
        files: snapshot.files.clone(),
        holders_fault: snapshot.holders.as_ref().err().cloned(),
        topology: Err(Absent::NotRecorded),
        processes: processes.all(),
        unreadable: snapshot.unreadable.clone(),
        driver_messages: crate::driver_log::recorded(snapshot),
        events: Vec::new(),
        reset_refusal: IN_USE.to_owned(),
        recordings: BTreeMap::new(),
    }
}

/// The processes of a snapshot: those that exist where it was taken, and those that only NVML lists.
/// A PID can be in both, because it may refer to another process there.
struct Processes {
    seen: BTreeMap<Pid, Process>,
    gone: BTreeMap<Pid, Process>,
    /// Whether the snapshot's PIDs differ from the driver's.
    foreign: bool,
}

impl Processes {
    fn of(snapshot: &Snapshot) -> Self {
        let foreign = snapshot.sees_host_pids == Ok(false);
        let mut processes = Processes { seen: BTreeMap::new(), gone: BTreeMap::new(), foreign };
        for (pid, process) in &snapshot.processes {
            match &process.0 {
                Ok(info) => *processes.seen(*pid) = Process::new((**info).clone()),
                Err(Absent::NotFound) => {
                    processes.gone(*pid);
                }
                Err(absent) => processes.seen(*pid).hidden = Some(*absent),
            }
        }
        processes
    }

    fn seen(&mut self, pid: Pid) -> &mut Process {
        let unknown = || Process::new(ProcessInfo::from_name(pid, ""));
        self.seen.entry(pid).or_insert_with(unknown)
    }

    fn gone(&mut self, pid: Pid) -> &mut Process {
        self.gone.entry(pid).or_insert_with(|| {
            let mut process = Process::new(ProcessInfo::from_name(pid, ""));
            process.hidden = Some(Absent::NotFound);
            process
        })
    }

    /// Returns the process that NVML lists with this PID.
    fn listed(&mut self, pid: Pid) -> &mut Process {
        if self.foreign || self.gone.contains_key(&pid) { self.gone(pid) } else { self.seen(pid) }
    }

    fn every(&mut self) -> impl Iterator<Item = &mut Process> {
        self.seen.values_mut().chain(self.gone.values_mut())
    }

    /// Returns all existing processes, and the others that use memory.
    fn all(self) -> Vec<Process> {
        let gone = self.gone.into_values().filter(|process| !process.holdings.is_empty());
        self.seen.into_values().chain(gone).collect()
    }
}

/// Returns the host memory that a device shares, without what its processes use.
fn host_share(state: &DeviceState) -> Option<(Option<u32>, HostShare)> {
    let MemorySource { kind, host } = state.memory_source();
    let (node, host) = (kind.host_node()?, host.ok()?);
    let cache = host.available.saturating_sub(host.free);
    let in_use = host.total.saturating_sub(host.available);
    let reported = state.sample.as_ref().map(|sample| sample.memory.used.unwrap_or_default());
    let other = match host.host_use {
        Ok(host_use) => host_use.saturating_sub(cache),
        Err(_) => {
            // An integrated device's figure is the driver's part of the host's memory.
            let drivers = reported.ok().filter(|_| kind.is_integrated()).unwrap_or_default();
            in_use.saturating_sub(state.memory_listed().unwrap_or_default() + drivers)
        }
    };
    Some((node, HostShare { total: host.total, cache, other }))
}

fn device_from_snapshot(
    state: &DeviceState,
    snapshot: &Snapshot,
    processes: &mut Processes,
) -> Device {
    let absent = DeviceSample::absent(Absent::NotRecorded);
    let sample = state.sample.as_ref().unwrap_or(&absent);
    let used = sample.memory.used;
    let load = sample.utilization.map(|percent| percent.get());
    let index = state.info.id.index;

    let mut listed_sum = Bytes(0);
    for listed in state.processes.as_deref().unwrap_or_default() {
        let holding = listed_holding(index, listed);
        listed_sum += holding.memory;
        processes.listed(listed.pid).holdings.push(holding);
    }
    let of_host = host_share(state).filter(|(node, _)| node.is_some());
    let of_host = of_host.map_or(Bytes(0), |(_, share)| share.cache + share.other);
    // The memory of an integrated device's processes is the host's.
    let of_processes = if sample.source.kind.is_integrated() { Bytes(0) } else { listed_sum };
    let unaccounted = used.unwrap_or_default().saturating_sub(of_processes + of_host);
    let unlisted = unlisted_users(state, snapshot, processes.foreign);
    let mut reserve = unaccounted;
    if let Some(share) = unaccounted.0.checked_div(unlisted.len() as u64) {
        reserve = Bytes(unaccounted.0 - share * unlisted.len() as u64);
        for pid in &unlisted {
            let holding = Holding { listed: None, ..Holding::new(index, Bytes(share)) };
            processes.seen(*pid).holdings.push(holding);
        }
    }
    let mut mig = state.partitions.clone().unwrap_or_default();
    for instance in &mut mig {
        let inside = processes.every().flat_map(|process| &process.holdings);
        let inside = inside.filter(|h| h.device == index && h.gpu_instance.is_some());
        let inside: Bytes = inside
            .filter(|h| h.gpu_instance == instance.gpu_instance)
            .map(|holding| holding.memory)
            .sum();
        instance.memory.used = instance.memory.used.map(|used| used.saturating_sub(inside));
    }
    Device {
        info: state.info.clone(),
        kind: sample.source.kind,
        total: sample.memory.total,
        reserve,
        reserved: sample.memory.reserved,
        leaked: Bytes(0),
        used_untold: used.err(),
        idle_load: attribute_load(load, index, processes),
        temperature: sample.temperature,
        power_draw: sample.power_draw,
        power_limit: sample.power_limit,
        details: state.details.clone().unwrap_or_default(),
        busy: DeviceDetails::default(),
        mig,
        fault: state.sample.as_ref().err().cloned(),
        list_fault: state.processes.as_ref().err().cloned(),
    }
}

fn listed_holding(device: u32, listed: &DeviceProcess) -> Holding {
    Holding {
        client: None,
        device,
        memory: listed.memory.unwrap_or_default(),
        listed: Some(listed.kind),
        memory_untold: listed.memory.err(),
        load: listed.utilization.map_or(0, |percent| percent.get()),
        load_untold: listed.utilization.err(),
        gpu_instance: listed.gpu_instance,
        compute_instance: listed.compute_instance,
    }
}

fn unlisted_users(state: &DeviceState, snapshot: &Snapshot, foreign: bool) -> Vec<Pid> {
    let on_list = |pid| state.processes.iter().flatten().any(|process| process.pid == pid);
    let users = snapshot.holders().iter().filter(|holder| holder.may_use_memory_of(state.id()));
    users.map(|holder| holder.process.pid).filter(|pid| foreign || !on_list(*pid)).collect()
}

/// Assigns the part of a device's utilisation that no process reports to its largest user without a
/// reading, and returns the remainder for the device itself.
fn attribute_load(load: Reading<u8>, index: u32, processes: &mut Processes) -> Reading<u8> {
    let on_device = processes.every().flat_map(|process| &mut process.holdings);
    let mut on_device: Vec<&mut Holding> = on_device.filter(|h| h.device == index).collect();
    let stated = on_device.iter().fold(0u8, |sum, holding| sum.saturating_add(holding.load));
    let rest = load?.saturating_sub(stated);
    let silent = on_device.iter_mut().filter(|h| h.load_untold.is_some());
    match silent.max_by_key(|holding| holding.memory) {
        Some(holding) => {
            holding.load = rest;
            Ok(0)
        }
        None => Ok(rest),
    }
}
