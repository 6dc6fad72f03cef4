//! A small machine of which every part can be seen and moved, behind the ports: time stands still
//! unless somebody waits.
#![allow(dead_code, reason = "each test file uses its part")]

mod companion;
mod locks;

use gpu_core::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

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

#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) total: u64,
    /// Used by nobody who is listed, in MiB.
    pub(crate) unlisted: u64,
    /// Process and MiB.
    pub(crate) listed: Vec<(u32, u64)>,
    /// Who has the device open and is not listed.
    pub(crate) open: Vec<u32>,
    pub(crate) fault: Option<ErrorKind>,
    pub(crate) capability: (u32, u32),
    pub(crate) uuid: Option<DeviceUuid>,
    /// GPU instance, MiB of it, and those of its processes.
    pub(crate) mig: Vec<(u32, u64, Vec<u32>)>,
    pub(crate) mig_enabled: Reading<bool>,
}

pub(crate) fn uuid(index: u32) -> DeviceUuid {
    DeviceUuid(format!("GPU-{index}"))
}

pub(crate) fn mig_uuid(gpu_instance: u32) -> DeviceUuid {
    DeviceUuid(format!("MIG-{gpu_instance}"))
}

pub(crate) fn process(pid: u32, parent: u32, name: &str) -> ProcessInfo {
    ProcessInfo {
        key: ProcessKey { pid: Pid(pid), start: Some(StartTime(u64::from(pid) * 10)) },
        uid: Ok(1000),
        parent: Ok(Pid(parent)),
        state: Ok(ProcessState::Sleeping),
        ..ProcessInfo::from_name(Pid(pid), name)
    }
}

pub(crate) fn key(pid: u32) -> ProcessKey {
    process(pid, 0, "").key
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
    pub(crate) fn add(&mut self, info: ProcessInfo) {
        self.processes.insert(info.key.pid.0, info);
    }

    /// Uses so much memory of a device.
    pub(crate) fn uses(&mut self, pid: u32, device: usize, mib: u64) {
        self.devices[device].listed.retain(|(other, _)| *other != pid);
        self.devices[device].listed.push((pid, mib));
    }

    /// Ends a process: its children are taken in by the one who asks, as a subreaper does, and its
    /// memory comes back a little later.
    pub(crate) fn ends(&mut self, pid: u32, ending: Ending) {
        if self.processes.remove(&pid).is_none() {
            return;
        }
        self.stopped.retain(|stopped| *stopped != pid);
        if self.chain == Some(pid) {
            self.chain = None;
        }
        if let Some((parent, pause)) = self.restarts
            && pid > parent
            && self.processes.contains_key(&parent)
        {
            let restart = move |state: &mut State| {
                if state.processes.contains_key(&parent) {
                    state.add(process(pid + 1, parent, "again"));
                    state.uses(pid + 1, 0, 1_000);
                }
            };
            self.script.push((self.now + pause, Box::new(restart)));
        }
        for child in self.processes.values_mut().filter(|p| p.parent == Ok(Pid(pid))) {
            child.parent = Ok(Pid(SELF));
        }
        if pid == JOB {
            self.events.push(JobEvent::Ended(ending));
        }
        for device in &mut self.devices {
            let freed: u64 =
                device.listed.iter().filter(|(user, _)| *user == pid).map(|(_, mib)| mib).sum();
            device.listed.retain(|(user, _)| *user != pid);
            device.open.retain(|user| *user != pid);
            device.unlisted += freed;
        }
        let back = self.now + self.lag;
        self.script.push((
            back,
            Box::new(|state| {
                state.devices.iter_mut().for_each(|device| device.unlisted = 10);
            }),
        ));
    }

    /// Lets the process that does so hand its device over.
    fn hand_over(&mut self) {
        let Some(pid) = self.chain.filter(|pid| !self.stopped.contains(pid)) else { return };
        self.add(process(pid + 1, SELF, "chain"));
        self.chain = Some(pid + 1);
        if self.chain_uses_device {
            self.devices[0].open.push(pid + 1);
        }
        self.processes.remove(&pid);
        self.devices[0].open.retain(|user| *user != pid);
    }

    fn signal(&mut self, pid: u32, signal: i32) {
        self.signals.push((pid, signal));
        let deaf = self.deaf_to.get(&pid).is_some_and(|deaf| deaf.contains(&signal));
        if let Some(place) = self.successors.iter().position(|(first, _)| *first == pid && !deaf) {
            let (_, next) = self.successors.remove(place);
            self.add(process(next, SELF, "next"));
        }
        if !self.deaf_to.get(&pid).is_some_and(|deaf| deaf.contains(&signal)) {
            self.ends(pid, Ending::Signal(signal));
        }
    }

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

    fn members(&self) -> Vec<ProcessInfo> {
        let below = |info: &&ProcessInfo| {
            let mut pid = info.parent;
            while let Some(parent) = pid.ok().and_then(|pid| self.processes.get(&pid.0)) {
                if parent.key.pid == Pid(SELF) {
                    return true;
                }
                pid = parent.parent;
            }
            false
        };
        let is_companion = |info: &&ProcessInfo| self.is_companion(info.key.pid.0);
        self.processes.values().filter(below).filter(|i| !is_companion(i)).cloned().collect()
    }

    fn is_companion(&self, pid: u32) -> bool {
        self.accompanied.iter().any(|(companion, _)| *companion == pid)
    }

    /// Returns the programs beside the job that run.
    pub(crate) fn companions(&self) -> Vec<u32> {
        self.processes.keys().copied().filter(|pid| self.is_companion(*pid)).collect()
    }

    fn info(&self, pid: Pid) -> Result<ProcessInfo> {
        let found = self.processes.get(&pid.0).cloned();
        found.ok_or_else(|| Error::new(ProcessFault::Gone, format!("look at process {pid}")))
    }

    fn files(&self) -> Vec<DeviceFile> {
        let file = |minor: usize| DeviceFile {
            path: format!("/dev/nvidia{minor}").into(),
            kind: DeviceFileKind::Gpu(minor as u32),
            id: Ok(FileId::Device { major: 195, minor: minor as u32 }),
        };
        (0..self.devices.len()).map(file).collect()
    }

    fn held(&self, pid: u32) -> Vec<HeldFile> {
        let has = |device: &Device| {
            device.open.contains(&pid) || device.listed.iter().any(|(user, _)| *user == pid)
        };
        let held = self.files().into_iter().zip(&self.devices).filter(|(_, device)| has(device));
        held.map(|(file, _)| HeldFile {
            path: file.path,
            kind: file.kind,
            access: Access::OPEN_FOR_WRITING | Access::MAPPED,
            descriptors: vec![3],
        })
        .collect()
    }

    fn device(&self, id: &DeviceId) -> Result<&Device> {
        let device = &self.devices[id.index as usize];
        match device.fault {
            Some(kind) => Err(Error::new(kind, format!("ask {id}"))),
            None => Ok(device),
        }
    }
}

impl GpuBackend for World {
    fn origin(&self) -> Origin {
        Origin::Simulated("world".into())
    }

    fn driver(&self) -> Result<Driver> {
        match self.state().driver_fault {
            Some(kind) => Err(Error::new(kind, "initialise NVML")),
            None => Ok(Driver { version: Ok("550.1".into()), cuda: Ok("12.4".into()) }),
        }
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let info = |(index, device): (usize, &Device)| {
            let mut id = DeviceId::from_index(index as u32);
            id.uuid = device.uuid.clone().ok_or(Absent::NotSupported);
            id.minor = Ok(index as u32);
            let (name, mig_enabled) = (Ok("A100".into()), device.mig_enabled);
            DeviceInfo { name, mig_enabled, ..DeviceInfo::unknown(id) }
        };
        Ok(self.state().devices.iter().enumerate().map(info).collect())
    }

    fn sample(&self, id: &DeviceId) -> Result<DeviceSample> {
        let state = self.state();
        let device = state.device(id)?;
        let listed: u64 = device.listed.iter().map(|(_, mib)| mib).sum();
        let mut sample = DeviceSample::absent(Absent::NotSupported);
        sample.memory.total = Ok(Bytes::from_mib(device.total));
        sample.memory.used = Ok(Bytes::from_mib(device.unlisted + listed));
        Ok(sample)
    }

    fn processes(&self, id: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let state = self.state();
        let device = state.device(id)?;
        let process = |(pid, mib): &(u32, u64)| DeviceProcess {
            pid: Pid(*pid),
            kind: DeviceProcessKind::Compute,
            memory: Ok(Bytes::from_mib(*mib)),
            utilization: Err(Absent::NotSupported),
            name: Err(Absent::NotRecorded),
            gpu_instance: device.mig.iter().find(|mig| mig.2.contains(pid)).map(|mig| mig.0),
            compute_instance: None,
        };
        Ok(device.listed.iter().map(process).collect())
    }

    fn mig_instances(&self, id: &DeviceId) -> Result<Vec<MigInstance>> {
        let state = self.state();
        let device = state.device(id)?;
        let mib = |users: &[u32]| {
            let listed = device.listed.iter().filter(|(pid, _)| users.contains(pid));
            listed.map(|(_, mib)| mib).sum::<u64>()
        };
        let instance = |(index, (number, total, users)): (usize, &(u32, u64, Vec<u32>))| {
            let mut memory = DeviceSample::absent(Absent::NotSupported).memory;
            memory.total = Ok(Bytes::from_mib(*total));
            memory.used = Ok(Bytes::from_mib(10 + mib(users)));
            MigInstance {
                index: index as u32,
                uuid: Ok(mig_uuid(*number)),
                gpu_instance: Some(*number),
                compute_instance: Some(0),
                memory,
            }
        };
        Ok(device.mig.iter().enumerate().map(instance).collect())
    }

    fn details(&self, id: &DeviceId, groups: Groups) -> Result<DeviceDetails> {
        let state = self.state();
        let capability = Ok(state.device(id)?.capability);
        let product = Product { compute_capability: capability, ..Product::default() };
        let product = groups.has(Group::Product).then_some(product);
        let modes = Modes { compute_mode: Ok(state.compute_mode), ..Modes::default() };
        let modes = groups.has(Group::Modes).then_some(modes);
        Ok(DeviceDetails { product, modes, ..DeviceDetails::default() })
    }

    fn topology(&self) -> Result<Topology> {
        Ok(self.state().topology.clone())
    }

    fn events(&self, _wait: Duration) -> Result<Vec<DeviceEvent>> {
        Err(Error::new(ErrorKind::Unsupported, "wait for events"))
    }

    fn reset(&self, id: &DeviceId, _token: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {id}")))
    }

    fn helpers(&self) -> Vec<Pid> {
        self.state().helpers.iter().map(|pid| Pid(*pid)).collect()
    }
}

impl Host for World {
    fn origin(&self) -> Origin {
        GpuBackend::origin(self)
    }

    fn hostname(&self) -> Reading<String> {
        Ok("world".into())
    }

    fn sees_host_pids(&self) -> Reading<bool> {
        Ok(self.state().sees_host_pids)
    }

    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        Ok(self.state().files())
    }

    fn holders(&self, _files: &[DeviceFile]) -> Result<HolderScan> {
        let state = self.state();
        if state.hides_holders {
            return Err(Error::new(ErrorKind::Io, "look who holds the device files"));
        }
        let holder = |info: &ProcessInfo| {
            let held = state.held(info.key.pid.0);
            (!held.is_empty()).then_some(Holder { process: info.key, held, through_thread: None })
        };
        let holders = state.processes.values().filter_map(holder).collect();
        Ok(HolderScan { holders, unreadable: Unreadable::default() })
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.state().info(pid)
    }

    fn processes(&self) -> Result<ProcessList> {
        let processes = self.state().processes.values().cloned().collect();
        Ok(ProcessList { processes, unreadable: Unreadable::default() })
    }

    fn own_line(&self) -> Result<Vec<ProcessKey>> {
        let state = self.state();
        let mut line = vec![];
        let mut pid = Pid(SELF);
        while let Ok(info) = state.info(pid) {
            line.push(info.key);
            pid = info.parent.unwrap();
        }
        Ok(line)
    }

    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        self.state().inherited.clone()
    }

    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        self.state().info(pid)?;
        Ok(Box::new(Opened(self.clone(), pid)))
    }
}

struct Opened(World, Pid);

impl ProcessHandle for Opened {
    fn look(&self) -> Result<ProcessInfo> {
        self.0.state().info(self.1)
    }

    fn held(&self, _files: &[DeviceFile]) -> Result<Vec<HeldFile>> {
        let state = self.0.state();
        if state.hides_holders || state.hidden.contains(&self.1.0) {
            let kind = match state.hides_holders {
                true => ErrorKind::Io,
                false => ProcessFault::NotPermitted.into(),
            };
            return Err(Error::new(kind, format!("look at the files of process {}", self.1)));
        }
        Ok(state.held(self.1.0))
    }

    fn has_exited(&self) -> Result<bool> {
        Ok(self.0.state().info(self.1).is_err())
    }

    fn signal(&self, signal: Signal, _token: &ActToken) -> Result<()> {
        let number = if signal == Signal::Kill { 9 } else { 15 };
        self.0.state().signal(self.1.0, number);
        Ok(())
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

impl Launcher for World {
    fn launch(&self, launch: &Launch) -> Result<Box<dyn Job>> {
        let mut state = self.state();
        state.launched.push(launch.clone());
        if let Some(kind) = state.launch_fault {
            return Err(Error::new(kind, "start 'train'"));
        }
        state.add(process(JOB, SELF, "train"));
        Ok(Box::new(Started(self.clone())))
    }

    fn accompany(&self, launch: &Launch) -> Result<Box<dyn Companion>> {
        companion::start(self, launch)
    }
}

struct Started(World);

impl Job for Started {
    fn next(&mut self, at_most: Duration) -> Result<Option<JobEvent>> {
        let mut state = self.0.state();
        let until = state.now + at_most;
        loop {
            if let Some(kind) = state.watch_fault {
                let is_asked = |event: &JobEvent| matches!(event, JobEvent::Asked(_));
                return match state.events.iter().position(is_asked) {
                    Some(place) => Ok(Some(state.events.remove(place))),
                    None => Err(Error::new(kind, "watch job 60")),
                };
            }
            if !state.events.is_empty() {
                return Ok(Some(state.events.remove(0)));
            }
            if state.now >= until {
                return Ok(None);
            }
            state.step(until);
        }
    }

    fn pass(&self, signal: i32) -> Result<()> {
        let mut state = self.0.state();
        state.info(Pid(JOB))?;
        if let Some(kind) = state.pass_fault {
            return Err(Error::new(kind, format!("send signal {signal} to job {JOB}")));
        }
        state.signal(JOB, signal);
        Ok(())
    }

    fn members(&self) -> Result<Vec<ProcessInfo>> {
        let mut state = self.0.state();
        let members = state.members();
        state.hand_over();
        Ok(members)
    }

    fn arrest(
        &self,
        known: &[ProcessKey],
        _: &[Pid],
        at_most: Duration,
        _: &ActToken,
    ) -> Result<Arrested> {
        let mut state = self.0.state();
        if state.no_arrest {
            state.pass(at_most);
            return Ok(Arrested { stopped: Vec::new(), restless: true });
        }
        let mut stopped = state.members();
        stopped.retain(|info| !known.contains(&info.key));
        state.stopped.extend(stopped.iter().map(|info| info.key.pid.0));
        Ok(Arrested { stopped, restless: false })
    }

    fn resume(&self, stopped: &[ProcessKey], _: &ActToken) {
        let mut state = self.0.state();
        state.stopped.retain(|pid| !stopped.iter().any(|key| key.pid.0 == *pid));
    }

    /// Kills nobody: who is there is for the looks to find.
    fn fell(&self, _: &[Pid], _: Duration, _: &ActToken) -> Result<Felled> {
        let none_left = self.0.state().members().is_empty();
        Ok(Felled { none_left, ..Felled::default() })
    }
}
