//! A served session: its machine, the time, and the pending faults.

use crate::clock;
use crate::code::{Answer, Code};
use crate::external_process::ExternalProcesses;
use crate::placeholders::Placeholders;
use crate::view::View;
use gpu_core::{Bytes, DeviceEvent, DeviceFault, Fault, GpuBackend, Pid, ProcessInfo};
use gpu_sim::{CallEffect, CallFault, Event, Holding, Process, Session, Simulation};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a snapshot of the machine is valid.
const FRESH: Duration = Duration::from_millis(20);
/// The PID of the first process created by a fault.
const FIRST_NEW_PID: u32 = 900_001;
/// The memory of each such process.
const NEW_PROCESS_MEMORY: Bytes = Bytes::from_mib(64);

pub(crate) struct Running {
    dir: PathBuf,
    session: Session,
    /// The number of calls that matched each of the session's faults.
    seen: Vec<u64>,
    machine: Option<Machine>,
}

/// Its machine, opened when it is first needed.
struct Machine {
    simulation: Simulation,
    stand_ins: Placeholders,
    externals: ExternalProcesses,
    view: Option<(Duration, Arc<View>)>,
    next_pid: u32,
}

/// The session's faults for one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    late: Duration,
    hangs: bool,
    returns: Option<u32>,
}

impl Effects {
    /// Returns whether the caller must wait.
    pub(crate) fn waits(self) -> bool {
        self.hangs || self.late > Duration::ZERO
    }

    /// Delays the caller, forever if the call hangs.
    pub(crate) fn wait(self) {
        clock::sleep(self.late);
        if self.hangs {
            clock::hang();
        }
    }

    /// # Errors
    /// The code of a fault.
    pub(crate) fn code(self) -> Answer {
        match self.returns {
            None => Ok(()),
            Some(code) => Err(Code(code)),
        }
    }
}

impl Running {
    pub(crate) fn new(dir: PathBuf, session: Session) -> Self {
        let seen = vec![0; session.faults.len()];
        Running { dir, session, seen, machine: None }
    }

    /// Returns whether this serves that session, unchanged.
    pub(crate) fn serves(&self, dir: &Path, session: &Session) -> bool {
        self.dir == dir && self.session == *session
    }

    /// Returns the name of the machine, which need not have started.
    pub(crate) fn machine_name(&self) -> Option<String> {
        self.session.machine_name()
    }

    /// Returns the simulation, which the first call starts.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub(crate) fn simulation(&mut self) -> gpu_core::Result<&Simulation> {
        Ok(&self.machine()?.simulation)
    }

    fn machine(&mut self) -> gpu_core::Result<&mut Machine> {
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => Machine::open(&self.dir, &self.session)?,
        };
        Ok(self.machine.insert(machine))
    }

    /// Returns the time since the session began.
    fn elapsed(&self) -> Duration {
        let now = clock::since_boot().as_nanos();
        self.session.elapsed(now.try_into().unwrap_or(u64::MAX))
    }

    /// Applies the session's faults for a call, except for delays.
    pub(crate) fn enter(&mut self, function: &str, gpu: Option<u32>) -> Answer<Effects> {
        let late = Duration::from_micros(self.session.latency_us);
        let mut effects = Effects { late, ..Effects::default() };
        for number in 0..self.session.faults.len() {
            let (Some(fault), Some(seen)) =
                (self.session.faults.get(number), self.seen.get_mut(number))
            else {
                continue;
            };
            if !concerns(fault, function, gpu) {
                continue;
            }
            *seen += 1;
            let until = fault.times.map_or(u64::MAX, |times| fault.from.saturating_add(times));
            if !(fault.from..until).contains(seen) {
                continue;
            }
            match fault.effect {
                CallEffect::Returns(code) => effects.returns = Some(code),
                CallEffect::DelayMs(millis) => effects.late += Duration::from_millis(millis),
                CallEffect::Hangs => effects.hangs = true,
                CallEffect::LosesGpu(gpu) => self.happen(|_| lost(gpu))?,
                CallEffect::AddsProcess(gpu) => self.happen(|machine| machine.newcomer(gpu))?,
            }
        }
        Ok(effects)
    }

    fn happen(&mut self, event: impl FnOnce(&mut Machine) -> Event) -> Answer {
        let elapsed = self.elapsed();
        let machine = self.machine().map_err(|_| Code::DRIVER_NOT_LOADED)?;
        machine.reach(elapsed);
        let event = event(machine);
        machine.happen(event);
        Ok(())
    }

    /// Returns a snapshot of the machine, at most [`FRESH`] old.
    pub(crate) fn view(&mut self) -> Answer<Arc<View>> {
        let elapsed = self.elapsed();
        let machine = self.machine().map_err(|_| Code::DRIVER_NOT_LOADED)?;
        Ok(machine.view(elapsed))
    }

    /// Returns the events of devices since the last call.
    pub(crate) fn reports(&mut self) -> Answer<Vec<DeviceEvent>> {
        let elapsed = self.elapsed();
        let machine = self.machine().map_err(|_| Code::DRIVER_NOT_LOADED)?;
        machine.reach(elapsed);
        machine.simulation.events(Duration::ZERO).map_err(|error| error.kind().into())
    }
}

/// Returns whether a fault applies to a call.
fn concerns(fault: &CallFault, function: &str, gpu: Option<u32>) -> bool {
    let function = fault.function == function || fault.function == "*";
    function && fault.gpu.is_none_or(|index| gpu == Some(index))
}

fn lost(gpu: u32) -> Event {
    let text = format!("query GPU {gpu}: it is lost");
    Event::Fails(gpu, Fault { kind: DeviceFault::Lost.into(), text })
}

impl Machine {
    fn open(dir: &Path, session: &Session) -> gpu_core::Result<Self> {
        let simulation = session.open()?;
        let mut stand_ins = Placeholders::new(&session.placeholders);
        // The memory of a process that ended before the first snapshot is already free.
        for pid in stand_ins.ended(clock::since_boot) {
            simulation.happen(Event::Exit(pid));
        }
        let externals = ExternalProcesses::new(dir, session);
        Ok(Machine { simulation, stand_ins, externals, view: None, next_pid: FIRST_NEW_PID })
    }

    /// Advances time, including arrivals and departures of real processes.
    fn reach(&mut self, elapsed: Duration) {
        self.simulation.advance_to(elapsed);
        self.follow(elapsed);
    }

    /// Ends processes whose real processes have ended, and adds newly arrived ones.
    fn follow(&mut self, elapsed: Duration) {
        let mut departed = self.stand_ins.ended(clock::since_boot);
        let mut changes = self.externals.changes(clock::since_boot);
        departed.append(&mut changes.departed);
        if departed.is_empty() && changes.arrived.is_empty() {
            return;
        }
        self.simulation.advance_to(elapsed);
        for pid in departed {
            self.happen(Event::Exit(pid));
        }
        for external in changes.arrived {
            self.simulation.external(&external);
            self.view = None;
        }
    }

    fn happen(&mut self, event: Event) {
        self.simulation.happen(event);
        self.view = None;
    }

    fn view(&mut self, elapsed: Duration) -> Arc<View> {
        self.follow(elapsed);
        match &self.view {
            Some((taken, view)) if elapsed.saturating_sub(*taken) < FRESH => Arc::clone(view),
            _ => {
                self.simulation.advance_to(elapsed);
                let view = Arc::new(View::take(&self.simulation));
                self.view = Some((elapsed, Arc::clone(&view)));
                view
            }
        }
    }

    /// Returns the event that starts a process on a device, caused by a fault.
    fn newcomer(&mut self, gpu: u32) -> Event {
        let info = ProcessInfo::from_name(Pid(self.next_pid), "newcomer");
        self.next_pid += 1;
        let mut process = Process::new(info);
        process.holdings.push(Holding::new(gpu, NEW_PROCESS_MEMORY));
        Event::Start(Box::new(process))
    }
}
