//! The operating system: `Host` and the handle of one process.

use crate::faults::Call;
use crate::machine::Process;
use crate::process_table::{Living, Serial};
use crate::simulation::Simulation;
use crate::state::{SentSignal, State};
use gpu_core::{
    Absent, Access, ActToken, DeviceFile, DeviceFiles, DeviceInfo, DriverMessage, DriverView,
    Error, HeldFile, Holder, HolderScan, HostMemory, KernelDriver, LeaseId, MemoryUse, Origin, Pid,
    ProcessDetail, ProcessFault, ProcessHandle, ProcessInfo, ProcessKey, ProcessList, ProcessState,
    ProcessTable, Reading, Result, Signal, UnreadProcess,
};
use gpu_nvidia_driver::NvidiaDriver;
use std::collections::BTreeMap;

impl ProcessTable for Simulation {
    fn origin(&self) -> Origin {
        Origin::Simulated(self.name())
    }

    fn hostname(&self) -> Reading<String> {
        let mut state = self.lock();
        state.enter(Call::Hostname).map_err(|error| error.kind().absent())?;
        state.machine.hostname.clone()
    }

    fn sees_host_pids(&self) -> Reading<bool> {
        let mut state = self.lock();
        state.enter(Call::SeesHostPids).map_err(|error| error.kind().absent())?;
        state.machine.sees_host_pids
    }

    fn is_root(&self) -> Reading<bool> {
        Ok(self.lock().machine.viewer.uid == 0)
    }

    fn account(&self, name: &str) -> Reading<u32> {
        self.lock().accounts.get(name).copied().ok_or(Absent::NotFound)
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.call(Call::Process, |state| {
            let serial = state.seen_by_pid(pid)?;
            let living = alive(state, serial, pid)?;
            state.info(living)
        })
    }

    /// Returns no more detail than requested, like a real machine.
    fn processes_of(&self, pids: &[Pid], detail: ProcessDetail) -> Vec<Result<ProcessInfo>> {
        let read = |pid: &Pid| self.process(*pid).map(|info| info.in_detail(detail));
        pids.iter().map(read).collect()
    }

    fn processes(&self) -> Result<ProcessList> {
        self.call(Call::Processes, |state| {
            let mut list = ProcessList::default();
            for (_, living) in state.seen().into_values() {
                match state.info(living) {
                    Ok(info) => list.processes.push(info),
                    Err(error) => list.unreadable.count(error.kind().absent()),
                }
            }
            Ok(list)
        })
    }

    /// A job on a simulated machine inherits no files.
    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        Vec::new()
    }

    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        self.call(Call::OwnAncestry, |state| {
            let line = state.own_ancestry().into_iter();
            let line = line.filter_map(|serial| state.living.get(serial));
            let seen = line.filter(|living| state.seen_as(&living.process).is_some());
            Ok(seen.map(|living| state.key(&living.process)).collect())
        })
    }

    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        self.call(Call::Open, |state| {
            let serial = state.seen_by_pid(pid)?;
            let handle = SimulatedProcess { simulation: self.clone(), serial, pid };
            Ok(Box::new(handle) as Box<dyn ProcessHandle>)
        })
    }
}

impl DeviceFiles for Simulation {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        self.call(Call::DeviceFiles, |state| Ok(state.machine.files.clone()))
    }

    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        self.call(Call::Holders, |state| {
            if let Some(fault) = &state.machine.holders_fault {
                return Err(crate::devices::failure(fault));
            }
            let mut scan = HolderScan {
                unreadable: state.machine.unreadable.clone(),
                ..HolderScan::default()
            };
            let wanted = Wanted::of(state, files);
            for (_, living) in state.seen().into_values() {
                let process = &living.process;
                if process.hidden.is_some() {
                    continue;
                }
                if !state.may_access(process) {
                    scan.unreadable.count(Absent::NotPermitted);
                    if scan.unread.len() < HolderScan::NAMED {
                        scan.unread.push(UnreadProcess {
                            pid: state.key(process).pid,
                            name: Ok(process.info.name.clone()),
                            user: process.info.user.clone(),
                            reason: Absent::NotPermitted,
                            open_files_read: false,
                        });
                    }
                    continue;
                }
                let held = wanted.held_by(process);
                if !held.is_empty() {
                    let key = state.key(process);
                    scan.holders.push(Holder {
                        process: key,
                        held,
                        through_thread: thread(key, process),
                    });
                }
            }
            Ok(scan)
        })
    }
}

impl DriverView for Simulation {
    /// A loaded kernel module lists its devices, whatever the library reports.
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        self.call(Call::DriverDevices, |state| Ok(state.module_devices()))
    }

    fn host_memory(&self, node: Option<u32>) -> Result<HostMemory> {
        self.lock().host_memory(node)
    }

    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        self.call(Call::DriverMessages, |state| state.driver_messages())
    }
}

/// An opened process; the handle never reaches another process with the same PID.
#[derive(Clone, Debug)]
struct SimulatedProcess {
    simulation: Simulation,
    serial: Serial,
    pid: Pid,
}

impl ProcessHandle for SimulatedProcess {
    fn info(&self) -> Result<ProcessInfo> {
        self.simulation.call(Call::Info, |state| {
            let living = alive(state, self.serial, self.pid)?;
            state.info(living)
        })
    }

    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>> {
        self.simulation.call(Call::HeldFiles, |state| {
            let living = alive(state, self.serial, self.pid)?;
            if !state.may_access(&living.process) {
                return Err(not_permitted("inspect the files of", self.pid));
            }
            Ok(Wanted::of(state, files).held_by(&living.process))
        })
    }

    fn has_exited(&self) -> Result<bool> {
        self.simulation
            .call(Call::HasExited, |state| Ok(alive(state, self.serial, self.pid).is_err()))
    }

    fn signal(&self, signal: Signal, _token: &ActToken) -> Result<()> {
        self.simulation.call(Call::Signal, |state| {
            let living = alive(state, self.serial, self.pid)?;
            let process = &living.process;
            if !state.may_access(process) {
                return Err(not_permitted("signal", self.pid));
            }
            let sent = SentSignal {
                at: state.now,
                process: state.key(process),
                name: process.info.name.clone(),
                signal,
                held_device_file: !process.files.is_empty(),
            };
            state.signals.push(sent);
            state.acted = true;
            state.deliver(self.serial, signal);
            Ok(())
        })
    }
}

fn not_permitted(what: &str, pid: Pid) -> Error {
    Error::new(ProcessFault::NotPermitted, format!("{what} process {pid}"))
}

/// Returns a live process. A process with a zombie first thread lives as long as any of its other
/// threads.
fn alive(state: &State, serial: Serial, pid: Pid) -> Result<&Living> {
    let living = state.living.get(serial).filter(|living| !living.process.has_ended());
    living.ok_or_else(|| Error::new(ProcessFault::Gone, format!("find process {pid}")))
}

/// The files to search for, by their paths on the machine.
struct Wanted<'a> {
    state: &'a State,
    files: &'a [DeviceFile],
    by_path: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Wanted<'a> {
    fn of(state: &'a State, files: &'a [DeviceFile]) -> Self {
        let mut by_path: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let known = &state.machine.files;
        for (index, asked) in files.iter().enumerate() {
            let path = match known.iter().find(|file| asked.id.is_ok() && file.id == asked.id) {
                Some(file) => &file.path,
                None => &asked.path,
            };
            by_path.entry(path).or_default().push(index);
        }
        Wanted { state, files, by_path }
    }

    /// Returns the files that a process has, in the order of the request.
    fn held_by(&self, process: &Process) -> Vec<HeldFile> {
        let mut found: Vec<(usize, usize)> = Vec::with_capacity(process.files.len());
        for (nth, own) in process.files.iter().enumerate() {
            let indexes = self.by_path.get(&*own.path).into_iter().flatten();
            found.extend(indexes.map(|index| (*index, nth)));
        }
        found.sort_unstable();
        found.dedup_by_key(|(index, _)| *index);
        let numbered = self.state.card_descriptors(process);
        let held = |(index, nth): (usize, usize)| {
            let (asked, own) = (&self.files[index], &process.files[nth]);
            let mut descriptors = own.descriptors.clone();
            descriptors.extend(numbered.iter().filter(|own| own.file == nth).map(|own| own.number));
            if descriptors.is_empty() && own.access.contains(Access::OPEN) {
                descriptors = vec![u32::try_from(nth).unwrap_or(u32::MAX).saturating_add(3)];
            }
            // A recording has the clients that the kernel counted.
            let clients = own.clients.clone();
            let memory = if clients.is_empty() { MemoryUse::None } else { own.memory };
            HeldFile { memory, clients, ..HeldFile::of(asked, own.access, descriptors) }
        };
        let mut held: Vec<HeldFile> = found.into_iter().map(held).collect();
        NvidiaDriver.find_memory_use(&mut held, &|_| None);
        for driver in &self.state.card_drivers {
            driver.find_memory_use(&mut held, &|number| {
                self.state.descriptor_text(process, number).ok()
            });
        }
        held
    }
}

/// Returns the live thread that shows the files of a process with a zombie leader.
fn thread(key: ProcessKey, process: &Process) -> Option<Pid> {
    let zombie = process.info.state == Ok(ProcessState::Zombie);
    zombie.then(|| Pid(key.pid.0.saturating_add(1)))
}
