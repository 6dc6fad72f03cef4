//! The processes of a session, as a program within it sees them.

use super::{LiveError, members, placeholders};
use crate::{Machine, Seed, Session, Simulation};
use gpu_core::{
    Absent, ActToken, Clock, DeviceFile, DeviceFiles, DeviceId, DeviceInfo, DriverMessage,
    DriverView, Environment, Error, ErrorKind, FileActivity, HeldFile, HolderScan, Host,
    HostMemory, LeaseId, Origin, Pid, ProcessDetail, ProcessFault, ProcessHandle, ProcessInfo,
    ProcessKey, ProcessList, ProcessTable, Reading, Result, Signal, Timestamp, Uids,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The host of a session: simulated processes, or real ones, which are placeholders and external
/// processes.
pub struct SessionHost {
    /// The directory of the session, with symbolic links resolved.
    dir: PathBuf,
    session: Session,
    processes: Processes,
    /// The machine whose driver messages are shown together with real processes; opened for the
    /// first read.
    log: OnceLock<Moving>,
    clock: Arc<dyn Clock>,
}

enum Processes {
    Simulated(Moving),
    /// This machine's processes, with the session's device files.
    Real(Box<dyn Host>),
}

/// A simulation that advances with the session.
#[derive(Clone)]
struct Moving {
    simulation: Simulation,
    session: Session,
}

impl Moving {
    /// Returns the simulation, advanced to the current time.
    fn now(&self) -> &Simulation {
        self.simulation.advance_to(self.session.age());
        &self.simulation
    }
}

impl SessionHost {
    /// Opens the session in a directory. `real` returns this machine's processes, with the device
    /// files below its first argument and the driver's entries below its second. `clock` is this
    /// machine's clock.
    ///
    /// # Errors
    /// If the directory is not a session's, or its path is not absolute: a relative path would name
    /// another directory in another working directory.
    pub fn open(
        dir: &Path,
        real: impl FnOnce(PathBuf, PathBuf) -> Box<dyn Host>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LiveError> {
        if !dir.is_absolute() {
            return Err(LiveError::Relative(dir.to_owned()));
        }
        // Resolved once, so that a link that changes later has no effect.
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let session = Session::read(&dir)?;
        let processes = if session.is_live() {
            let dev = dir.join(Session::DEVICE_FILES);
            Processes::Real(real(dev, dir.join("sys")))
        } else {
            Processes::Simulated(Moving { simulation: session.open()?, session: session.clone() })
        };
        Ok(SessionHost { dir, session, processes, log: OnceLock::new(), clock })
    }

    /// Returns the directory that the session was read from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether its processes are real. Only real processes can be ended.
    pub fn has_real_processes(&self) -> bool {
        matches!(self.processes, Processes::Real(_))
    }

    /// Returns the current host.
    fn now(&self) -> &dyn Host {
        match &self.processes {
            Processes::Simulated(moving) => moving.now(),
            Processes::Real(real) => &**real,
        }
    }

    /// Returns the session's clock.
    pub fn clock(&self) -> SessionClock {
        // The start times of real processes are on the real wall clock.
        let wall = match &self.processes {
            Processes::Simulated(moving) => Some(moving.clone()),
            Processes::Real(_) => None,
        };
        SessionClock { wall, real: Arc::clone(&self.clock) }
    }
}

impl SessionHost {
    /// Returns the machine that logs the driver's messages; without its processes it is small.
    fn log(&self) -> Result<&Moving> {
        if let Some(known) = self.log.get() {
            return Ok(known);
        }
        let mut machine = Machine::named(&self.session.machine)?;
        machine.processes = Vec::new();
        let simulation = Simulation::start(machine, Seed(self.session.seed));
        let moving = Moving { simulation, session: self.session.clone() };
        Ok(self.log.get_or_init(|| moving))
    }

    /// Returns a process that was read in this detail, as a program in the session sees it.
    fn as_seen_here(&self, process: ProcessInfo, detail: ProcessDetail) -> ProcessInfo {
        let mut process = in_its_part(process);
        if self.has_real_processes() && detail != ProcessDetail::Whole {
            // In an outline, placeholders cannot be distinguished from other processes.
            process.started_at = Err(Absent::NotRecorded);
        }
        process
    }
}

impl ProcessTable for SessionHost {
    fn origin(&self) -> Origin {
        Origin::Simulated(self.session.machine_name().unwrap_or_else(|| "?".to_owned()))
    }

    fn hostname(&self) -> Reading<String> {
        self.now().hostname()
    }

    /// The simulated driver reports the PIDs of the placeholders.
    fn sees_host_pids(&self) -> Reading<bool> {
        match &self.processes {
            Processes::Simulated(moving) => moving.simulation.sees_host_pids(),
            Processes::Real(_) => Ok(true),
        }
    }

    fn is_root(&self) -> Reading<bool> {
        self.now().is_root()
    }

    fn account(&self, name: &str) -> Reading<u32> {
        self.now().account(name)
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.now().process(pid).map(in_its_part)
    }

    fn processes_of(&self, pids: &[Pid], detail: ProcessDetail) -> Vec<Result<ProcessInfo>> {
        let found = self.now().processes_of(pids, detail).into_iter();
        found.map(|process| Ok(self.as_seen_here(process?, detail))).collect()
    }

    fn processes_again(
        &self,
        known: Vec<Arc<ProcessInfo>>,
        detail: ProcessDetail,
    ) -> Vec<Result<Arc<ProcessInfo>>> {
        let again = self.now().processes_again(known.clone(), detail);
        let seen_here = |(process, known): (Result<Arc<ProcessInfo>>, &_)| match process {
            Ok(process) if !Arc::ptr_eq(&process, known) => {
                Ok(Arc::new(self.as_seen_here(Arc::unwrap_or_clone(process), detail)))
            }
            process => process,
        };
        again.into_iter().zip(&known).map(seen_here).collect()
    }

    fn processes(&self) -> Result<ProcessList> {
        let mut list = self.now().processes()?;
        list.processes = list.processes.into_iter().map(in_its_part).collect();
        Ok(list)
    }

    fn own_ancestry(&self) -> Result<Vec<ProcessKey>> {
        self.now().own_ancestry()
    }

    fn inherited_leases(&self) -> Vec<(LeaseId, u32)> {
        self.now().inherited_leases()
    }

    /// Opens a process of this session. Any other real process is not part of the simulation. A
    /// process that is only simulated cannot be ended from here, because each program has its own
    /// copy of the simulation.
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        let what = || format!("open process {pid}");
        let Processes::Real(real) = &self.processes else {
            return Err(Error::new(ErrorKind::Unsupported, what()).with_source(
                "it is simulated; use 'gpuws --sim MACHINE reap' or 'gpuws sim --live'",
            ));
        };
        let handle = real.open(pid)?;
        if members::belongs(&*handle, &**real, &self.session, &self.dir)? {
            Ok(Box::new(Actor(handle)))
        } else {
            Err(Error::new(ProcessFault::NotPermitted, what())
                .with_source("it is not part of the simulation"))
        }
    }
}

impl DeviceFiles for SessionHost {
    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        self.now().device_files()
    }

    fn file_activity(&self, files: &[DeviceFile]) -> Option<Box<dyn FileActivity>> {
        self.now().file_activity(files)
    }

    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        self.now().holders(files)
    }
}

impl DriverView for SessionHost {
    /// The devices are those of the simulated machine. The real driver's devices must stay hidden.
    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        match &self.processes {
            Processes::Simulated(moving) => moving.simulation.driver_devices(),
            Processes::Real(_) => self.session.open()?.driver_devices(),
        }
    }

    /// The messages are those of the simulated machine, with their age there. The real driver's
    /// messages must stay hidden.
    fn driver_messages(&self) -> Result<Vec<DriverMessage>> {
        match &self.processes {
            Processes::Simulated(moving) => moving.now().driver_messages(),
            Processes::Real(_) => {
                let moving = self.log()?;
                let (there, here) = (moving.now().wall(), self.clock.wall());
                let mut messages = moving.simulation.driver_messages()?;
                for message in &mut messages {
                    let age = u64::try_from(there.since(message.at).as_millis());
                    message.at = Timestamp(here.0.saturating_sub(age.unwrap_or(u64::MAX)));
                }
                Ok(messages)
            }
        }
    }

    fn host_memory(&self, node: Option<u32>) -> Result<HostMemory> {
        match &self.processes {
            Processes::Simulated(moving) => moving.now().host_memory(node),
            Processes::Real(_) => self.session.open()?.host_memory(node),
        }
    }

    fn sleeping_devices(&self) -> Option<Vec<DeviceId>> {
        self.now().sleeping_devices()
    }
}

/// Returns a process without the placeholder's executable, signal mask and age, which say nothing
/// about the simulated process.
fn in_its_part(mut info: ProcessInfo) -> ProcessInfo {
    if info.executable.as_ref().is_ok_and(|program| program.name() == placeholders::ACTOR) {
        info.executable = Err(Absent::NotRecorded);
        info.ignores_hangup = Err(Absent::NotRecorded);
        info.started_at = Err(Absent::NotRecorded);
    }
    info
}

/// A handle of a process of the session that hides the placeholder's executable.
struct Actor(Box<dyn ProcessHandle>);

impl ProcessHandle for Actor {
    fn info(&self) -> Result<ProcessInfo> {
        self.0.info().map(in_its_part)
    }

    fn uids(&self) -> Result<Uids> {
        self.0.uids()
    }

    fn held(&self, files: &[DeviceFile]) -> Result<Vec<HeldFile>> {
        self.0.held(files)
    }

    fn environment(&self) -> Result<Environment> {
        self.0.environment()
    }

    fn has_exited(&self) -> Result<bool> {
        self.0.has_exited()
    }

    fn signal(&self, signal: Signal, token: &ActToken) -> Result<()> {
        self.0.signal(signal, token)
    }
}

/// The clock of a session. It runs at the rate of the real clock, which all programs of the session
/// share.
pub struct SessionClock {
    wall: Option<Moving>,
    real: Arc<dyn Clock>,
}

impl Clock for SessionClock {
    fn wall(&self) -> Timestamp {
        match &self.wall {
            Some(moving) => moving.now().wall(),
            None => self.real.wall(),
        }
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.real.sleep(duration);
    }
}
