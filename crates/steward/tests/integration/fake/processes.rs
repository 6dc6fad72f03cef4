//! The processes of the fake machine: what they are, what they hold, and how they end.

use super::{Device, JOB, SELF, State, World};
use gpu_core::*;
use gpu_nvidia_driver::NvidiaDriver;

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

impl State {
    pub(crate) fn add(&mut self, info: ProcessInfo) {
        self.processes.insert(info.key.pid.0, info);
    }

    /// Ends a process: the caller adopts its children, as a subreaper does, and its memory is freed
    /// a little later.
    pub(crate) fn ends(&mut self, pid: u32, ending: JobExit) {
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

    /// Makes the process of `chain` pass its device on.
    pub(super) fn hand_over(&mut self) {
        let Some(pid) = self.chain.filter(|pid| !self.stopped.contains(pid)) else { return };
        self.add(process(pid + 1, SELF, "chain"));
        self.chain = Some(pid + 1);
        if self.chain_uses_device {
            self.devices[0].open.push(pid + 1);
        }
        self.processes.remove(&pid);
        self.devices[0].open.retain(|user| *user != pid);
    }

    pub(super) fn signal(&mut self, pid: u32, signal: i32) {
        self.signals.push((pid, signal));
        let deaf = self.deaf_to.get(&pid).is_some_and(|deaf| deaf.contains(&signal));
        if let Some(index) = self.successors.iter().position(|(first, _)| *first == pid && !deaf) {
            let (_, next) = self.successors.remove(index);
            self.add(process(next, SELF, "next"));
        }
        if !self.deaf_to.get(&pid).is_some_and(|deaf| deaf.contains(&signal)) {
            self.ends(pid, JobExit::Signal(signal));
        }
    }

    pub(super) fn members(&self) -> Vec<ProcessInfo> {
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
        let is_seen = |info: &&ProcessInfo| {
            !self.is_companion(info.key.pid.0) && !self.unseen.contains(&info.key.pid.0)
        };
        self.processes.values().filter(below).filter(is_seen).cloned().collect()
    }

    pub(super) fn is_companion(&self, pid: u32) -> bool {
        self.accompanied.iter().any(|(companion, _)| *companion == pid)
    }

    /// Returns the running companion programs.
    pub(crate) fn companions(&self) -> Vec<u32> {
        self.processes.keys().copied().filter(|pid| self.is_companion(*pid)).collect()
    }

    pub(super) fn info(&self, pid: Pid) -> Result<ProcessInfo> {
        let found = self.processes.get(&pid.0).cloned();
        found.ok_or_else(|| Error::new(ProcessFault::Gone, format!("inspect process {pid}")))
    }

    pub(super) fn held(&self, pid: u32, files: &[DeviceFile]) -> Vec<HeldFile> {
        let has = |device: &Device| {
            device.open.contains(&pid) || device.listed.iter().any(|(user, _)| *user == pid)
        };
        let held = self.files().into_iter().zip(&self.devices).filter(|(_, device)| has(device));
        let mapped = Access::OPEN_FOR_WRITING | Access::MAPPED;
        let mut devices: Vec<HeldFile> =
            held.map(|(file, _)| HeldFile::of(&file, mapped, vec![3])).collect();
        NvidiaDriver.find_memory_use(&mut devices, &|_| None);
        let wanted = |held: &HeldFile| files.iter().any(|file| file.path == held.path);
        let others = self.other_files.iter().filter(|(user, held)| *user == pid && wanted(held));
        devices.into_iter().filter(wanted).chain(others.map(|(_, held)| held.clone())).collect()
    }
}

impl ProcessTable for World {
    fn origin(&self) -> Origin {
        GpuBackend::origin(self)
    }

    fn hostname(&self) -> Reading<String> {
        Ok("world".into())
    }

    fn sees_host_pids(&self) -> Reading<bool> {
        Ok(self.state().sees_host_pids)
    }

    fn is_root(&self) -> Reading<bool> {
        Ok(true)
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.state().info(pid)
    }

    fn processes(&self) -> Result<ProcessList> {
        let processes = self.state().processes.values().cloned().collect();
        Ok(ProcessList { processes, unreadable: Unreadable::default() })
    }

    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
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

impl DeviceFiles for World {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        Ok(self.state().files())
    }

    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        let state = self.state();
        if state.hides_holders {
            return Err(Error::new(ErrorKind::Io, "look who holds the device files"));
        }
        let holder = |info: &ProcessInfo| {
            let held = state.held(info.key.pid.0, files);
            (!held.is_empty()).then_some(Holder { process: info.key, held, through_thread: None })
        };
        let holders = state.processes.values().filter_map(holder).collect();
        Ok(HolderScan { holders, ..HolderScan::default() })
    }
}

impl DriverView for World {
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    /// The host has 64,000 MiB, which only the devices' processes use.
    fn host_memory(&self, _: Option<u32>) -> Result<HostMemory> {
        let state = self.state();
        let listed = state.devices.iter().flat_map(|device| &device.listed);
        let total = Bytes::from_mib(64_000);
        let free = total.saturating_sub(Bytes::from_mib(listed.map(|(_, mib)| mib).sum()));
        Ok(HostMemory { total, free, available: free, host_use: Ok(Bytes(0)) })
    }

    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        Ok(self.state().logged.clone())
    }
}

struct Opened(World, Pid);

impl ProcessHandle for Opened {
    fn info(&self) -> Result<ProcessInfo> {
        let state = self.0.state();
        if state.unseen.contains(&self.1.0) {
            let what = format!("inspect process {}", self.1);
            return Err(Error::new(ProcessFault::NotPermitted, what));
        }
        state.info(self.1)
    }

    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>> {
        let state = self.0.state();
        if state.hides_holders || state.hidden.contains(&self.1.0) {
            let kind =
                if state.hides_holders { ErrorKind::Io } else { ProcessFault::NotPermitted.into() };
            return Err(Error::new(kind, format!("inspect the files of process {}", self.1)));
        }
        Ok(state.held(self.1.0, files))
    }

    fn has_exited(&self) -> Result<bool> {
        Ok(self.0.state().info(self.1).is_err())
    }

    fn signal(&self, signal: Signal, _token: &ActToken) -> Result<()> {
        let number = if signal == Signal::Kill { 9 } else { 15 };
        if let Some(kind) = self.0.state().signal_fault {
            return Err(Error::new(kind, format!("send {signal} to process {}", self.1)));
        }
        self.0.state().signal(self.1.0, number);
        Ok(())
    }
}
