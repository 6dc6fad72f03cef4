//! Data that all detectors use.

use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Finding, FindingKind, Suspect};
use crate::past::{DevicePast, HOURS, Lasting, Past, Streak, UsePast, span};
use crate::role::Role;
use gpu_core::{
    Absent, Bytes, DeviceKey, DeviceProcess, DeviceState, DeviceUuid, FileRole, Holder, Pid,
    ProcessInfo, ProcessKey, Snapshot,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The highest PID of Linux (`PID_MAX_LIMIT`). A pasted list without PIDs has higher numbers
/// instead, which account for memory and name no process.
const PID_MAX: u32 = 1 << 22;

/// A younger process, or one that got its lease later, may still be loading its data.
pub const MIN_AGE: Duration = Duration::from_secs(15 * 60);

/// A process that was idle for less may be writing a checkpoint or waiting for its data.
pub(crate) const MIN_IDLE: Duration = Duration::from_secs(10 * 60);

/// Memory below this blocks no other process: a twentieth of the device, at least 1 GiB.
pub(super) fn is_much(memory: Bytes, total: Bytes) -> bool {
    memory >= Bytes::from_mib(1024) && memory.0 >= total.0 / 20
}

/// Returns the best way to identify the files of a device.
fn first_key(device: &DeviceState) -> DeviceKey {
    let id = device.id();
    id.keys().next().unwrap_or(DeviceKey::Index(id.index))
}

/// The last snapshot, indexed because there can be many holders and many devices, and the results
/// of earlier snapshots.
pub(crate) struct DetectContext<'a> {
    pub(crate) past: &'a Past,
    /// The last snapshot.
    pub(crate) now: &'a Snapshot,
    holders: BTreeMap<Pid, &'a Holder>,
    /// The holders by the first key of the device whose file they have.
    by_device: BTreeMap<DeviceKey, Vec<&'a Holder>>,
    /// By index, then by UUID: the MIG devices of a device have its index.
    lists: BTreeMap<u32, Vec<(Option<&'a DeviceUuid>, List<'a>)>>,
}

/// The processes that NVML lists on a device.
type List<'a> = BTreeMap<Pid, &'a DeviceProcess>;

impl<'a> DetectContext<'a> {
    /// Returns the context of a single snapshot.
    pub(crate) fn of(now: &'a Snapshot) -> Self {
        static NOTHING: Past = Past::new();
        DetectContext::new(&NOTHING, now)
    }

    pub(crate) fn new(past: &'a Past, now: &'a Snapshot) -> Self {
        let mut first: BTreeMap<DeviceKey, DeviceKey> = BTreeMap::new();
        for device in &now.devices {
            for key in device.id().keys() {
                first.entry(key).or_insert_with(|| first_key(device));
            }
        }
        let mut by_device: BTreeMap<DeviceKey, Vec<&Holder>> = BTreeMap::new();
        for holder in now.holders() {
            let files = holder.held.iter().filter(|held| held.role == FileRole::Compute);
            for key in files.filter_map(|held| held.device) {
                let holders = by_device.entry(*first.get(&key).unwrap_or(&key)).or_default();
                // A process may have a device through two of its nodes.
                if !holders.last().is_some_and(|last| std::ptr::eq(*last, holder)) {
                    holders.push(holder);
                }
            }
        }
        // In a separate PID namespace, NVML's PIDs name no process, or an unrelated one.
        let ours = now.sees_host_pids != Ok(false);
        let mut lists: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for device in &now.devices {
            let is_pid = |process: &&DeviceProcess| process.pid.0 <= PID_MAX;
            let processes = device.processes.iter().flatten().filter(|_| ours).filter(is_pid);
            let list = processes.map(|process| (process.pid, process)).collect();
            let uuid = device.id().uuid.as_ref().ok();
            lists.entry(device.id().index).or_default().push((uuid, list));
        }
        DetectContext {
            past,
            now,
            holders: now.holders().iter().map(|holder| (holder.process.pid, holder)).collect(),
            by_device,
            lists,
        }
    }

    /// Returns the processes that have the file of this device.
    pub(crate) fn holders_of(&self, device: &DeviceState) -> impl Iterator<Item = &'a Holder> {
        self.by_device.get(&first_key(device)).into_iter().flatten().copied()
    }

    fn list(&self, device: &DeviceState) -> Option<&List<'a>> {
        let lists = self.lists.get(&device.id().index)?;
        let uuid = device.id().uuid.as_ref().ok();
        lists.iter().find(|(known, _)| *known == uuid).map(|(_, list)| list)
    }

    /// Returns the processes that NVML lists on a device, by PIDs that are valid here: in a
    /// separate PID namespace there are none.
    pub(crate) fn listed_on(
        &self,
        device: &DeviceState,
    ) -> impl Iterator<Item = &'a DeviceProcess> {
        self.list(device).into_iter().flat_map(BTreeMap::values).copied()
    }

    /// Returns the entry of a process in a device's list.
    pub(crate) fn listed(&self, device: &DeviceState, pid: Pid) -> Option<&'a DeviceProcess> {
        self.list(device)?.get(&pid).copied()
    }

    /// Returns whether NVML lists a process on any device.
    pub(crate) fn is_listed(&self, pid: Pid) -> bool {
        self.lists.values().flatten().any(|(_, list)| list.contains_key(&pid))
    }

    pub(crate) fn holder(&self, pid: Pid) -> Option<&'a Holder> {
        self.holders.get(&pid).copied()
    }

    pub(crate) fn info(&self, pid: Pid) -> Option<&'a ProcessInfo> {
        self.now.process(pid).ok()
    }

    /// Returns whether a process that is named somewhere certainly does not exist.
    pub(crate) fn is_gone(&self, pid: Pid) -> bool {
        self.now.process(pid).err() == Some(Absent::NotFound)
    }

    pub(crate) fn key(&self, pid: Pid) -> ProcessKey {
        self.info(pid).map_or(ProcessKey { pid, start: None }, |info| info.key)
    }

    pub(crate) fn role(&self, pid: Pid, device: &DeviceState) -> Role {
        let holder = self.holder(pid);
        let memory = holder.map(|holder| holder.memory_use(device.id())).unwrap_or_default();
        Role::of(self.info(pid), holder, self.listed(device, pid), memory)
    }

    /// Returns whether a process certainly has memory of a device: NVML lists it there, or it has
    /// the device mapped. An open file alone proves nothing, because any process can receive it
    /// (SCM_RIGHTS).
    pub(crate) fn surely_uses(&self, pid: Pid, device: &DeviceState) -> bool {
        self.listed(device, pid).is_some()
            || self.holder(pid).is_some_and(|holder| holder.surely_uses_memory_of(device.id()))
    }

    /// Returns the known processes of the last snapshot.
    pub(crate) fn infos(&self) -> impl Iterator<Item = &'a ProcessInfo> {
        self.now.processes.values().filter_map(|process| process.0.as_deref().ok())
    }

    /// Returns the devices whose memory a process uses, or which list it.
    pub(crate) fn used_by(&self, pid: Pid) -> Vec<&'a DeviceState> {
        let uses = |device: &&DeviceState| self.role(pid, device) == Role::MemoryUser;
        self.now.devices.iter().filter(uses).collect()
    }

    /// Returns the memory that NVML lists for a process on these devices; `None` if it lists none.
    pub(crate) fn listed_memory(&self, pid: Pid, devices: &[&DeviceState]) -> Option<Bytes> {
        let memory: Vec<Bytes> =
            devices.iter().filter_map(|device| self.listed(device, pid)?.memory.ok()).collect();
        (!memory.is_empty()).then(|| memory.into_iter().sum())
    }

    /// Returns the finding about a single process on these devices.
    pub(crate) fn about(
        &self,
        suspect: Suspect,
        devices: &[&DeviceState],
        kind: FindingKind,
        advice: Vec<Advice>,
    ) -> Finding {
        Finding {
            kind,
            confidence: suspect.confidence,
            devices: devices.iter().map(|device| device.id().clone()).collect(),
            memory: self.listed_memory(suspect.process.pid, devices),
            suspects: vec![suspect],
            evidence: Vec::new(),
            advice,
        }
    }

    /// Returns for how long a device has been in its present state.
    pub(crate) fn lasting(
        &self,
        device: &DeviceState,
        state: impl Fn(&DevicePast) -> Option<Streak>,
    ) -> Lasting {
        self.past.lasting(self.past.device(device.id()).and_then(state))
    }

    /// Returns the past of a process on a device that lists it.
    pub(crate) fn past_use(&self, device: &DeviceState, pid: Pid) -> Option<&'a UsePast> {
        self.past.device(device.id())?.use_by(self.key(pid))
    }

    /// Returns the evidence that a process has never computed on these devices, if it was seen for
    /// hours.
    pub(crate) fn never_computed(&self, devices: &[&DeviceState], pid: Pid) -> Option<Evidence> {
        let uses = devices.iter().map(|device| {
            let past = self.past_use(device, pid).filter(|past| !past.has_computed)?;
            Some(self.past.known_for(past))
        });
        let known = uses.min()?.filter(|known| *known >= HOURS)?;
        let text = format!("it has not computed since it was first seen {} ago", span(known));
        Some(Evidence::new(Sign::NeverComputed, text))
    }

    /// Returns for how long a process that computes on none of these devices has not computed.
    pub(crate) fn idle_on(&self, devices: &[&DeviceState], pid: Pid) -> Lasting {
        let idle = devices.iter().map(|device| match self.past_use(device, pid) {
            Some(past) => self.past.lasting(Some(past.idle)),
            // For an unlisted process, only the load of the whole device is evidence.
            None => {
                self.lasting(device, |past| Some(past.still)).and(self.past.known(self.key(pid)))
            }
        });
        idle.reduce(Lasting::and).unwrap_or_else(|| self.past.lasting(None))
    }

    /// Returns how long ago a process was started; `None` if unknown.
    pub(crate) fn age(&self, pid: Pid) -> Option<Duration> {
        Some(self.now.taken_at.since(self.info(pid)?.started_at.ok()?))
    }

    /// Returns whether a process was certainly started less than `age` ago.
    pub(crate) fn is_younger(&self, pid: Pid, age: Duration) -> bool {
        self.age(pid).is_some_and(|own| own < age)
    }

    /// Returns whether a process is certainly old enough to be called idle: by its start time, or,
    /// if that is unknown, because it was watched for as long.
    pub(crate) fn is_settled(&self, pid: Pid) -> bool {
        let known = || {
            let key = self.key(pid);
            key.start.map_or(Duration::ZERO, |_| self.past.known(key).span)
        };
        self.age(pid).unwrap_or_else(known) >= MIN_AGE
    }

    /// Returns whether a process computes on one of these devices, or may do so. It does not on a
    /// device that fails to answer.
    pub(crate) fn computes(&self, pid: Pid, devices: &[&DeviceState]) -> bool {
        devices.iter().any(|device| {
            let own = self.listed(device, pid).and_then(|process| process.utilization.ok());
            let Ok(sample) = &device.sample else { return own.is_some_and(|own| own.get() > 0) };
            let known = own.or(sample.utilization.ok());
            known.is_none_or(|utilization| utilization.get() > 0)
        })
    }

    /// Returns how to end a process without surprise for others; if it computes now on any device,
    /// its owner decides.
    pub(crate) fn to_end(&self, pid: Pid) -> Advice {
        let computes = |device: &&DeviceState| {
            let own = self.listed(device, pid).map(|process| process.utilization);
            own.is_some_and(|own| own.is_ok_and(|share| share.get() > 0))
        };
        match self.now.devices.iter().find(computes) {
            Some(device) => Advice::AskOwner(device.id().index),
            None => Advice::to_end(self.now, pid),
        }
    }

    /// Describes the processes whose open files could not be read; `None` if there are none. A
    /// process without an open device file is not a suspect, even if its mappings are closed.
    pub(crate) fn unread(&self) -> Option<String> {
        let total = self.now.unreadable.total() as usize;
        let unread = &self.now.unread;
        let harmless = unread.iter().filter(|process| process.open_files_read).count();
        let named: Vec<String> = unread
            .iter()
            .filter(|process| !process.open_files_read)
            .take(3)
            .map(|process| {
                let name = process.name.as_deref().unwrap_or("?");
                let user = process.user.as_deref().unwrap_or("unknown user");
                format!("{} {name} ({user})", process.pid)
            })
            .collect();
        let count = total.saturating_sub(harmless);
        let names = match (named.len(), count) {
            (_, 0) => return None,
            (0, _) => String::new(),
            (shown, _) if shown < count => format!(": {} and others", named.join(", ")),
            _ => format!(": {}", named.join(", ")),
        };
        let word = if count == 1 { "process" } else { "processes" };
        Some(format!("{count} {word} could not be inspected{names}"))
    }

    /// Returns the advice to repeat the query as root, unless the caller is root.
    pub(crate) fn advise_root(&self) -> Option<Advice> {
        (self.now.is_root != Ok(true)).then_some(Advice::LookAsRoot)
    }
}

/// Returns the files of a holder by their short names, `nvidia0 nvidiactl`.
pub(crate) fn paths(holder: &Holder) -> String {
    let names = holder.held.iter().map(|held| held.path.rsplit('/').next().unwrap_or(&held.path));
    names.collect::<Vec<_>>().join(" ")
}
