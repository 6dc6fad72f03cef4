//! The choice of adapters: a simulated machine when asked for by name, this machine otherwise.
//! Never one in place of the other; and within a session, devices and processes are those of the
//! session and no others.

use crate::no_devices::NoDevices;
use crate::session_devices::SessionDevices;
use crate::{Cause, MachineError};
use gpu_core::{
    Absent, Clock, DeviceFile, Error, ErrorKind, GpuBackend, Groups, Host, Journal, Snapshot,
};
use gpu_host::{
    FileJournal, FileLeaseStore, LinuxHost, PathTrust, Place, Roots, SafeGpuFiles, SystemClock,
    TrustedDir,
};
use gpu_nvidia::{Helper, NvmlChild, Waiting};
use gpu_reaper::Ports;
use gpu_sim::Simulation;
use gpu_sim::live::{self, SessionHost};
use gpu_steward::DeviceLeases;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A machine to look at, behind its ports.
pub struct Source {
    /// Its devices.
    pub backend: Box<dyn GpuBackend>,
    /// Its processes.
    pub host: Box<dyn Host>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    simulation: Option<Simulation>,
    /// The directory of the session that this program was started in.
    session: Option<PathBuf>,
    /// Processes of this machine can be ended: those of a session can only where real ones stand
    /// for them.
    pub can_end_processes: bool,
    /// A directory without leases, gone at the end.
    nowhere: OnceCell<TempDir>,
    tell: fn(&str),
}

/// The variable that names the directory of the leases.
pub const CLAIMS: &str = "GPUWS_CLAIMS";

/// The directory of the leases in that of a session.
const SESSION_CLAIMS: &str = "claims";

/// What the audit log is called in its directory.
const AUDIT_LOG: &str = "audit.jsonl";

/// Returns the directory of the leases that the environment names.
fn named_claims() -> Option<PathBuf> {
    std::env::var_os(CLAIMS).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Makes sure that nobody but root and the user can exchange a directory of leases that is named.
/// One that cannot be opened is the directory's own fault, and told as that.
fn check_claims(dir: &Path) -> Result<(), MachineError> {
    let failed = |error| MachineError::io("find the lease directory", error);
    let absolute = std::path::absolute(dir).map_err(failed)?;
    match TrustedDir::open(&absolute, PathTrust::Protected) {
        Err(error) if error.kind() == ErrorKind::Invalid => Err(MachineError::new(error)
            .with_hint("whoever can replace the lease directory can cause double grants")),
        _ => Ok(()),
    }
}

/// Returns where this machine's processes and devices are seen.
pub fn roots() -> Roots {
    Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() }
}

/// The word that makes this program the child that asks NVML; nobody types it.
const HELPER: &str = "nvml-helper";

/// Asks NVML for the gpuws that started this one, where it did, and does nothing else.
pub(crate) fn serve_where_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|word| word == *HELPER) {
        let library = arguments.next().map(PathBuf::from);
        gpu_nvidia::serve(library.as_deref());
    }
}

/// Which machine to open, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The simulated machine: its name, a directory, or a recording. None for this one.
    pub sim: Option<&'a Path>,
    /// The NVML library in place of the installed one.
    pub nvml: Option<&'a Path>,
    /// How long the driver is waited for.
    pub deadline: Duration,
    /// Told what is waited for, where that takes some seconds.
    pub tell: fn(&str),
}

impl<'a> Options<'a> {
    /// Returns those of this machine: half a minute for the driver, and nobody who is told.
    pub fn this_machine() -> Self {
        Options { sim: None, nvml: None, deadline: Duration::from_secs(30), tell: |_| {} }
    }

    /// Returns those of a simulated machine.
    pub fn simulated(machine: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Options { sim: Some(machine.as_ref()), ..Options::this_machine() }
    }
}

impl Source {
    /// Lets go of the machine where the program ends now: its memory goes with it, and to free
    /// that piece by piece first takes a twentieth of a whole look at many processes.
    pub fn leave(self) {
        std::mem::forget((self.host, self.clock, self.simulation));
    }

    /// Opens the machine that the options name.
    ///
    /// # Errors
    /// When the simulated machine does not exist or is not well formed.
    pub fn open(options: &Options<'_>) -> Result<Self, MachineError> {
        Source::prepared(options, |backend| backend)
    }

    /// Opens the machine that the options name, to look next at these groups: the driver is
    /// asked meanwhile. `once`: nothing else will be asked.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub fn open_to_look(
        options: &Options<'_>,
        groups: Groups,
        once: bool,
    ) -> Result<Self, MachineError> {
        Source::prepared(options, |backend| {
            let backend = if once { backend.for_one_query() } else { backend };
            backend.request_snapshot(groups);
            backend
        })
    }

    fn prepared(
        options: &Options<'_>,
        prepare: impl FnOnce(NvmlChild) -> NvmlChild,
    ) -> Result<Self, MachineError> {
        match options.sim {
            Some(machine) => Ok(Source::simulated(Simulation::named(machine)?)),
            None => Source::live(options, prepare),
        }
    }

    /// Returns the processes of this machine, without a device.
    pub fn bare() -> Self {
        Source::of_this_machine(Box::new(NoDevices))
    }

    /// Returns the processes of this machine with devices.
    fn of_this_machine(backend: Box<dyn GpuBackend>) -> Self {
        Source {
            backend,
            host: Box::new(LinuxHost::new(roots())),
            clock: Arc::new(SystemClock::new()),
            simulation: None,
            session: None,
            can_end_processes: true,
            nowhere: OnceCell::new(),
            tell: |_| {},
        }
    }

    /// Returns a simulated machine.
    pub fn simulated(simulation: Simulation) -> Self {
        Source {
            backend: Box::new(simulation.clone()),
            host: Box::new(simulation.clone()),
            clock: Arc::new(simulation.clone()),
            simulation: Some(simulation),
            session: None,
            can_end_processes: true,
            nowhere: OnceCell::new(),
            tell: |_| {},
        }
    }

    fn live(
        options: &Options<'_>,
        prepare: impl FnOnce(NvmlChild) -> NvmlChild,
    ) -> Result<Self, MachineError> {
        if let Some(library) = options.nvml {
            std::fs::metadata(library).map_err(|error| {
                let what = format!("find the NVML '{}'", library.display());
                Error::new(ErrorKind::Invalid, what).with_source(error)
            })?;
        }
        let own = std::env::current_exe();
        let own = own.map_err(|error| MachineError::io("find this program", error))?;
        let helper = Helper {
            arguments: vec![OsString::from(HELPER)],
            library: options.nvml.map(Path::to_owned),
            forks: true,
            ..Helper::new(own)
        };
        let tell = options.tell;
        let backend = prepare(NvmlChild::new(
            helper,
            options.deadline,
            Box::new(move |waiting: &Waiting| tell(&described(waiting))),
        ));
        // What the environment says holds whatever the library says, or does not come to say.
        let dir = live::named().or_else(|| Some(backend.simulated()?.session));
        match dir {
            Some(dir) => Ok(Source { tell, ..Source::in_session(backend, &dir)? }),
            None => Ok(Source { tell, ..Source::of_this_machine(Box::new(backend)) }),
        }
    }

    /// Returns the machine of the session in a directory.
    fn in_session(backend: NvmlChild, dir: &Path) -> Result<Self, MachineError> {
        let host = SessionHost::open(
            dir,
            |dev, sys| Box::new(LinuxHost::new(Roots { dev, sys, ..roots() })),
            Arc::new(SystemClock::new()),
        )?;
        let backend = SessionDevices::new(backend, dir, host.origin())?;
        Ok(Source {
            backend: Box::new(backend),
            clock: Arc::new(host.clock()),
            simulation: None,
            session: Some(host.dir().to_owned()),
            can_end_processes: host.has_real_processes(),
            nowhere: OnceCell::new(),
            tell: |_| {},
            host: Box::new(host),
        })
    }

    /// Returns the directory of the session that this program was started in.
    pub fn session(&self) -> Option<&Path> {
        self.session.as_deref()
    }

    /// Looks once.
    pub fn look(&self) -> Snapshot {
        gpu_core::observe(&*self.backend, &*self.host, &*self.clock)
    }

    /// Looks once, and asks for these groups of details too.
    pub fn look_in_detail(&self, groups: Groups) -> Snapshot {
        gpu_core::observe_in_detail(&*self.backend, &*self.host, &*self.clock, groups)
    }

    /// Returns whether time passes only when it is slept away.
    pub fn is_simulated(&self) -> bool {
        self.simulation.is_some()
    }

    /// Looks twice, far enough apart for CPU time, counted in hundredths of a second, to advance,
    /// and for a process that was just ending to be gone.
    pub fn two_looks(&self) -> Vec<Snapshot> {
        self.looks(2, Duration::from_millis(500)).collect()
    }

    /// Looks `count` times, but once where no device can be asked: what a second look could tell
    /// apart is not there to be seen.
    pub fn looks(&self, count: u16, pause: Duration) -> impl Iterator<Item = Snapshot> {
        let mut blind = false;
        (0..count).map_while(move |done| {
            if blind {
                return None;
            }
            if done > 0 {
                if self.simulation.is_none() && pause >= Duration::from_secs(1) {
                    let seconds = pause.as_secs();
                    (self.tell)(&format!("sample {done} of {count} taken; next in {seconds} s"));
                }
                self.clock.sleep(pause);
            }
            let look = self.look();
            blind = look.driver.is_err() && look.devices.is_empty();
            Some(look)
        })
    }

    /// Finds the file that somebody asks about.
    ///
    /// # Errors
    /// When there is no such file on this machine.
    pub fn file(&self, path: &Path) -> Result<DeviceFile, MachineError> {
        if self.simulation.is_none() && self.session.is_none() {
            return Ok(gpu_host::resolve(path)?);
        }
        let files = self.host.device_files()?;
        let names: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
        files.into_iter().find(|file| Path::new(&*file.path) == path).ok_or_else(|| {
            let what = format!("find '{}' on the simulated machine", path.display());
            MachineError::new(Error::new(Absent::NotFound, what))
                .with_hint(format!("it has {}", names.join(", ")))
        })
    }

    /// Opens the audit log.
    ///
    /// # Errors
    /// When it cannot be opened for appending: no log, no signal.
    pub fn journal(&self) -> Result<Box<dyn Journal>, MachineError> {
        match &self.simulation {
            Some(simulation) => Ok(Box::new(simulation.clone())),
            None => {
                let path = match &self.session {
                    Some(dir) => dir.clone(),
                    None => journal_dir()?,
                };
                let dir = TrustedDir::make(&path, PathTrust::Protected);
                let journal = dir.and_then(|dir| FileJournal::open_in(&dir, AUDIT_LOG));
                let journal = journal.map_err(|error| {
                    MachineError::new(error)
                        .of(Cause::NoAuditLog)
                        .with_hint("no signals are sent without a trusted audit log")
                })?;
                Ok(Box::new(journal))
            }
        }
    }

    /// Returns where the leases are kept: the directory that is named, by an option or by
    /// [`CLAIMS`] in the environment, else that of the session, else that of the machine.
    ///
    /// # Errors
    /// When the session's cannot be made.
    pub fn locks(&self, dir: Option<&Path>) -> Result<FileLeaseStore, MachineError> {
        let place = match (dir.map(Path::to_owned).or_else(named_claims), &self.session) {
            (Some(dir), _) => {
                check_claims(&dir)?;
                Place::dir(dir)
            }
            (None, Some(session)) => {
                let dir = TrustedDir::make(&session.join(SESSION_CLAIMS), PathTrust::Protected)?;
                Place::dir(dir.path())
            }
            // A machine without real processes has leases of its own: none.
            (None, None) if self.simulation.is_some() => {
                let made = tempfile::tempdir_in(live::place()?);
                let made =
                    made.map_err(|error| MachineError::io("make a private directory", error))?;
                Place::dir(self.nowhere.get_or_init(|| made).path())
            }
            (None, None) => Place::machine("/run", "/tmp"),
        };
        Ok(self.locks_in(place))
    }

    /// Returns where leases are kept, to read them, and makes nothing; `None` where there are none.
    pub fn locks_to_read(&self) -> Option<FileLeaseStore> {
        let place = match (named_claims(), &self.session) {
            _ if self.simulation.is_some() => return None,
            (Some(dir), _) => Place::dir(Some(dir).filter(|at| check_claims(at).is_ok())?),
            (None, Some(session)) => {
                let dir = session.join(SESSION_CLAIMS);
                Place::dir(Some(dir).filter(|dir| dir.exists())?)
            }
            (None, None) => Place::machine("/run", "/tmp"),
        };
        Some(self.locks_in(place))
    }

    /// Returns who has claimed which device.
    pub fn leases(&self) -> DeviceLeases {
        self.locks_to_read().map_or_else(DeviceLeases::none, |locks| DeviceLeases::read(&locks))
    }

    fn locks_in(&self, place: Place) -> FileLeaseStore {
        // What runs in a session does not keep the machine's own users of safe-gpu waiting.
        let tmp = self.session.as_deref().unwrap_or(Path::new("/tmp"));
        FileLeaseStore::new(place, SafeGpuFiles::below(tmp), roots())
    }

    /// Returns the ports of an act.
    pub fn ports<'a>(&'a self, journal: &'a dyn Journal) -> Ports<'a> {
        Ports { backend: &*self.backend, host: &*self.host, clock: &*self.clock, journal }
    }
}

/// Returns whether this program was started in a session.
pub fn is_in_session() -> bool {
    live::named().is_some()
}

/// Says for what the driver is taking its time.
fn described(waiting: &Waiting) -> String {
    let call = waiting.call.as_ref().map_or(String::new(), |call| format!(" ({call})"));
    let (elapsed, deadline) = (waiting.elapsed.as_secs(), waiting.deadline.as_secs_f64());
    format!("waiting for the driver for {elapsed} s{call}; deadline {deadline} s")
}

/// The directory of the audit log: of root for the machine, of anybody else in the own state
/// directory (XDG Base Directory Specification: `$XDG_STATE_HOME`, else `~/.local/state`).
fn journal_dir() -> Result<PathBuf, MachineError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/log/gpuws"));
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("gpuws"))
        .ok_or_else(|| {
            MachineError::new(Error::new(ErrorKind::Unsupported, "find a place for the audit log"))
                .with_hint("set HOME or XDG_STATE_HOME; no signals are sent without an audit log")
        })
}
