//! A small machine of which every part can be seen and moved, behind the ports: time stands still
//! unless somebody waits.
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

pub(crate) use devices::{Device, mig_uuid, uuid};
pub(crate) use processes::{key, process};

/// The process that asks: parent 2, user 1000.
pub(crate) const SELF: u32 = 50;
/// The program that it starts.
pub(crate) const JOB: u32 = 60;

type Happening = Box<dyn FnOnce(&mut State) + Send>;

/// A handle on the machine; clones are handles on the same one.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) now: Duration,
    pub(crate) processes: BTreeMap<u32, ProcessInfo>,
    pub(crate) devices: Vec<Device>,
    pub(crate) attempts: Vec<Entry>,
    pub(crate) leases: Vec<Entry>,
    pub(crate) waiters: Vec<Entry>,
    pub(crate) sees_host_pids: bool,
    /// Whose files of leases the one who asks has open.
    pub(crate) inherited: Vec<(LeaseId, u32)>,
    /// Who holds the device files cannot be seen.
    pub(crate) hides_holders: bool,
    /// Processes whose files cannot be seen.
    pub(crate) hidden: Vec<u32>,
    /// Processes that start the second one when a signal ends them.
    pub(crate) successors: Vec<(u32, u32)>,
    /// A process that starts another one, which uses device 0, so long after the last one ended.
    pub(crate) restarts: Option<(u32, Duration)>,
    /// The process that hands device 0 over to a fork of itself at each look.
    pub(crate) chain: Option<u32>,
    /// Whether that one has the device.
    pub(crate) chain_uses_device: bool,
    /// Processes that were stopped.
    pub(crate) stopped: Vec<u32>,
    /// New processes cannot be stopped.
    pub(crate) no_arrest: bool,
    pub(crate) driver_fault: Option<ErrorKind>,
    /// Who works for the driver's answers.
    pub(crate) helpers: Vec<u32>,
    pub(crate) topology: Topology,
    /// What is to happen, and when.
    script: Vec<(Duration, Happening)>,
    pub(crate) events: Vec<JobEvent>,
    /// Who was sent what, in order; the job's group as its leader.
    pub(crate) signals: Vec<(u32, i32)>,
    /// Who does not mind these signals.
    pub(crate) deaf_to: BTreeMap<u32, Vec<i32>>,
    pub(crate) journal: Vec<String>,
    /// The disk under the journal is full.
    pub(crate) journal_full: bool,
    /// No lease can be published.
    pub(crate) leases_full: bool,
    pub(crate) launched: Vec<Launch>,
    pub(crate) launch_fault: Option<ErrorKind>,
    /// What was done to the lease's descriptor.
    pub(crate) inherit: Vec<bool>,
    /// The lease was not let go of: who inherited it keeps it.
    pub(crate) left_to_others: bool,
    /// What the kernel answers when a signal is to be passed on to the program.
    pub(crate) pass_fault: Option<ErrorKind>,
    /// Nobody can be told any more how the program fares.
    pub(crate) watch_fault: Option<ErrorKind>,
    pub(crate) holds_back: bool,
    pub(crate) is_safe_gpu_at_work: bool,
    pub(crate) waits_for_safe_gpu: Vec<u32>,
    /// Who waits for the lock of its other version.
    pub(crate) waits_for_other_safe_gpu: Vec<u32>,
    /// Which of the locks were released by themselves.
    pub(crate) released: Vec<usize>,
    /// Every program that was started beside a job, and its process.
    pub(crate) accompanied: Vec<(u32, Launch)>,
    pub(crate) accompany_fault: Option<ErrorKind>,
    /// How long a program beside a job takes to show on its device; it never does without.
    pub(crate) shows_after: Option<Duration>,
    pub(crate) compute_mode: ComputeMode,
    /// How long memory is still used after its process has ended.
    pub(crate) lag: Duration,
    ids: u32,
}

/// A lease of user 1000 on whole devices.
pub(crate) fn lease(id: &str, ticket: u64, root: u32, devices: &[u32]) -> Entry {
    Entry {
        id: LeaseId::parse(id).unwrap(),
        ticket,
        owner: 1000,
        root: key(root),
        within: Vec::new(),
        claim: Claim::whole(devices.len().max(1) as u32),
        devices: devices.iter().map(|index| uuid(*index)).collect(),
        parts_of: Vec::new(),
        command: "train".into(),
        since: Timestamp(0),
    }
}

pub(crate) fn share(entry: Entry, mib: u64) -> Entry {
    let claim = Claim { share: Share::Memory(Bytes::from_mib(mib)), ..entry.claim.clone() };
    Entry { claim, ..entry }
}

impl World {
    /// A machine with so many idle devices of 16,000 MiB, and nobody but the one who asks.
    pub(crate) fn new(devices: u32) -> Self {
        let device = |index| Device {
            total: 16_000,
            unlisted: 10,
            listed: Vec::new(),
            open: Vec::new(),
            fault: None,
            capability: (8, 0),
            uuid: Some(uuid(index)),
            mig: Vec::new(),
            mig_enabled: Ok(false),
        };
        let processes =
            [process(1, 0, "systemd"), process(2, 1, "bash"), process(SELF, 2, "gpuws")];
        World(Arc::new(Mutex::new(State {
            now: Duration::from_secs(1000),
            processes: processes.into_iter().map(|info| (info.key.pid.0, info)).collect(),
            devices: (0..devices).map(device).collect(),
            attempts: Vec::new(),
            leases: Vec::new(),
            waiters: Vec::new(),
            sees_host_pids: true,
            inherited: Vec::new(),
            hides_holders: false,
            hidden: Vec::new(),
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
            watch_fault: None,
            holds_back: false,
            is_safe_gpu_at_work: false,
            waits_for_safe_gpu: Vec::new(),
            waits_for_other_safe_gpu: Vec::new(),
            released: Vec::new(),
            accompanied: Vec::new(),
            accompany_fault: None,
            shows_after: Some(Duration::from_secs(2)),
            compute_mode: ComputeMode::Default,
            lag: Duration::from_millis(300),
            ids: 0,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Lets something happen so long from now.
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
    /// Lets time pass up to `until`, or up to the next thing that happens.
    fn step(&mut self, until: Duration) {
        let first = (0..self.script.len()).min_by_key(|place| self.script[*place].0);
        match first.filter(|place| self.script[*place].0 <= until) {
            Some(place) => {
                let (at, what) = self.script.remove(place);
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
