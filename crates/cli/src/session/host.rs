//! The processes of a session, as a program that was started in it sees them.

use crate::failure::Failure;
use gpu_core::{
    Clock, DeviceFile, DeviceInfo, Error, ErrorKind, HolderScan, Host, Origin, Pid, ProcessFault,
    ProcessHandle, ProcessInfo, ProcessKey, ProcessList, Reading, Result, StartTime, Timestamp,
};
use gpu_host::{LinuxHost, Roots, SystemClock};
use gpu_sim::{Placeholder, Session, Simulation};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;

/// The host of a session: simulated processes, or the real ones that stand for them.
pub(crate) struct SessionHost {
    machine: String,
    simulation: Simulation,
    session: Session,
    /// This machine's processes with the session's device files, where there are placeholders.
    real: Option<LinuxHost>,
}

impl SessionHost {
    /// Opens the session in a folder.
    ///
    /// # Errors
    /// When the folder is not a session's.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let session = Session::read(folder)?;
        let simulation = session.open()?;
        let dev = folder.join(super::DEVICE_FILES);
        let roots = Roots { proc: "/proc".into(), dev, sys: folder.join("sys") };
        let real = (!session.placeholders.is_empty()).then(|| LinuxHost::new(roots));
        Ok(SessionHost { machine: simulation.name(), simulation, session, real })
    }

    /// Returns the host that is asked at this moment.
    fn now(&self) -> &dyn Host {
        match &self.real {
            Some(real) => real,
            None => {
                advance(&self.simulation, &self.session);
                &self.simulation
            }
        }
    }

    /// Returns the session's clock.
    pub(crate) fn clock(&self) -> SessionClock {
        SessionClock {
            simulation: self.simulation.clone(),
            session: self.session.clone(),
            real: SystemClock::new(),
            // The times of real processes are on the real wall clock.
            simulated_wall: self.real.is_none(),
        }
    }

    fn placeholder(&self, pid: Pid) -> Option<&Placeholder> {
        self.session.placeholders.iter().find(|placeholder| placeholder.pid == pid.0)
    }
}

/// Moves a simulation to where the session is by now.
fn advance(simulation: &Simulation, session: &Session) {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    simulation.advance_to(session.elapsed(seconds.saturating_mul(1_000_000_000) + nanos));
}

impl Host for SessionHost {
    fn origin(&self) -> Origin {
        Origin::Simulated(self.machine.clone())
    }

    fn hostname(&self) -> Reading<String> {
        self.simulation.hostname()
    }

    /// The numbers that the simulated driver tells are those of the placeholders here.
    fn sees_host_pids(&self) -> Reading<bool> {
        if self.real.is_some() { Ok(true) } else { self.simulation.sees_host_pids() }
    }

    fn driver_devices(&self) -> Result<Vec<DeviceInfo>> {
        self.simulation.driver_devices()
    }

    fn device_files(&self) -> Result<Vec<DeviceFile>> {
        self.now().device_files()
    }

    fn holders(&self, files: &[DeviceFile]) -> Result<HolderScan> {
        self.now().holders(files)
    }

    fn process(&self, pid: Pid) -> Result<ProcessInfo> {
        self.now().process(pid)
    }

    fn processes(&self) -> Result<ProcessList> {
        self.now().processes()
    }

    fn own_line(&self) -> Result<Vec<ProcessKey>> {
        self.now().own_line()
    }

    /// Opens a placeholder of this very session. Any other real process has nothing to do with
    /// the simulation, and a process that is only simulated cannot be ended from here, since other
    /// programs have simulations of their own.
    fn open(&self, pid: Pid) -> Result<Box<dyn ProcessHandle>> {
        let what = || format!("open process {pid}");
        let Some(real) = &self.real else {
            return Err(Error::new(ErrorKind::Unsupported, what()).with_source(
                "it is only simulated; 'gpuws --sim MACHINE reap' or 'gpuws sim --live' can end it",
            ));
        };
        let Some(placeholder) = self.placeholder(pid) else {
            return Err(Error::new(ProcessFault::NotPermitted, what())
                .with_source("it does not belong to the simulation"));
        };
        let handle = real.open(pid)?;
        let expected = Some(StartTime(placeholder.start_ticks));
        if handle.look()?.key.start != expected {
            return Err(Error::new(ProcessFault::Gone, what()));
        }
        Ok(handle)
    }
}

/// The clock of a session: it passes as fast as the real one, which all its programs share.
pub(crate) struct SessionClock {
    simulation: Simulation,
    session: Session,
    real: SystemClock,
    simulated_wall: bool,
}

impl Clock for SessionClock {
    fn wall(&self) -> Timestamp {
        if !self.simulated_wall {
            return self.real.wall();
        }
        advance(&self.simulation, &self.session);
        self.simulation.wall()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.real.sleep(duration);
    }
}
