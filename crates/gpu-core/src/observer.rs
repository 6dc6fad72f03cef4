//! Takes repeated snapshots of one machine, and reads only once what does not change.
//!
//! Three things differ from a single snapshot. The search for holders reads every process of the
//! machine, so its result is reused until something suggests a change, and for a limited time: no
//! event proves that nothing has changed. Each snapshot reads only those values of the host and of
//! a known process that change all the time. And a device that sleeps is not queried, because a
//! query would wake it.
//!
//! This is for display, not for actions: a plan and the checks before a signal search afresh.

use crate::absent::{Absent, Reading};
use crate::backend::GpuBackend;
use crate::clock::Clock;
use crate::details::{DeviceDetails, Groups};
use crate::device::{DeviceInfo, Driver};
use crate::device_files::FileActivity;
use crate::error::{Error, Fault, ProcessFault};
use crate::file::DeviceFile;
use crate::holder::{Holder, HolderScan};
use crate::host::Host;
use crate::id::{DeviceId, Pid};
use crate::inventory::{Inventory, ask};
use crate::observe::{Answers, Observation, begin, complete, take_inventory};
use crate::process::{ProcessDetail, ProcessInfo, shared};
use crate::snapshot::{DRIVER_OVERHEAD, DeviceState, Snapshot};
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A search without a reason takes at most this fraction of the time.
const ROUTINE: u32 = 100;
/// A search with a reason takes at most this fraction of the time.
const WITH_REASON: u32 = 20;
/// The shortest and the longest time from one search to the next without a reason.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// The interval between queries of details that are wanted rarely: memory faults and the modes of a
/// device seldom change.
const RARELY: Duration = Duration::from_secs(10);

/// The interval after which the hostname and all of a known process are read again: the process may
/// have changed its user or its command line.
const REREAD: Duration = Duration::from_secs(30);

/// Takes repeated snapshots of one machine, and remembers each for the next one.
#[derive(Default)]
pub struct Observer {
    last: Option<Search>,
    activity: Option<Box<dyn FileActivity>>,
    /// The driver and the devices when they were last awake.
    driver: Option<Driver>,
    devices: Vec<DeviceInfo>,
    /// The details of the devices, and when they were queried, if they are wanted rarely.
    details: Option<(Vec<(DeviceId, Details)>, Duration)>,
    are_details_rare: bool,
    /// The groups that every snapshot reads even so.
    always: Groups,
    /// The hostname, and when it was read.
    hostname: Option<(Reading<String>, Duration)>,
    /// The processes of the last snapshot, and when each was read whole.
    processes: BTreeMap<Pid, (Arc<ProcessInfo>, Duration)>,
}

/// The details of a device, or why they are not known.
type Details = Result<DeviceDetails, Fault>;

/// A search for holders.
struct Search {
    files: Vec<DeviceFile>,
    scan: HolderScan,
    /// When it ended, on the monotonic clock, and how long it took.
    at: Duration,
    took: Duration,
    /// What the driver reported before it.
    reported: Vec<Reported>,
    /// The named processes that did not exist, once they were looked up.
    gone: Option<BTreeSet<Pid>>,
    /// Something has changed since.
    is_doubtful: bool,
}

/// What the driver reports about the users of a device.
struct Reported {
    listed: BTreeSet<Pid>,
    unexplained: Option<Bytes>,
}

impl Observer {
    /// The longest time for which the result of a search for holders is reused.
    pub const LONGEST: Duration = INTERVALS.1;

    /// Returns an observer without a snapshot.
    pub fn new() -> Self {
        Observer::default()
    }

    /// Makes the observer query the details of devices only every ten seconds, which halves the
    /// number of queries. The snapshots between have the previous details.
    #[must_use]
    pub fn with_rare_details(self) -> Self {
        Observer { are_details_rare: true, ..self }
    }

    /// Sets the groups that every further snapshot reads, even if details are queried rarely.
    pub fn read_always(&mut self, groups: Groups) {
        self.always = groups;
    }

    /// Takes a snapshot like [`observe_in_detail`](crate::observe_in_detail), but the holders may
    /// be those of an earlier search, without those that have ended since. Devices that sleep are
    /// not queried. The backend's own helpers are left out of the holders.
    pub fn observe(
        &mut self,
        backend: &dyn GpuBackend,
        host: &dyn Host,
        clock: &dyn Clock,
        observation: Observation,
    ) -> Snapshot {
        let taken_at = clock.wall();
        let asleep = if backend.keeps_devices_awake() { None } else { host.sleeping_devices() };
        let inventory = match asleep {
            Some(devices) => self.asleep(devices, observation.groups),
            None => self.awake(backend, host, clock, observation.groups),
        };
        let hostname = self.hostname(host, clock);
        let mut snapshot = begin(backend, host, hostname, taken_at, inventory);
        let known = std::mem::take(&mut self.processes);
        let detail = observation.processes;
        let mut cached = Cached { observer: self, host, clock, detail, known, is_old: None };
        complete(&mut snapshot, host, observation, &mut cached);
        if let Some(is_old) = cached.is_old {
            self.check(&mut snapshot, is_old);
        }
        if let Ok(holders) = &mut snapshot.holders {
            let own = backend.helpers();
            holders.retain(|holder| !own.contains(&holder.process.pid));
        }
        snapshot
    }

    fn hostname(&mut self, host: &dyn Host, clock: &dyn Clock) -> Reading<String> {
        let now = clock.monotonic();
        self.hostname.take_if(|(_, at)| now.saturating_sub(*at) >= REREAD);
        self.hostname.get_or_insert_with(|| (host.hostname(), now)).0.clone()
    }

    fn awake(
        &mut self,
        backend: &dyn GpuBackend,
        host: &dyn Host,
        clock: &dyn Clock,
        groups: Groups,
    ) -> Inventory {
        let inventory = match self.details.take().filter(|_| self.are_details_rare) {
            Some((known, at)) if clock.monotonic().saturating_sub(at) < RARELY => {
                let mut inventory = take_inventory(backend, host, self.always);
                if with_details(&mut inventory.devices, &known) {
                    self.details = Some((known, at));
                } else {
                    inventory = take_inventory(backend, host, groups.and(self.always));
                }
                inventory
            }
            _ => take_inventory(backend, host, groups.and(self.always)),
        };
        if self.are_details_rare && self.details.is_none() {
            let rare = |details: DeviceDetails| details.only(groups);
            let known =
                |device: &DeviceState| (device.id().clone(), device.details.clone().map(rare));
            let known = inventory.devices.iter().map(known).collect();
            self.details = Some((known, clock.monotonic()));
        }
        if self.driver.as_ref() != inventory.driver.as_ref().ok() {
            self.driver = inventory.driver.as_ref().ok().cloned();
        }
        let infos = || inventory.devices.iter().map(|device| &device.info);
        if !infos().eq(&self.devices) {
            self.devices = infos().cloned().collect();
        }
        inventory
    }

    /// Returns devices that were not queried, with their last known values.
    fn asleep(&self, devices: Vec<DeviceId>, groups: Groups) -> Inventory {
        let fault = |what: String| Fault { kind: Absent::Asleep.into(), text: what };
        let devices = devices.into_iter().map(|id| {
            let known = self.devices.iter().find(|known| known.id.bus == id.bus).cloned();
            let fault = fault(format!("query GPU {}: it sleeps", id.index));
            let info = known.unwrap_or_else(|| DeviceInfo {
                name: Err(Absent::Asleep),
                ..DeviceInfo::unknown(id)
            });
            DeviceState::unanswered(info, groups, &fault)
        });
        let asleep = || fault("query the driver: all GPUs sleep".to_owned());
        let driver = self.driver.clone().ok_or_else(asleep);
        Inventory { driver, devices: devices.collect() }
    }

    /// Returns the holders of the files, and whether they come from an earlier search.
    fn holders(
        &mut self,
        host: &dyn Host,
        clock: &dyn Clock,
        snapshot: &Snapshot,
        files: &[DeviceFile],
    ) -> Result<(HolderScan, bool), Fault> {
        let reported: Vec<Reported> = snapshot.devices.iter().map(Reported::of).collect();
        let noticed = self.activity.as_mut().is_some_and(|activity| activity.noticed());
        let same_files = self.last.as_ref().is_some_and(|last| last.files == files);
        if let Some(last) = self.last.as_mut().filter(|_| same_files) {
            let as_before = last.reported.len() == reported.len()
                && last.reported.iter().zip(&reported).all(|(old, new)| old.is_like(new));
            last.is_doubtful |= noticed || !as_before;
            if !last.is_over(clock.monotonic()) {
                return Ok((last.scan.clone(), true));
            }
        } else {
            // Before the search, so that nothing between the two is missed.
            self.activity = host.file_activity(files);
        }
        self.last = None;
        let begin = clock.monotonic();
        let scan = ask(|| host.holders(files))?;
        let at = clock.monotonic();
        self.last = Some(Search {
            files: files.to_vec(),
            scan: scan.clone(),
            at,
            took: at.saturating_sub(begin),
            reported,
            gone: None,
            is_doubtful: false,
        });
        Ok((scan, false))
    }

    /// Compares the processes that do not exist with those after the search, and drops holders of
    /// an earlier search that have ended.
    fn check(&mut self, snapshot: &mut Snapshot, is_old: bool) {
        let Some(last) = &mut self.last else { return };
        let is_gone = |pid: &Pid| snapshot.process(*pid) == Err(Absent::NotFound);
        let gone: BTreeSet<Pid> = snapshot.processes.keys().copied().filter(is_gone).collect();
        if is_old && let Ok(holders) = &mut snapshot.holders {
            let processes = &snapshot.processes;
            // Another process may have the PID by now.
            let is_other = |holder: &Holder| {
                let process = processes.get(&holder.process.pid);
                let info = process.and_then(|process| process.0.as_deref().ok());
                info.is_some_and(|info| info.key != holder.process)
            };
            let before = holders.len();
            holders.retain(|holder| !gone.contains(&holder.process.pid) && !is_other(holder));
            last.is_doubtful |= holders.len() < before;
        }
        match &last.gone {
            Some(before) => last.is_doubtful |= *before != gone,
            None => last.gone = Some(gone),
        }
    }
}

/// Adds the previous details to those of the devices that answer. Returns whether they are the same
/// devices.
fn with_details(devices: &mut [DeviceState], known: &[(DeviceId, Details)]) -> bool {
    let are_same = devices.len() == known.len()
        && devices.iter().zip(known).all(|(device, (id, _))| device.id() == id);
    for (device, (_, details)) in devices.iter_mut().zip(known).filter(|_| are_same) {
        device.details = match (&device.sample, &device.details, details) {
            (Err(fault), ..) | (_, Err(fault), _) => Err(fault.clone()),
            (.., Err(fault)) => Err(fault.clone()),
            (_, Ok(new), Ok(known)) => {
                let mut details = known.clone();
                details.overlay(new);
                Ok(details)
            }
        };
    }
    are_same
}

/// One snapshot of an observer.
struct Cached<'a> {
    observer: &'a mut Observer,
    host: &'a dyn Host,
    clock: &'a dyn Clock,
    detail: ProcessDetail,
    /// The processes of the previous snapshot.
    known: BTreeMap<Pid, (Arc<ProcessInfo>, Duration)>,
    /// Whether the holders are those of an earlier search; `None` if they were not requested.
    is_old: Option<bool>,
}

impl Answers for Cached<'_> {
    fn holders(&mut self, snapshot: &Snapshot, files: &[DeviceFile]) -> Result<HolderScan, Fault> {
        let (scan, is_old) = self.observer.holders(self.host, self.clock, snapshot, files)?;
        self.is_old = Some(is_old);
        Ok(scan)
    }

    fn processes(&mut self, pids: &[Pid]) -> Vec<crate::error::Result<Arc<ProcessInfo>>> {
        let now = self.clock.monotonic();
        let (mut known, mut new) = (Vec::with_capacity(pids.len()), Vec::new());
        let mut read_at = Vec::with_capacity(pids.len());
        for pid in pids {
            // After a search for holders, the processes of this snapshot are requested again.
            let before = self.known.remove(pid).or_else(|| self.observer.processes.remove(pid));
            match before.filter(|(_, at)| now.saturating_sub(*at) < REREAD) {
                Some((info, at)) => {
                    known.push(info);
                    read_at.push(Some(at));
                }
                None => {
                    new.push(*pid);
                    read_at.push(None);
                }
            }
        }
        let again = if known.is_empty() {
            Vec::new()
        } else {
            self.host.processes_again(known, self.detail)
        };
        let mut again = again.into_iter();
        let fresh = if new.is_empty() {
            Vec::new()
        } else {
            shared(self.host.processes_of(&new, self.detail))
        };
        let mut fresh = fresh.into_iter();
        let gone = || Error::new(ProcessFault::Gone, "inspect a process");
        let (mut answers, mut kept) = (Vec::with_capacity(pids.len()), Vec::new());
        for (pid, at) in pids.iter().zip(read_at) {
            let answer = if at.is_some() { again.next() } else { fresh.next() };
            let answer = answer.unwrap_or_else(|| Err(gone()));
            if let Ok(info) = &answer {
                kept.push((*pid, (Arc::clone(info), at.unwrap_or(now))));
            }
            answers.push(answer);
        }
        // All at once: a map that grows in ascending order is half empty.
        self.observer.processes.append(&mut kept.into_iter().collect());
        answers
    }
}

impl Search {
    /// Returns whether the search must be repeated.
    fn is_over(&self, now: Duration) -> bool {
        let routine = (self.took * ROUTINE).clamp(INTERVALS.0, INTERVALS.1);
        let least = if self.is_doubtful { self.took * WITH_REASON } else { routine };
        now.saturating_sub(self.at) >= least.min(routine)
    }
}

impl Reported {
    fn of(device: &DeviceState) -> Self {
        let listed = device.processes.iter().flatten().map(|process| process.pid).collect();
        let memory = device.memory_used().ok().zip(device.memory_listed());
        Reported { listed, unexplained: memory.map(|(used, listed)| used.saturating_sub(listed)) }
    }

    /// Returns whether the same processes are listed, and the unexplained memory is about the same.
    fn is_like(&self, other: &Reported) -> bool {
        let about_same = match (self.unexplained, other.unexplained) {
            (Some(one), Some(two)) => one.max(two).saturating_sub(one.min(two)) < DRIVER_OVERHEAD,
            (one, two) => one.is_some() == two.is_some(),
        };
        about_same && self.listed == other.listed
    }
}
