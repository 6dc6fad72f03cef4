//! The first step of every command: query the ports, return plain data.

use crate::absent::{Absent, Reading};
use crate::backend::GpuBackend;
use crate::clock::{Clock, Timestamp};
use crate::details::Groups;
use crate::device::{DeviceInfo, DeviceProcess, DeviceProcessKind};
use crate::error::{ErrorKind, Fault, Reach, Result};
use crate::file::DeviceFile;
use crate::holder::{Client, Holder, HolderScan};
use crate::host::Host;
use crate::id::{DeviceId, Pid, ProcessKey};
use crate::inventory::{Inventory, ask};
use crate::memory_figures::add_host_memory;
use crate::process::{ProcessDetail, ProcessInfo, shared};
use crate::snapshot::{DRIVER_OVERHEAD, DeviceState, Process, Snapshot};
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// When to search all processes of the machine for holders of the device files. The search reads
/// every open file and mapping of every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderSearch {
    /// Always.
    #[default]
    Always,
    /// Only if the driver leaves something unexplained: it reports no device, or not the memory or
    /// the processes of one; it lists a process that does not exist; its PIDs are invalid here; or
    /// a device has more memory in use than its listed processes and
    /// [`DRIVER_OVERHEAD`](crate::DRIVER_OVERHEAD) account for.
    IfUnexplained,
}

impl HolderSearch {
    /// Returns `Always` for a view that shows the holders, and otherwise `IfUnexplained`.
    pub fn wanted(shows_holders: bool) -> Self {
        if shows_holders { HolderSearch::Always } else { HolderSearch::IfUnexplained }
    }
}

/// What a snapshot covers beyond the devices and their processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The groups of details of every device.
    pub groups: Groups,
    /// When to search for the holders of the device files.
    pub holders: HolderSearch,
    /// How much of each process to read.
    pub processes: ProcessDetail,
    /// Whether to read the driver's messages in the kernel log.
    pub driver_messages: bool,
}

/// Takes a snapshot of a machine.
///
/// It never fails: each failure is recorded as a fault instead of the value it affects, and all
/// other values are kept. Without a driver, the snapshot still has the holders of the device files.
pub fn observe(backend: &dyn GpuBackend, host: &dyn Host, clock: &dyn Clock) -> Snapshot {
    observe_in_detail(backend, host, clock, Observation::default())
}

/// Takes a snapshot of a machine like [`observe`] that covers what `observation` requests. All else
/// is a fault of the kind [`NotRequested`](crate::ErrorKind::NotRequested).
pub fn observe_in_detail(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    clock: &dyn Clock,
    observation: Observation,
) -> Snapshot {
    let mut snapshot = query_devices(backend, host, clock, observation.groups);
    complete(&mut snapshot, host, observation, &mut Fresh(host, observation.processes));
    snapshot
}

/// The source of the holders and processes of a snapshot.
pub(crate) trait Answers {
    /// Returns the holders of these files. It is called at most once.
    fn holders(&mut self, snapshot: &Snapshot, files: &[DeviceFile]) -> Result<HolderScan, Fault>;

    /// Returns these processes, in this order.
    fn processes(&mut self, pids: &[Pid]) -> Vec<Result<Arc<ProcessInfo>>>;
}

/// Reads the machine itself.
struct Fresh<'a>(&'a dyn Host, ProcessDetail);

impl Answers for Fresh<'_> {
    fn holders(&mut self, _: &Snapshot, files: &[DeviceFile]) -> Result<HolderScan, Fault> {
        ask(|| self.0.holders(files))
    }

    fn processes(&mut self, pids: &[Pid]) -> Vec<Result<Arc<ProcessInfo>>> {
        shared(self.0.processes_of(pids, self.1))
    }
}

/// Adds to a snapshot of the devices everything else that `observation` requests.
pub(crate) fn complete(
    snapshot: &mut Snapshot,
    host: &dyn Host,
    observation: Observation,
    answers: &mut dyn Answers,
) {
    if observation.driver_messages {
        snapshot.driver_messages = ask(|| host.driver_messages());
    }
    if observation.holders == HolderSearch::IfUnexplained && is_memory_explained(snapshot) {
        look_up(host, snapshot, named_pids, answers);
        let is_gone = |process: &Process| process.0 == Err(Absent::NotFound);
        if !snapshot.processes.values().any(is_gone) {
            return look_up(host, snapshot, relatives, answers);
        }
        // The search comes first, so that the processes it finds are read afterwards.
        snapshot.processes.clear();
    }
    if snapshot.devices.is_empty() {
        snapshot.unasked = ask(|| host.driver_devices()).unwrap_or_default();
    }
    // Processes come after devices: a process that ends in between then appears as gone, not as a
    // holder.
    add_holders(snapshot, host, answers);
    look_up(host, snapshot, named_pids, answers);
    look_up(host, snapshot, relatives, answers);
}

/// Searches all processes for holders of the device files.
fn add_holders(snapshot: &mut Snapshot, host: &dyn Host, answers: &mut dyn Answers) {
    let files = ask(|| host.device_files());
    match files.clone().and_then(|files| answers.holders(snapshot, &files)) {
        Ok(scan) => {
            snapshot.holders = Ok(scan.holders);
            snapshot.unreadable = scan.unreadable;
            snapshot.unread = scan.unread;
        }
        Err(fault) => snapshot.holders = Err(fault),
    }
    snapshot.files = files.unwrap_or_default();
    list_clients(&mut snapshot.devices, &snapshot.holders);
}

/// Returns whether the processes of a device are known only from a search for holders.
fn needs_holders(device: &DeviceState) -> bool {
    device.processes.as_ref().is_err_and(|fault| fault.kind == ErrorKind::NotRequested)
}

/// Adds the clients of each holder to the lists of the devices: a driver may have no list, or one
/// without them. A client of several processes counts for the first of them.
fn list_clients(devices: &mut [DeviceState], holders: &Result<Vec<Holder>, Fault>) {
    for device in devices {
        if needs_holders(device) {
            device.processes = holders.as_ref().map(|_| Vec::new()).map_err(Fault::clone);
        }
        let (Ok(list), Ok(holders)) = (&mut device.processes, holders) else { continue };
        let mut counted = BTreeSet::new();
        for holder in holders {
            let is_new = &mut |id| counted.insert(id);
            let Some(client) = listed(holder, &device.info.id, is_new) else { continue };
            match list.iter_mut().find(|known| known.pid == client.pid) {
                // Both may count the same memory, and each may know only a part.
                Some(known) => {
                    let larger = known.memory.ok().max(client.memory.ok());
                    known.memory =
                        larger.ok_or(client.memory.err().unwrap_or(Absent::NotSupported));
                    known.kind = known.kind.and(client.kind);
                }
                None => list.push(client),
            }
        }
    }
}

/// Returns the entry of a holder in the list of a device; `None` if it is no client there. `is_new`
/// notes a client and returns whether it was unknown.
fn listed(
    holder: &Holder,
    device: &DeviceId,
    is_new: &mut dyn FnMut(u64) -> bool,
) -> Option<DeviceProcess> {
    let own = holder.held.iter().filter(|held| held.opens(device));
    let clients: Vec<Client> = own.flat_map(|held| held.clients.iter().copied()).collect();
    // A monitor opens the device and uses nothing of it.
    let is_idle = |client: &Client| {
        client.memory == Ok(Bytes(0)) && client.kind == DeviceProcessKind::Unknown
    };
    if clients.iter().all(is_idle) {
        return None;
    }
    let kind = clients.iter().map(|client| client.kind).reduce(DeviceProcessKind::and)?;
    let memory = clients.iter().map(|client| match client.id {
        Ok(id) if !is_new(id) => Ok(Bytes(0)),
        _ => client.memory,
    });
    Some(DeviceProcess {
        pid: holder.process.pid,
        kind,
        memory: memory.sum(),
        utilization: Err(Absent::NotSupported),
        name: Err(Absent::NotSupported),
        gpu_instance: None,
        compute_instance: None,
    })
}

/// Returns whether listed processes, with PIDs that are valid here, account for the memory of every
/// device.
fn is_memory_explained(snapshot: &Snapshot) -> bool {
    let explained = |device: &DeviceState| {
        if needs_holders(device) {
            return false;
        }
        if device.memory_used() == Err(Absent::Asleep) {
            return true;
        }
        let accounted = device.memory_listed().map(|listed| listed + DRIVER_OVERHEAD);
        device.memory_used().is_ok_and(|used| accounted.is_some_and(|bytes| used <= bytes))
    };
    snapshot.sees_host_pids == Ok(true)
        && !snapshot.devices.is_empty()
        && snapshot.devices.iter().all(explained)
}

/// Takes a snapshot of the devices and of the listed processes with all their ancestors. It does
/// not walk over all processes, and so has no holders of the device files, unless only the holders
/// show the processes of a device.
pub fn observe_users(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    clock: &dyn Clock,
    groups: Groups,
) -> Snapshot {
    let mut snapshot = query_devices(backend, host, clock, groups);
    if snapshot.devices.iter().any(needs_holders) {
        add_holders(&mut snapshot, host, &mut Fresh(host, ProcessDetail::Whole));
    }
    look_up_with_ancestors(host, &mut snapshot);
    snapshot
}

/// Takes a snapshot like [`observe_users`], to decide which devices are free. If the memory of a
/// device does not show whether an unlisted process uses it, all processes are searched for holders
/// of the device files.
pub fn observe_free(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    clock: &dyn Clock,
    groups: Groups,
) -> Snapshot {
    let mut snapshot = query_devices(backend, host, clock, groups);
    let hides_users =
        |device: &DeviceState| needs_holders(device) || !device.memory_source().kind.shows_leaks();
    if snapshot.devices.iter().any(hides_users) {
        add_holders(&mut snapshot, host, &mut Fresh(host, ProcessDetail::Whole));
    }
    look_up_with_ancestors(host, &mut snapshot);
    snapshot
}

/// Looks up the named processes and all their ancestors.
fn look_up_with_ancestors(host: &dyn Host, snapshot: &mut Snapshot) {
    let answers = &mut Fresh(host, ProcessDetail::Whole);
    look_up(host, snapshot, named_pids, answers);
    // Looks up each unknown ancestor until none is left: this terminates, because each PID is
    // looked up once.
    let mut known = 0;
    while snapshot.processes.len() > known {
        known = snapshot.processes.len();
        look_up(host, snapshot, parents, answers);
    }
}

/// Reads the devices once; everything else is still empty.
fn query_devices(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    clock: &dyn Clock,
    groups: Groups,
) -> Snapshot {
    let taken_at = clock.wall();
    let inventory = take_inventory(backend, host, groups);
    begin(backend, host, host.hostname(), taken_at, inventory)
}

/// Returns a snapshot of these devices; everything else is still empty.
pub(crate) fn begin(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    hostname: Reading<String>,
    taken_at: Timestamp,
    inventory: Inventory,
) -> Snapshot {
    let Inventory { driver, devices } = inventory;
    let sees_host_pids = if !devices.is_empty() && devices.iter().all(DeviceState::lists_clients) {
        Ok(true)
    } else {
        host.sees_host_pids()
    };
    Snapshot {
        hostname,
        driver,
        devices,
        sees_host_pids,
        is_root: host.is_root(),
        ..Snapshot::empty(backend.origin(), taken_at)
    }
}

/// Reads only the devices, once. A device that could not identify itself gets the identifiers that
/// the kernel module lists.
pub fn take_inventory(backend: &dyn GpuBackend, host: &dyn Host, groups: Groups) -> Inventory {
    let mut inventory = backend.inventory(groups);
    add_host_memory(&mut inventory, host);
    clear_duplicate_ids(&mut inventory.devices);
    if inventory.devices.iter().any(|device| device.info.is_unknown()) {
        name(&mut inventory.devices, ask(|| host.driver_devices()).unwrap_or_default());
    }
    inventory
}

/// Reads the devices like [`take_inventory`]. If the driver of a device does not list its processes,
/// also searches for them.
pub fn take_inventory_with_users(
    backend: &dyn GpuBackend,
    host: &dyn Host,
    groups: Groups,
) -> Inventory {
    let mut inventory = take_inventory(backend, host, groups);
    if inventory.devices.iter().any(|device| needs_holders(device) || device.lists_clients()) {
        let files = ask(|| host.device_files());
        let scan = files.and_then(|files| ask(|| host.holders(&files)));
        list_clients(&mut inventory.devices, &scan.map(|scan| scan.holders));
    }
    inventory
}

/// Removes identifiers that two devices share: through such an identifier, the holders of one would
/// be attributed to the other.
fn clear_duplicate_ids(devices: &mut [DeviceState]) {
    let ids: Vec<DeviceId> = devices.iter().map(|device| device.id().clone()).collect();
    for (index, device) in devices.iter_mut().enumerate() {
        let others = || ids.iter().enumerate().filter(move |(at, _)| *at != index);
        let id = &mut device.info.id;
        if id.node.is_ok() && others().any(|(_, other)| other.node == id.node) {
            id.node = Err(Absent::Implausible);
        }
        if id.bus.is_ok() && others().any(|(_, other)| other.bus == id.bus) {
            id.bus = Err(Absent::Implausible);
        }
        if id.uuid.is_ok() && others().any(|(_, other)| other.uuid == id.uuid) {
            id.uuid = Err(Absent::Implausible);
        }
    }
}

/// Identifies devices that could not identify themselves through the kernel module, if it lists the
/// same devices as the driver's library: both order by PCI address, and one may show fewer.
fn name(devices: &mut [DeviceState], module: Vec<DeviceInfo>) {
    let agree = |(device, named): (&DeviceState, &DeviceInfo)| {
        device.id().index == named.id.index
            && (device.info.is_unknown() || device.id().bus == named.id.bus)
    };
    if devices.len() == module.len() && devices.iter().zip(&module).all(agree) {
        for (device, named) in devices.iter_mut().zip(module) {
            if device.info.is_unknown() {
                device.info = named;
            }
        }
    }
}

/// Adds these processes to a snapshot, although they hold no file and no device lists them.
/// Existing data stays unchanged.
pub fn look_up_processes(host: &dyn Host, snapshot: &mut Snapshot, pids: &[Pid]) {
    let answers = &mut Fresh(host, ProcessDetail::Whole);
    look_up_all(host, snapshot, pids.iter().copied().collect(), answers);
}

/// Re-reads processes that the snapshot may hold only in outline. A process that has ended since,
/// or whose PID was reused, keeps its outline.
pub fn complete_processes(host: &dyn Host, snapshot: &mut Snapshot, pids: &[Pid]) {
    for answer in host.processes_of(pids, ProcessDetail::Whole).into_iter().flatten() {
        let known = snapshot.processes.get_mut(&answer.key.pid);
        if let Some(Process(Ok(known))) = known
            && known.key == answer.key
        {
            *known = Arc::new(answer);
        }
    }
}

fn look_up(
    host: &dyn Host,
    snapshot: &mut Snapshot,
    which: fn(&Snapshot) -> BTreeSet<Pid>,
    answers: &mut dyn Answers,
) {
    let wanted = which(snapshot);
    look_up_all(host, snapshot, wanted, answers);
}

fn look_up_all(
    host: &dyn Host,
    snapshot: &mut Snapshot,
    wanted: BTreeSet<Pid>,
    answers: &mut dyn Answers,
) {
    let holders = snapshot.holders.as_deref().unwrap_or_default();
    let walked: BTreeMap<Pid, ProcessKey> =
        holders.iter().map(|holder| (holder.process.pid, holder.process)).collect();
    let unknown = wanted.into_iter().filter(|pid| !snapshot.processes.contains_key(pid));
    let unknown: Vec<Pid> = unknown.collect();
    if unknown.is_empty() {
        return;
    }
    for (pid, answer) in unknown.iter().zip(answers.processes(&unknown)) {
        let answer = match answer {
            Err(error) if error.kind().reach() == Reach::Again => {
                ask(|| host.process(*pid)).map(Arc::new)
            }
            answer => answer.map_err(|error| error.fault()),
        };
        let mut answer = answer.map_err(|fault| fault.kind.absent());
        if let (Ok(info), Some(holder)) = (&answer, walked.get(pid))
            && !info.key.definitely_same(holder)
        {
            // The holder has ended since the walk and its PID was reused.
            answer = Err(Absent::NotFound);
        }
        snapshot.processes.insert(*pid, Process(answer));
    }
}

/// Returns the processes that a device lists or that hold a file. The driver's PIDs are the host's:
/// in a separate PID namespace they would name unrelated processes.
fn named_pids(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let ours = snapshot.sees_host_pids != Ok(false);
    let listed = snapshot.devices.iter().filter_map(|device| device.processes.as_ref().ok());
    let listed = listed.flatten().filter(|_| ours).map(|process| process.pid);
    listed.chain(snapshot.holders().iter().map(|holder| holder.process.pid)).collect()
}

/// Returns their parents and the leaders of their groups and sessions, which show whether a process
/// is an orphan.
fn relatives(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let known = snapshot.processes.values().filter_map(|process| process.0.as_ref().ok());
    let related = known.flat_map(|info| {
        let pids = [info.parent, info.group, info.session].into_iter();
        pids.filter_map(|pid| pid.ok().filter(|pid| pid.0 != 0 && *pid != info.key.pid))
    });
    related.collect()
}

/// Returns the parents of the known processes.
fn parents(snapshot: &Snapshot) -> BTreeSet<Pid> {
    let known = snapshot.processes.values().filter_map(|process| process.0.as_ref().ok());
    known.filter_map(|info| info.parent.ok().filter(|pid| pid.0 != 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Fault};
    use crate::id::FileId;
    use crate::id::PciBusId;

    fn info(index: u32, bus: u8) -> DeviceInfo {
        let mut id = DeviceId::from_index(index);
        id.bus = Ok(PciBusId { domain: 0, bus, device: 0, function: 0 });
        DeviceInfo { name: Ok(format!("GPU at {bus}")), ..DeviceInfo::unknown(id) }
    }

    fn lost(index: u32) -> DeviceInfo {
        DeviceInfo::unknown(DeviceId::from_index(index))
    }

    fn named(devices: &[DeviceInfo], module: &[DeviceInfo]) -> Vec<DeviceInfo> {
        let fault = Fault { kind: ErrorKind::TimedOut, text: String::new() };
        let state = |info: &DeviceInfo| DeviceState::unanswered(info.clone(), Groups::NONE, &fault);
        let mut devices: Vec<DeviceState> = devices.iter().map(state).collect();
        name(&mut devices, module.to_vec());
        devices.into_iter().map(|device| device.info).collect()
    }

    #[test]
    fn duplicate_device_id_identifies_neither_device() {
        let fault = Fault { kind: ErrorKind::TimedOut, text: String::new() };
        let mut devices: Vec<DeviceState> = [(0, 4), (1, 5), (2, 5)]
            .map(|(index, bus)| DeviceState::unanswered(info(index, bus), Groups::NONE, &fault))
            .into();
        let node = |minor| Ok(FileId::Device { major: 195, minor });
        devices[0].info.id.node = node(0);
        devices[1].info.id.node = node(0);
        devices[2].info.id.node = node(2);
        clear_duplicate_ids(&mut devices);
        let minors: Vec<_> = devices.iter().map(|device| device.id().minor()).collect();
        assert_eq!(minors, [Err(Absent::Implausible), Err(Absent::Implausible), Ok(2)]);
        let known: Vec<bool> = devices.iter().map(|device| device.id().bus.is_ok()).collect();
        assert_eq!(known, [true, false, false]);
    }

    #[test]
    fn kernel_module_ids_fill_gaps_if_device_lists_match() {
        let module = [info(0, 4), info(1, 5), info(2, 6)];
        assert_eq!(named(&[info(0, 4), lost(1), lost(2)], &module), module);
        for (devices, module) in [
            // A container shows one device of three; which one is unknown.
            (vec![lost(0)], &module[..]),
            (vec![info(0, 4), lost(1), lost(2)], &module[..2]),
            (vec![info(0, 9), lost(1), lost(2)], &module[..]),
            (vec![lost(0)], &[]),
        ] {
            assert_eq!(named(&devices, module), devices);
        }
    }
}
