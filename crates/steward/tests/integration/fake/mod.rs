//! A small fake machine behind the ports, every part of which can be read and changed. Its time
//! advances only while a caller waits.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod companion;
mod devices;
mod job;
mod locks;
mod processes;

use gpu_core::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) use devices::{Device, bus, mig_uuid, uuid};
pub(crate) use processes::{key, process};

/// The calling process: parent 2, user 1000.
pub(crate) const SELF: u32 = 50;
/// The program that it starts.
pub(crate) const JOB: u32 = 60;

type Happening = Box<dyn FnOnce(&mut State) + Send>;

/// A handle to the machine; clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) now: Duration,
    pub(crate) processes: BTreeMap<u32, ProcessInfo>,
    pub(crate) devices: Vec<Device>,
    pub(crate) attempts: Vec<LeaseEntry>,
    pub(crate) leases: Vec<LeaseEntry>,
    /// The driver's messages in the kernel log.
    pub(crate) logged: Vec<DriverMessage>,
    /// The user of the caller.
    pub(crate) owner: u32,
    pub(crate) waiters: Vec<LeaseEntry>,
    pub(crate) sees_host_pids: bool,
    /// The lease files that the caller has open.
    pub(crate) inherited: Vec<(LeaseId, u32)>,
    /// The driver does not report which device has which file.
    pub(crate) hides_minors: bool,
    /// The holders of the device files are unreadable.
    pub(crate) hides_holders: bool,
    /// Processes whose files are unreadable.
    pub(crate) hidden: Vec<u32>,
    /// Processes that the kernel does not show (`hidepid`).
    pub(crate) unseen: Vec<u32>,
    /// Files that are not device files, each with the process that has it open.
    pub(crate) other_files: Vec<(u32, HeldFile)>,
    /// Processes that start the second one when a signal ends them.
    pub(crate) successors: Vec<(u32, u32)>,
    /// A process that starts another one, which uses device 0, this long after the last one ended.
    pub(crate) restarts: Option<(u32, Duration)>,
    /// The process that passes device 0 to a fork of itself at each scan.
    pub(crate) chain: Option<u32>,
    /// Whether that process has the device.
    pub(crate) chain_uses_device: bool,
    /// Processes that were stopped.
    pub(crate) stopped: Vec<u32>,
    /// New processes cannot be stopped.
    pub(crate) no_arrest: bool,
    pub(crate) driver_fault: Option<ErrorKind>,
    /// The helper processes of the backend.
    pub(crate) helpers: Vec<u32>,
    pub(crate) topology: Topology,
    /// The scheduled changes.
    script: Vec<(Duration, Happening)>,
    pub(crate) events: Vec<JobEvent>,
    /// The signals sent, in order; for the job's group, its leader.
    pub(crate) signals: Vec<(u32, i32)>,
    /// Processes that ignore these signals.
    pub(crate) deaf_to: BTreeMap<u32, Vec<i32>>,
    pub(crate) journal: Vec<String>,
    /// The disk of the audit log is full.
    pub(crate) journal_full: bool,
    /// No lease can be published.
    pub(crate) leases_full: bool,
    pub(crate) launched: Vec<Launch>,
    pub(crate) launch_fault: Option<ErrorKind>,
    /// The changes to the lease's descriptor.
    pub(crate) inherit: Vec<bool>,
    /// The lease was not released: the processes that inherited it keep it.
    pub(crate) left_to_others: bool,
    /// The kernel's error when a signal is to be forwarded to the program.
    pub(crate) pass_fault: Option<ErrorKind>,
    /// The kernel's error when a process is to be signalled.
    pub(crate) signal_fault: Option<ErrorKind>,
    /// The renewals of held entries.
    pub(crate) renewals: Vec<Duration>,
    /// The program can no longer be monitored.
    pub(crate) watch_fault: Option<ErrorKind>,
    pub(crate) holds_back: bool,
    pub(crate) is_safe_gpu_at_work: bool,
    pub(crate) waits_for_safe_gpu: Vec<u32>,
    /// The processes that wait for the lock of safe-gpu's other version.
    pub(crate) waits_for_other_safe_gpu: Vec<u32>,
    /// The locks that were released one by one.
    pub(crate) released: Vec<usize>,
    /// No lock can be released alone.
    pub(crate) keeps_locks: bool,
    /// Every companion program that was started, with its PID.
    pub(crate) accompanied: Vec<(u32, Launch)>,
    pub(crate) accompany_fault: Option<ErrorKind>,
    /// How long a companion program takes to appear on its device; `None` if it never does.
    pub(crate) shows_after: Option<Duration>,
    pub(crate) compute_mode: ComputeMode,
    /// How long a killed companion program takes to end.
    pub(crate) companions_linger: Duration,
    /// The queries of the topology.
    pub(crate) topology_queries: usize,
    /// How long memory stays in use after its process has ended.
    pub(crate) lag: Duration,
    ids: u32,
}

/// A lease of user 1000 on whole devices.
pub(crate) fn lease(id: &str, ticket: u64, root: u32, devices: &[u32]) -> LeaseEntry {
    LeaseEntry {
        id: LeaseId::parse(id).unwrap(),
        ticket,
        owner: 1000,
        root: key(root),
        within: Vec::new(),
        claim: Claim::whole(devices.len().max(1) as u32),
        devices: devices.iter().map(|index| uuid(*index)).collect(),
        parts_of: Vec::new(),
        merged: None,
        command: "train".into(),
        since: Timestamp(0),
    }
}

pub(crate) fn share(entry: LeaseEntry, mib: u64) -> LeaseEntry {
    let claim = Claim { share: Share::Memory(Bytes::from_mib(mib)), ..entry.claim.clone() };
    LeaseEntry { claim, ..entry }
}

impl World {
    /// A machine with this many idle devices of 16,000 MiB, and no process but the caller.
    pub(crate) fn new(devices: u32) -> Self {
        let device = |index| Device {
            name: "A100",
            total: 16_000,
            unlisted: 10,
            listed: Vec::new(),
            drawing: Vec::new(),
            open: Vec::new(),
            hides_memory_of: None,
            fault: None,
            kind: MemoryKind::Dedicated,
            capability: (8, 0),
            uncorrected: 0,
            utilization: None,
            uuid: Ok(uuid(index)),
            mig: Vec::new(),
            partitioned: Ok(false),
            names_mig: true,
            mig_key: "MIG-".to_owned(),
            display: Err(Absent::NotSupported),
            visibility: Default::default(),
        };
        let processes =
            [process(1, 0, "systemd"), process(2, 1, "bash"), process(SELF, 2, "gpuws")];
        World(Arc::new(Mutex::new(State {
            now: Duration::from_secs(1000),
            processes: processes.into_iter().map(|info| (info.key.pid.0, info)).collect(),
            devices: (0..devices).map(device).collect(),
            attempts: Vec::new(),
            leases: Vec::new(),
            owner: 1000,
            waiters: Vec::new(),
            sees_host_pids: true,
            inherited: Vec::new(),
            hides_minors: false,
            hides_holders: false,
            hidden: Vec::new(),
            unseen: Vec::new(),
            logged: Vec::new(),
            other_files: Vec::new(),
            successors: Vec::new(),
            restarts: None,
            chain: None,
            chain_uses_device: true,
            stopped: Vec::new(),
            no_arrest: false,
            driver_fault: None,
            helpers: Vec::new(),
            topology: Topology::default(),
            script: Vec::new(),
            events: Vec::new(),
            signals: Vec::new(),
            deaf_to: BTreeMap::new(),
            journal: Vec::new(),
            journal_full: false,
            leases_full: false,
            launched: Vec::new(),
            launch_fault: None,
            inherit: Vec::new(),
            left_to_others: false,
            pass_fault: None,
            signal_fault: None,
            renewals: Vec::new(),
            watch_fault: None,
            holds_back: false,
            is_safe_gpu_at_work: false,
            waits_for_safe_gpu: Vec::new(),
            waits_for_other_safe_gpu: Vec::new(),
            released: Vec::new(),
            keeps_locks: false,
            accompanied: Vec::new(),
            accompany_fault: None,
            shows_after: Some(Duration::from_secs(2)),
            compute_mode: ComputeMode::Default,
            companions_linger: Duration::ZERO,
            topology_queries: 0,
            lag: Duration::from_millis(300),
            ids: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Schedules a change after this time.
    pub(crate) fn after(&self, wait: Duration, what: impl FnOnce(&mut State) + Send + 'static) {
        let mut state = self.state();
        let at = state.now + wait;
        state.script.push((at, Box::new(what)));
    }

    pub(crate) fn ports(&self) -> gpu_steward::Ports<'_> {
        gpu_steward::Ports { backend: self, host: self, clock: self, journal: self, locks: self }
    }
}

impl State {
    /// Advances the time to `until`, or to the next scheduled change.
    fn step(&mut self, until: Duration) {
        let first = (0..self.script.len()).min_by_key(|index| self.script[*index].0);
        match first.filter(|index| self.script[*index].0 <= until) {
            Some(index) => {
                let (at, what) = self.script.remove(index);
                self.now = self.now.max(at);
                what(self);
            }
            None => self.now = self.now.max(until),
        }
    }

    fn pass(&mut self, wait: Duration) {
        let until = self.now + wait;
        while self.now < until {
            self.step(until);
        }
    }
}

impl Clock for World {
    fn wall(&self) -> Timestamp {
        Timestamp(self.state().now.as_millis() as u64)
    }

    fn monotonic(&self) -> Duration {
        self.state().now
    }

    fn sleep(&self, duration: Duration) {
        self.state().pass(duration);
    }
}

impl Journal for World {
    fn append(&self, line: &str) -> Result<()> {
        if self.state().journal_full {
            return Err(Error::new(ErrorKind::Io, "write journal"));
        }
        self.state().journal.push(line.to_owned());
        Ok(())
    }
}
