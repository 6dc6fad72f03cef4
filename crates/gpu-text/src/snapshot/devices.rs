//! The devices and their listed processes, from all outputs of nvidia-smi.

use super::listed::{self, Key, Listed, unsigned};
use super::take_later;
use crate::document::{
    DeviceFailure, Document, ErrorCode, Gpu, Kind, MigDevice, NamedDevice, Value,
};
use crate::work_meter;
use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceId, DeviceInfo, DeviceProcess, DeviceSample, DeviceState,
    DeviceUuid, Fault, MemoryInfo, MemoryKind, MemorySource, NvLink, Partition, PciBusId,
    plausible,
};
use gpu_nvidia_driver::memory_kind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of devices of a machine.
const MAX_DEVICES: usize = 256;

/// The maximum number of MIG devices of a device; current ones have up to seven
/// (`nvmlDeviceGetMaxMigDeviceCount`).
const MAX_MIGS: usize = 64;

/// The devices of the machine.
pub(super) struct Devices {
    list: Vec<Device>,
    /// The device of each MIG device, by UUID and index.
    migs: BTreeMap<String, u32>,
    /// Whether some text lists all MIG devices.
    lists_mig: bool,
}

/// A device with its data from the texts so far.
#[derive(Default)]
struct Device {
    gpu: Gpu,
    bus: Option<PciBusId>,
    /// `None` until a text lists processes of the device.
    processes: Option<BTreeMap<Key, DeviceProcess>>,
    mig: Vec<Partition>,
    failures: Vec<DeviceFailure>,
}

impl Devices {
    pub(super) fn read(documents: &[Document]) -> Self {
        let migs = documents.iter().flat_map(|document| &document.mig_devices);
        let migs = migs.filter_map(|mig| Some((mig.uuid.clone()?, mig.gpu_index?))).collect();
        let lists_mig = documents.iter().any(|document| document.lists_mig);
        let mut devices = Devices { list: Vec::new(), migs, lists_mig };
        // Identifiers are recorded first, starting with the texts that have most of them, so that a
        // text with a single identifier finds its device in any order of the paste.
        let mut by_names: Vec<&Document> = documents.iter().collect();
        by_names.sort_by_cached_key(|document| Reverse(names_of(document)));
        for document in by_names {
            let others = devices.list.len();
            for (position, gpu) in named(document).iter().enumerate() {
                devices.name(gpu, position, others);
            }
        }
        let failures: Vec<&DeviceFailure> =
            documents.iter().flat_map(|document| &document.device_failures).collect();
        // A tool that fails on a device does not list it.
        failures.iter().for_each(|failure| devices.name_failed(failure));
        devices.number();
        for failure in failures {
            if let Some(at) = devices.find(&failed(failure)) {
                devices.list[at].failures.push(failure.clone());
            }
        }
        // If holders are known, a list without PIDs would make every holder look unlisted.
        let has_holders = documents.iter().any(super::holders::lists_holders);
        for document in documents {
            for (position, gpu) in gpus(document).iter().enumerate() {
                if let Some(at) = devices.find(gpu).or_else(|| devices.at_position(gpu, position)) {
                    devices.list[at].take(gpu);
                }
            }
            for mig in &document.mig_devices {
                devices.add_mig(mig);
            }
            if !(has_holders && listed::is_anonymous(document)) {
                devices.add_processes(document);
            }
        }
        devices
    }

    /// Records the identifiers of a device; the first `others` devices come from other texts.
    fn name(&mut self, gpu: &Gpu, position: usize, others: usize) {
        let nameless = is_nameless(gpu);
        let found = self.find(gpu).or_else(|| {
            // A row without an index gets the device at the same position in index order.
            let index = u32::try_from(position).ok()?;
            let at = self.list.iter().position(|device| device.gpu.index == Some(index))?;
            let unclaimed = gpu.index.is_none() && (at < others || nameless);
            let contradicts = || same(self.list[at].names(), Names::of(gpu)) == Some(false);
            (unclaimed && !contradicts()).then_some(at)
        });
        match found {
            Some(at) => self.list[at].take_names(gpu),
            None if self.list.len() < MAX_DEVICES => {
                let mut device = Device::default();
                device.take_names(gpu);
                if nameless {
                    device.gpu.index = u32::try_from(position).ok();
                }
                self.list.push(device);
            }
            None => {}
        }
    }

    /// Adds the device that a failure text names, unless it is already known.
    fn name_failed(&mut self, failure: &DeviceFailure) {
        let gpu = failed(failure);
        if self.find(&gpu).is_none() && self.list.len() < MAX_DEVICES {
            let mut device = Device::default();
            device.take_names(&gpu);
            self.list.push(device);
        }
    }

    /// Assigns an index to devices without one: in PCI address order, which is the driver's, or in
    /// order of appearance.
    fn number(&mut self) {
        if self.list.iter().all(|device| device.gpu.index.is_none() && device.bus.is_some()) {
            self.list.sort_by_key(|device| device.bus);
        }
        let taken: BTreeSet<u32> = self.list.iter().filter_map(|device| device.gpu.index).collect();
        let mut free = (0..).filter(|index| !taken.contains(index));
        for device in &mut self.list {
            device.gpu.index = device.gpu.index.or_else(|| free.next());
        }
        self.list.sort_by_key(|device| device.gpu.index);
    }

    /// Returns the device with these identifiers: by UUID, then PCI address, then index.
    fn find(&self, gpu: &Gpu) -> Option<usize> {
        let names = Names::of(gpu);
        self.list.iter().position(|device| same(device.names(), names) == Some(true))
    }

    /// Returns the device of a row that has no identifier.
    fn at_position(&self, gpu: &Gpu, position: usize) -> Option<usize> {
        let index = u32::try_from(position).ok().filter(|_| is_nameless(gpu))?;
        self.list.iter().position(|device| device.gpu.index == Some(index))
    }

    fn add_mig(&mut self, mig: &MigDevice) {
        let of = |device: &&mut Device| device.gpu.index == mig.gpu_index;
        let Some(device) = self.list.iter_mut().find(of) else { return };
        let instances = (mig.gpu_instance_id, mig.compute_instance_id);
        let same = |known: &&mut Partition| match mig.mig_index {
            Some(index) => known.index == index,
            None => (known.gpu_instance, known.compute_instance) == instances,
        };
        let next = u32::try_from(device.mig.len()).unwrap_or(u32::MAX);
        work_meter::add(device.mig.len());
        let is_full = device.mig.len() == MAX_MIGS;
        let known = match device.mig.iter_mut().find(same) {
            Some(known) => known,
            None if is_full => return,
            None => {
                device.mig.push(Partition {
                    index: mig.mig_index.unwrap_or(next),
                    uuid: Err(Absent::NotRecorded),
                    profile: Err(Absent::NotRecorded),
                    gpu_instance: None,
                    compute_instance: None,
                    memory: DeviceSample::absent(Absent::NotRecorded).memory,
                });
                let Some(last) = device.mig.last_mut() else { return };
                last
            }
        };
        known.gpu_instance = mig.gpu_instance_id.or(known.gpu_instance);
        known.compute_instance = mig.compute_instance_id.or(known.compute_instance);
        take_later(&mut known.uuid, mig.uuid.clone().map(DeviceUuid).ok_or(Absent::NotRecorded));
        take_later(&mut known.profile, mig.profile.clone().ok_or(Absent::NotRecorded));
        take_later(&mut known.memory.used, mig.memory_used_mib.map(Bytes::from_mib));
        take_later(&mut known.memory.total, mig.memory_total_mib.map(Bytes::from_mib));
    }

    fn add_processes(&mut self, document: &Document) {
        let Some(list) = listed::read(document) else { return };
        let device_indexes: Vec<Option<usize>> =
            list.processes.iter().map(|process| self.device_of(process)).collect();
        // If a process has an unknown device, the list does not show that a device has no others.
        let complete = device_indexes.iter().all(Option::is_some);
        let named: BTreeSet<usize> = device_indexes.iter().copied().flatten().collect();
        let reported: Vec<Names<'_>> = document.gpus.iter().map(Names::of).collect();
        for (at, device) in self.list.iter_mut().enumerate() {
            if named.contains(&at) || (complete && device.is_covered(&list, &reported)) {
                let known = device.processes.get_or_insert_default();
                if list.is_full {
                    known.clear();
                }
            }
        }
        for (listed, at) in list.processes.into_iter().zip(device_indexes) {
            let known = at.and_then(|at| self.list.get_mut(at)?.processes.as_mut());
            let Some(known) = known else { continue };
            match known.get_mut(&listed.key()) {
                Some(known) => listed::take(known, &listed.process),
                None => {
                    known.insert(listed.key(), listed.process);
                }
            }
        }
    }

    /// Returns the device of a listed process.
    fn device_of(&self, listed: &Listed) -> Option<usize> {
        let mut gpu = listed.device.clone();
        if let Some(uuid) = gpu.uuid.take_if(|uuid| uuid.starts_with("MIG-")) {
            gpu.index = self.migs.get(&uuid).copied();
        }
        self.find(&gpu).or_else(|| (self.list.len() == 1).then_some(0))
    }

    pub(super) fn into_states(self) -> Vec<DeviceState> {
        let lists_mig = self.lists_mig;
        self.list.into_iter().map(|device| device.into_state(lists_mig)).collect()
    }
}

impl Device {
    fn names(&self) -> Names<'_> {
        Names::with(&self.gpu, self.bus)
    }

    fn take_names(&mut self, gpu: &Gpu) {
        self.gpu.take_names(gpu);
        self.read_bus();
    }

    fn take(&mut self, gpu: &Gpu) {
        self.gpu.take(gpu);
        self.read_bus();
    }

    fn read_bus(&mut self) {
        if self.bus.is_none() {
            self.bus = self.gpu.bus_id.as_deref().and_then(parse_bus);
        }
    }

    /// Returns whether a process list covers the device; `reported` has the devices of its text.
    fn is_covered(&self, list: &listed::List, reported: &[Names<'_>]) -> bool {
        match &list.devices {
            Some(devices) => self.gpu.index.is_some_and(|index| devices.contains(&index)),
            None => {
                let own = self.names();
                reported.is_empty() || reported.iter().any(|gpu| same(own, *gpu) == Some(true))
            }
        }
    }

    fn into_state(mut self, lists_mig: bool) -> DeviceState {
        for mig in &mut self.mig {
            mig.memory = plausible::memory_of(mig.memory);
        }
        let mut gpu = self.gpu;
        let is_lost = take_failures(&mut gpu, &self.failures);
        let absent = Absent::NotRecorded;
        let id = DeviceId {
            uuid: gpu.uuid.map(DeviceUuid).ok_or(absent),
            index: gpu.index.unwrap_or_default(),
            node: gpu.minor.map(gpu_nvidia_driver::node).ok_or(absent),
            bus: gpu.bus_id.map_or(Err(absent), |_| self.bus.ok_or(Absent::Implausible)),
        };
        let sample = DeviceSample {
            memory: plausible::memory_of(MemoryInfo {
                total: gpu.memory_total_mib.map(Bytes::from_mib),
                used: gpu.memory_used_mib.map(Bytes::from_mib),
                reserved: gpu.memory_reserved_mib.map(Bytes::from_mib),
            }),
            source: MemorySource::of(if gpu.shares_host {
                MemoryKind::CarveOut
            } else {
                let total = gpu.memory_total_mib.map(Bytes::from_mib);
                memory_kind(gpu.name.as_deref(), None, total)
            }),
            utilization: gpu.utilization_percent.and_then(plausible::percent),
            temperature: gpu.temperature_c.and_then(plausible::celsius),
            power_draw: gpu.power_draw_w.and_then(plausible::watts),
            power_limit: gpu.power_limit_w.and_then(plausible::watts),
        };
        let processes = self.processes.map(|known| known.into_values().collect());
        DeviceState {
            info: DeviceInfo {
                name: gpu.name.ok_or(absent),
                persistence: gpu.persistence,
                display_active: gpu.display_active,
                partitioned: gpu.mig_enabled,
                ..DeviceInfo::unknown(id)
            },
            sample: if is_lost { Err(lost()) } else { Ok(sample) },
            processes: processes.ok_or_else(|| {
                if is_lost {
                    lost()
                } else {
                    Fault {
                        kind: absent.into(),
                        text: "find its process list in the text".to_owned(),
                    }
                }
            }),
            partitions: if gpu.mig_enabled == Ok(true) && self.mig.is_empty() && !lists_mig {
                Err(Fault {
                    kind: absent.into(),
                    text: "find its MIG devices in the text".to_owned(),
                })
            } else {
                Ok(self.mig)
            },
            details: Ok(gpu.details),
        }
    }
}

/// The fault of a device that a tool could not reach.
fn lost() -> Fault {
    Fault {
        kind: DeviceFault::Lost.into(),
        text: "reach it: nvidia-smi reports that it is off the bus or requires a reset".to_owned(),
    }
}

/// Returns the identifier by which a failure text names a device.
fn failed(failure: &DeviceFailure) -> Gpu {
    match failure.device {
        NamedDevice::Bus(bus) => {
            Gpu { bus_id: Some(bus.to_string()), index: failure.index, ..Gpu::default() }
        }
        NamedDevice::Index(index) => Gpu { index: Some(index), ..Gpu::default() },
    }
}

/// Applies failure texts to a device; returns whether a tool could not reach it.
fn take_failures(gpu: &mut Gpu, failures: &[DeviceFailure]) -> bool {
    let mut is_lost = false;
    for failure in failures {
        match failure.code {
            // Figures from another time outweigh the failure.
            ErrorCode::DeviceHandle => is_lost = gpu.memory_used_mib.is_err(),
            ErrorCode::MigPending => {
                let after = failure.enables_mig;
                gpu.details.modes.get_or_insert_default().mig_pending = Ok(after);
                gpu.mig_enabled = gpu.mig_enabled.or(Ok(!after));
            }
            ErrorCode::NvlinksInactive => {
                let links = gpu.details.nvlinks.get_or_insert_default();
                if links.is_empty() {
                    links.push(NvLink { active: Ok(false), ..NvLink::default() });
                }
            }
            _ => {}
        }
    }
    is_lost
}

fn parse_bus(text: &str) -> Option<PciBusId> {
    text.parse().ok()
}

/// The identifiers of a device, each parsed once: a row is compared with every device.
#[derive(Clone, Copy)]
struct Names<'a> {
    uuid: Option<&'a str>,
    address: Option<(&'a str, Option<PciBusId>)>,
    index: Option<u32>,
}

impl<'a> Names<'a> {
    fn of(gpu: &'a Gpu) -> Self {
        Names::with(gpu, gpu.bus_id.as_deref().and_then(parse_bus))
    }

    fn with(gpu: &'a Gpu, bus: Option<PciBusId>) -> Self {
        let address = gpu.bus_id.as_deref().map(|address| (address, bus));
        Names { uuid: gpu.uuid.as_deref(), address, index: gpu.index }
    }
}

/// Returns whether two sets of identifiers belong to one device; `None` if they share no kind of
/// identifier.
fn same(a: Names<'_>, b: Names<'_>) -> Option<bool> {
    work_meter::add(1);
    if let (Some(a), Some(b)) = (a.uuid, b.uuid) {
        return Some(a == b);
    }
    if let (Some((a, parsed)), Some((b, other))) = (a.address, b.address) {
        return Some((parsed.is_some() && parsed == other) || a == b);
    }
    a.index.zip(b.index).map(|(a, b)| a == b)
}

fn is_nameless(gpu: &Gpu) -> bool {
    gpu.index.is_none() && gpu.uuid.is_none() && gpu.bus_id.is_none()
}

impl Gpu {
    fn take_names(&mut self, other: &Gpu) {
        self.index = self.index.or(other.index);
        self.minor = self.minor.or(other.minor);
        self.uuid = self.uuid.take().or_else(|| other.uuid.clone());
        self.bus_id = self.bus_id.take().or_else(|| other.bus_id.clone());
    }

    fn take(&mut self, later: &Gpu) {
        self.take_names(later);
        // The table truncates names with a final `...`; a whole name is better.
        let cut = |name: &Option<String>| name.as_ref().is_none_or(|name| name.ends_with("..."));
        if later.name.is_some() && (cut(&self.name) || !cut(&later.name)) {
            self.name.clone_from(&later.name);
        }
        take_later(&mut self.memory_used_mib, later.memory_used_mib);
        take_later(&mut self.memory_total_mib, later.memory_total_mib);
        take_later(&mut self.memory_reserved_mib, later.memory_reserved_mib);
        take_later(&mut self.utilization_percent, later.utilization_percent);
        take_later(&mut self.temperature_c, later.temperature_c);
        take_later(&mut self.power_draw_w, later.power_draw_w);
        take_later(&mut self.power_limit_w, later.power_limit_w);
        take_later(&mut self.persistence, later.persistence);
        take_later(&mut self.display_active, later.display_active);
        take_later(&mut self.mig_enabled, later.mig_enabled);
        self.shares_host |= later.shares_host;
        self.details.overlay(&later.details);
    }
}

/// The number of kinds of identifiers that a text has for its devices.
fn names_of(document: &Document) -> usize {
    // TensorFlow numbers devices in its own order.
    if document.kind == Kind::Topo {
        return 0;
    }
    let count = |gpu: &Gpu| {
        usize::from(gpu.index.is_some())
            + usize::from(gpu.uuid.is_some())
            + usize::from(gpu.bus_id.is_some())
    };
    named(document).iter().map(count).max().unwrap_or(0)
}

/// The devices of a text, including devices that appear only in process rows.
fn named(document: &Document) -> Vec<Gpu> {
    let mut gpus = gpus(document);
    let mut buses: Vec<Option<PciBusId>> =
        gpus.iter().map(|gpu| gpu.bus_id.as_deref().and_then(parse_bus)).collect();
    let processes = listed::read(document).map(|list| list.processes).unwrap_or_default();
    let of_processes = processes.into_iter().map(|listed| listed.device);
    // The table of MIG devices may occur alone.
    let of_migs = document.mig_devices.iter();
    let of_migs = of_migs.map(|mig| Gpu { index: mig.gpu_index, ..Gpu::default() });
    for gpu in of_processes.chain(of_migs) {
        let is_mig = gpu.uuid.as_ref().is_some_and(|uuid| uuid.starts_with("MIG-"));
        let names = Names::of(&gpu);
        let known = || {
            (0..gpus.len()).any(|at| same(Names::with(&gpus[at], buses[at]), names) == Some(true))
        };
        if !is_nameless(&gpu) && !is_mig && gpus.len() < MAX_DEVICES && !known() {
            buses.push(names.address.and_then(|(_, bus)| bus));
            gpus.push(gpu);
        }
    }
    gpus
}

/// The devices of a text; `dmon` and `pmon` name them in their rows.
fn gpus(document: &Document) -> Vec<Gpu> {
    let of_row = |row: &BTreeMap<String, Value>| {
        let mut gpu = Gpu { index: Some(unsigned(row, "gpu")?), ..Gpu::default() };
        if document.kind == Kind::Dmon {
            let read = |names: &[&str]| {
                let value = names.iter().find_map(|name| row.get(*name));
                value.and_then(number).ok_or(Absent::NotRecorded)
            };
            gpu.utilization_percent = read(&["sm"]).map(|value| value.max(0.0) as u64);
            gpu.temperature_c = read(&["gtemp", "temp"]).map(|value| value as i64);
            gpu.power_draw_w = read(&["pwr"]);
            gpu.memory_used_mib = read(&["fb"]).map(|value| value.max(0.0) as u64);
        }
        Some(gpu)
    };
    match document.kind {
        Kind::Dmon | Kind::Pmon => document.rows.iter().filter_map(of_row).collect(),
        _ => document.gpus.clone(),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        Value::Null | Value::Text(_) => None,
    }
}
