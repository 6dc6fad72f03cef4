//! The results of earlier snapshots, without the snapshots.

mod cpu;
mod growth;
mod streak;

use crate::condition::{
    THROTTLE_FAULTS, Unexplained, is_busy_alone, is_link_slow, throttle_faults,
};
use cpu::CpuTime;
use gpu_core::{
    Bytes, DeviceId, DeviceState, Pid, ProcessInfo, ProcessKey, ProcessState, Snapshot,
    ThrottleReasons, Timestamp,
};
use growth::Growth;
pub(crate) use growth::Rise;
use std::collections::BTreeMap;
use std::time::Duration;
pub(crate) use streak::{HOURS, Lasting, Streak, span};

/// A device that is used no more than this, in percent, waits most of the time.
pub(crate) const LOW: u8 = 30;

/// The results of a series of snapshots for each device and process: since when it is idle, for how
/// long a fault lasts, whether its memory grows.
///
/// It keeps a few numbers for each device, each process and each pair of them, however many
/// snapshots are added, and forgets processes that are gone. A reused PID is a new process, because
/// the start time differs.
///
/// Only watched time counts. A value that a snapshot lacks neither confirms a state nor ends it,
/// and after an interval longer than [`Past::every`] allows every state begins anew: a machine that
/// was suspended or not recorded has not been seen idle. If the wall clock is set back, no time has
/// passed between the two snapshots.
///
/// [`diagnose_after`](crate::diagnose_after) reads it.
#[derive(Clone, Debug)]
pub struct Past {
    /// If two snapshots are further apart, the time between them was not watched.
    longest: Duration,
    /// The time of the last snapshot on the wall clock.
    taken_at: Option<Timestamp>,
    /// The same on a clock that starts with the first snapshot and never goes back.
    now: Duration,
    devices: Vec<DevicePast>,
    processes: BTreeMap<Pid, ProcessPast>,
}

/// The past of a device.
#[derive(Clone, Debug)]
pub(crate) struct DevicePast {
    id: DeviceId,
    seen: Duration,
    /// For each of [`THROTTLE_FAULTS`]: the clocks are reduced for this reason.
    throttled: [Streak; THROTTLE_FAULTS.len()],
    /// It is busy and no process is listed on it.
    pub(crate) busy_alone: Streak,
    /// It works over a slow PCI Express link.
    pub(crate) slow_link: Streak,
    /// No process computes on it.
    pub(crate) still: Streak,
    /// The memory that no listed process accounts for.
    pub(crate) unlisted: Growth,
    uses: BTreeMap<Pid, UsePast>,
}

/// The past of a process on a device that lists it.
#[derive(Clone, Debug)]
pub(crate) struct UsePast {
    key: ProcessKey,
    /// It did not compute.
    pub(crate) idle: Streak,
    /// The device, or its part of it, was used no more than [`LOW`].
    pub(crate) low: Streak,
    /// When it was first listed, since the last interval that was not watched.
    first: Duration,
    /// When it was last listed.
    seen: Duration,
    /// It was seen computing.
    pub(crate) has_computed: bool,
    /// Its memory.
    pub(crate) memory: Growth,
}

/// The past of a process.
#[derive(Clone, Debug)]
struct ProcessPast {
    key: ProcessKey,
    seen: Duration,
    known: Streak,
    uninterruptible: Streak,
    cpu: CpuTime,
    /// It uses less of a CPU than a working process ([`Past::uses_cpu`]).
    waits: Streak,
}

/// The state of a process on a device in one snapshot.
#[derive(Clone, Copy, Debug)]
struct Use {
    idle: Option<bool>,
    low: Option<bool>,
    memory: Option<Bytes>,
}

impl Past {
    /// Returns the past before the first snapshot, for snapshots selected by the user: however far
    /// apart, no other data exists between them.
    pub const fn new() -> Self {
        Past {
            longest: Duration::MAX,
            taken_at: None,
            now: Duration::ZERO,
            devices: Vec::new(),
            processes: BTreeMap::new(),
        }
    }

    /// Returns the past before the first snapshot of a watcher with this interval. After ten
    /// intervals without a snapshot, but at least five minutes, the time was not watched: a loaded
    /// machine may skip some snapshots, and no event within five minutes changes the results of
    /// hours.
    pub fn every(interval: Duration) -> Self {
        let longest = interval.saturating_mul(10).max(Duration::from_secs(300));
        Past { longest, ..Past::new() }
    }

    /// Adds a snapshot, which must be later than those before.
    ///
    /// Processes that this snapshot does not mention are kept for a while, because a snapshot need
    /// not search for holders. Processes that it knows to be gone are forgotten.
    pub fn add(&mut self, snapshot: &Snapshot) {
        if let Some(before) = self.taken_at {
            self.now = self.now.saturating_add(snapshot.taken_at.since(before));
        }
        self.taken_at = Some(snapshot.taken_at);
        let (now, longest) = (self.now, self.longest);
        for (index, device) in snapshot.devices.iter().enumerate() {
            // The order of the devices rarely changes.
            let same = |past: &DevicePast| past.id.same_device(device.id());
            let known = match self.devices.get(index) {
                Some(past) if same(past) => Some(index),
                _ => self.devices.iter().position(same),
            };
            let known = known.unwrap_or_else(|| {
                self.devices.push(DevicePast::new(device.id().clone()));
                self.devices.len() - 1
            });
            self.devices[known].add(snapshot, device, now, longest);
        }
        self.devices.retain(|past| now.saturating_sub(past.seen) <= longest);
        let before = self.processes.len();
        for (pid, process) in &snapshot.processes {
            match &process.0 {
                Ok(info) => self.add_process(*pid, info),
                Err(gpu_core::Absent::NotFound) => {
                    self.processes.remove(pid);
                }
                Err(_) => {}
            }
        }
        self.processes.retain(|_, past| now.saturating_sub(past.seen) <= longest);
        fill_if_grown(&mut self.processes, before);
    }

    fn add_process(&mut self, pid: Pid, info: &ProcessInfo) {
        let (now, longest) = (self.now, self.longest);
        let fresh = || ProcessPast {
            key: info.key,
            seen: now,
            known: Streak::default(),
            uninterruptible: Streak::default(),
            cpu: CpuTime::default(),
            waits: Streak::default(),
        };
        let past = self.processes.entry(pid).or_insert_with(fresh);
        if past.key != info.key {
            *past = fresh();
        }
        past.seen = now;
        past.known.note(Some(true), now, longest);
        let stuck = info.state.ok().map(|state| state == ProcessState::Uninterruptible);
        past.uninterruptible.note(stuck, now, longest);
        past.cpu.note(info.cpu_time.ok(), now, longest);
        let waits = info.cpu_time.ok().map(|_| !past.cpu.recent(now).is_some_and(is_work));
        past.waits.note(waits, now, longest);
    }

    /// Returns the past of a device, if the last snapshot had it or one shortly before.
    pub(crate) fn device(&self, id: &DeviceId) -> Option<&DevicePast> {
        self.devices.iter().find(|past| past.id.same_device(id))
    }

    /// Returns for how long a state has lasted; the current snapshot, which shows it, counts at
    /// least.
    pub(crate) fn lasting(&self, streak: Option<Streak>) -> Lasting {
        streak.unwrap_or_default().until(self.now)
    }

    /// Returns the time since a process was first listed on a device.
    pub(crate) fn known_for(&self, past: &UsePast) -> Duration {
        self.now.saturating_sub(past.first)
    }

    /// Returns for how long a process has been in uninterruptible sleep.
    pub(crate) fn uninterruptible(&self, process: ProcessKey) -> Lasting {
        self.lasting(self.process(process).map(|past| past.uninterruptible))
    }

    /// Returns for how long a process has certainly used no CPU time at all; zero if unknown.
    pub(crate) fn without_cpu_time(&self, process: ProcessKey) -> Duration {
        let past = self.process(process).filter(|past| past.key.start.is_some());
        past.map_or(Duration::ZERO, |past| past.cpu.still().until(self.now).span)
    }

    /// Returns for how long a process has been seen.
    pub(crate) fn known(&self, process: ProcessKey) -> Lasting {
        self.lasting(self.process(process).map(|past| past.known))
    }

    /// Returns for how long a process has used less of a CPU than a working one; `None` if that is
    /// unknown.
    pub(crate) fn waits(&self, process: ProcessKey) -> Option<Lasting> {
        let waits = self.process(process)?.waits;
        (waits.samples() > 0).then(|| self.lasting(Some(waits)))
    }

    /// Returns whether a process has recently used a noticeable part of a CPU: 2 % of one. A
    /// waiting process uses less.
    pub(crate) fn uses_cpu(&self, process: ProcessKey) -> bool {
        self.recent_cpu_time(process).is_some_and(is_work)
    }

    /// Returns the CPU time that a process has used recently, and over how long: since its first
    /// snapshot, or over the last ten to twenty minutes. `None` with one snapshot.
    pub(crate) fn recent_cpu_time(&self, process: ProcessKey) -> Option<(Duration, Duration)> {
        self.process(process).filter(|past| past.key.start.is_some())?.cpu.recent(self.now)
    }

    fn process(&self, key: ProcessKey) -> Option<&ProcessPast> {
        self.processes.get(&key.pid).filter(|past| past.key == key)
    }
}

/// Rebuilds a map that has grown: a map that grew in ascending order is half empty, and this one
/// stays for hours.
fn fill_if_grown<V>(map: &mut BTreeMap<Pid, V>, before: usize) {
    if map.len() > before {
        *map = std::mem::take(map).into_iter().collect();
    }
}

fn is_work((used, span): (Duration, Duration)) -> bool {
    used.saturating_mul(50) > span
}

impl Default for Past {
    fn default() -> Self {
        Past::new()
    }
}

impl<'a> FromIterator<&'a Snapshot> for Past {
    fn from_iter<T: IntoIterator<Item = &'a Snapshot>>(snapshots: T) -> Self {
        let mut past = Past::new();
        snapshots.into_iter().for_each(|snapshot| past.add(snapshot));
        past
    }
}

impl DevicePast {
    fn new(id: DeviceId) -> Self {
        DevicePast {
            id,
            seen: Duration::ZERO,
            throttled: Default::default(),
            busy_alone: Streak::default(),
            slow_link: Streak::default(),
            still: Streak::default(),
            unlisted: Growth::default(),
            uses: BTreeMap::new(),
        }
    }

    fn add(&mut self, snapshot: &Snapshot, device: &DeviceState, now: Duration, longest: Duration) {
        self.seen = now;
        let faults = throttle_faults(device);
        for (streak, fault) in self.throttled.iter_mut().zip(THROTTLE_FAULTS) {
            streak.note(faults.map(|reasons| reasons.has_any(fault)), now, longest);
        }
        self.busy_alone.note(is_busy_alone(device), now, longest);
        self.slow_link.note(is_link_slow(device), now, longest);
        let busy = device.sample.as_ref().ok().and_then(|sample| sample.utilization.ok());
        let still = busy.map(|busy| busy.get() == 0);
        self.still.note(still, now, longest);
        let unlisted = Unexplained::of(device).map(|account| account.bytes);
        self.unlisted.note(unlisted, now, longest);
        // The PIDs of another namespace name no process here.
        let Some(listed) =
            device.processes.as_ref().ok().filter(|_| snapshot.sees_host_pids != Ok(false))
        else {
            return;
        };
        let mut uses: BTreeMap<Pid, Use> = BTreeMap::new();
        for process in listed {
            let idle = process.utilization.ok().map(|own| own.get() == 0).or(still);
            let low = process.utilization.ok().or(busy).map(|share| share.get() <= LOW);
            let here = Use { idle, low, memory: process.memory.ok() };
            // A process in several MIG instances is listed in each.
            uses.entry(process.pid).and_modify(|known| known.join(here)).or_insert(here);
        }
        let before = self.uses.len();
        self.uses.retain(|pid, _| uses.contains_key(pid));
        for (pid, here) in uses {
            let key =
                snapshot.process(pid).map_or(ProcessKey { pid, start: None }, |info| info.key);
            let past = self.uses.entry(pid).or_insert_with(|| UsePast::new(key, now));
            past.add(key, here, now, longest);
        }
        fill_if_grown(&mut self.uses, before);
    }

    /// Returns the past of a process on it; `None` for a process that the last snapshot did not
    /// list on it.
    pub(crate) fn use_by(&self, process: ProcessKey) -> Option<&UsePast> {
        self.uses.get(&process.pid).filter(|past| !past.is_other(process))
    }

    /// Returns how long the clocks have been reduced for one of these reasons.
    pub(crate) fn throttled(&self, reasons: ThrottleReasons) -> Option<Streak> {
        let faults = THROTTLE_FAULTS.iter().zip(&self.throttled);
        let lasting =
            faults.filter(|(fault, _)| reasons.has_any(**fault)).map(|(_, streak)| *streak);
        lasting.max_by_key(Streak::samples)
    }
}

impl UsePast {
    fn new(key: ProcessKey, now: Duration) -> Self {
        UsePast {
            key,
            idle: Streak::default(),
            low: Streak::default(),
            first: now,
            seen: now,
            has_computed: false,
            memory: Growth::default(),
        }
    }

    fn add(&mut self, key: ProcessKey, here: Use, now: Duration, longest: Duration) {
        if self.is_other(key) {
            *self = UsePast::new(key, now);
        }
        if now.saturating_sub(self.seen) > longest {
            self.first = now;
        }
        self.seen = now;
        self.key.start = key.start.or(self.key.start);
        self.idle.note(here.idle, now, longest);
        self.low.note(here.low, now, longest);
        self.has_computed |= here.idle == Some(false);
        self.memory.note(here.memory, now, longest);
    }

    /// Returns whether it is certainly another process: a snapshot may lack the start time.
    fn is_other(&self, key: ProcessKey) -> bool {
        self.key.start.zip(key.start).is_some_and(|(own, other)| own != other)
    }
}

impl Use {
    fn join(&mut self, other: Use) {
        let both = |own, other| match (own, other) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (own, other) => own.and(other),
        };
        self.idle = both(self.idle, other.idle);
        self.low = both(self.low, other.low);
        self.memory = self.memory.zip(other.memory).map(|(own, other)| own + other);
    }
}
