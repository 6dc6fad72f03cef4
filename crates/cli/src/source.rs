//! The choice of adapters: a simulated machine when asked for by name, this machine otherwise.
//! Never one in place of the other; and within a session, devices and processes are those of the
//! session and no others.

use crate::args::{Global, Looks, shell_word};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session_devices::SessionDevices;
use crate::terminal::progress;
use crate::unavailable::NoDevices;
use gpu_core::{Clock, DeviceFile, ErrorKind, GpuBackend, Groups, Host, Journal, Origin, Snapshot};
use gpu_host::{
    FileJournal, FileLocks, LinuxHost, PathTrust, Place, Roots, SafeGpuFiles, SystemClock,
    TrustedFolder,
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
pub(crate) struct Source {
    pub(crate) backend: Box<dyn GpuBackend>,
    pub(crate) host: Box<dyn Host>,
    pub(crate) clock: Arc<dyn Clock>,
    simulation: Option<Simulation>,
    /// The folder of the session that this program was started in.
    session: Option<PathBuf>,
    /// Processes of this machine can be ended: those of a session can only where real ones stand
    /// for them.
    pub(crate) can_end_processes: bool,
    /// A folder without leases, gone at the end.
    nowhere: OnceCell<TempDir>,
}

/// The variable that names the folder of the leases.
pub(crate) const CLAIMS: &str = "GPUWS_CLAIMS";

/// The folder of the leases in that of a session.
const SESSION_CLAIMS: &str = "claims";

/// What the audit log is called in its folder.
const AUDIT_LOG: &str = "audit.jsonl";

/// Returns the folder of the leases that the environment names.
fn named_claims() -> Option<PathBuf> {
    std::env::var_os(CLAIMS).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Makes sure that nobody but root and the user can exchange a folder of leases that is named. One
/// that cannot be opened is the folder's own fault, and told as that.
fn check_claims(folder: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io("find the lease directory", error);
    let absolute = std::path::absolute(folder).map_err(failed)?;
    match TrustedFolder::open(&absolute, PathTrust::Protected) {
        Err(error) if error.kind() == ErrorKind::Invalid => Err(Failure::from(error)
            .with_hint("whoever can replace the lease directory can cause double grants")),
        _ => Ok(()),
    }
}

/// Returns where this machine's processes and devices are seen.
pub(crate) fn roots() -> Roots {
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

impl Source {
    /// Lets go of the machine where the program ends now: its memory goes with it, and to free
    /// that piece by piece first takes a twentieth of a whole look at many processes.
    pub(crate) fn leave(self) {
        std::mem::forget((self.host, self.clock, self.simulation));
    }

    /// Opens the machine that the command line names.
    ///
    /// # Errors
    /// When the simulated machine does not exist or is not well formed.
    pub(crate) fn open(global: &Global) -> Result<Self, Failure> {
        Source::prepared(global, |backend| backend)
    }

    /// Opens the machine that the command line names, to look next at these groups: the driver is
    /// asked meanwhile. `once`: nothing else will be asked.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub(crate) fn open_to_look(
        global: &Global,
        groups: Groups,
        once: bool,
    ) -> Result<Self, Failure> {
        Source::prepared(global, |backend| {
            let backend = if once { backend.for_one_question() } else { backend };
            backend.look_ahead(groups);
            backend
        })
    }

    fn prepared(
        global: &Global,
        prepare: impl FnOnce(NvmlChild) -> NvmlChild,
    ) -> Result<Self, Failure> {
        match &global.sim {
            Some(machine) => Ok(Source::simulated(Simulation::named(machine)?)),
            None => Source::live(global, prepare),
        }
    }

    /// Returns the processes of this machine, without a device.
    pub(crate) fn bare() -> Self {
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
        }
    }

    /// Returns a simulated machine.
    pub(crate) fn simulated(simulation: Simulation) -> Self {
        Source {
            backend: Box::new(simulation.clone()),
            host: Box::new(simulation.clone()),
            clock: Arc::new(simulation.clone()),
            simulation: Some(simulation),
            session: None,
            can_end_processes: true,
            nowhere: OnceCell::new(),
        }
    }

    fn live(
        global: &Global,
        prepare: impl FnOnce(NvmlChild) -> NvmlChild,
    ) -> Result<Self, Failure> {
        if let Some(library) = &global.nvml {
            std::fs::metadata(library).map_err(|error| {
                let what = format!("find the NVML '{}'", library.display());
                Failure::io(what, error).ending(Exit::Usage)
            })?;
        }
        let own = std::env::current_exe();
        let own = own.map_err(|error| Failure::io("find this program", error))?;
        let helper = Helper {
            arguments: vec![OsString::from(HELPER)],
            library: global.nvml.clone(),
            forks: true,
            ..Helper::new(own)
        };
        let backend = prepare(NvmlChild::new(helper, global.deadline, Box::new(tell_waiting)));
        // What the environment says holds whatever the library says, or does not come to say.
        let folder = live::named().or_else(|| Some(backend.simulated()?.session));
        match folder {
            Some(folder) => Source::in_session(backend, &folder),
            None => Ok(Source::of_this_machine(Box::new(backend))),
        }
    }

    /// Returns the machine of the session in a folder.
    fn in_session(backend: NvmlChild, folder: &Path) -> Result<Self, Failure> {
        let host = SessionHost::open(
            folder,
            |dev, sys| Box::new(LinuxHost::new(Roots { dev, sys, ..roots() })),
            Arc::new(SystemClock::new()),
        )?;
        let backend = SessionDevices::new(backend, folder, host.origin())?;
        Ok(Source {
            backend: Box::new(backend),
            clock: Arc::new(host.clock()),
            simulation: None,
            session: Some(host.folder().to_owned()),
            can_end_processes: host.has_real_processes(),
            nowhere: OnceCell::new(),
            host: Box::new(host),
        })
    }

    /// Returns the folder of the session that this program was started in.
    pub(crate) fn session(&self) -> Option<&Path> {
        self.session.as_deref()
    }

    /// Looks once.
    pub(crate) fn look(&self) -> Snapshot {
        gpu_core::observe(&*self.backend, &*self.host, &*self.clock)
    }

    /// Looks once, and asks for these groups of details too.
    pub(crate) fn look_in_detail(&self, groups: Groups) -> Snapshot {
        gpu_core::observe_in_detail(&*self.backend, &*self.host, &*self.clock, groups)
    }

    /// Tells whether time passes only when it is slept away.
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulation.is_some()
    }

    /// Looks as often as the command line says.
    pub(crate) fn looks(&self, looks: &Looks) -> Vec<Snapshot> {
        self.each_look(looks).collect()
    }

    /// Looks as often as the command line says, one look at a time.
    pub(crate) fn each_look(&self, looks: &Looks) -> impl Iterator<Item = Snapshot> {
        self.several_looks(looks.looks, Duration::from_secs(looks.every))
    }

    /// Looks twice, far enough apart for CPU time, counted in hundredths of a second, to advance,
    /// and for a process that was just ending to be gone.
    pub(crate) fn two_looks(&self) -> Vec<Snapshot> {
        self.several_looks(2, Duration::from_millis(500)).collect()
    }

    /// Looks `count` times, but once where no device can be asked: what a second look could tell
    /// apart is not there to be seen.
    fn several_looks(&self, count: u16, pause: Duration) -> impl Iterator<Item = Snapshot> {
        let mut blind = false;
        (0..count).map_while(move |done| {
            if blind {
                return None;
            }
            if done > 0 {
                if self.simulation.is_none() && pause >= Duration::from_secs(1) {
                    let seconds = pause.as_secs();
                    progress(&format!("sample {done} of {count} taken; next in {seconds} s"));
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
    pub(crate) fn file(&self, path: &Path) -> Result<DeviceFile, Failure> {
        if self.simulation.is_none() && self.session.is_none() {
            return Ok(gpu_host::resolve(path)?);
        }
        let files = self.host.device_files()?;
        let names: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
        files.into_iter().find(|file| Path::new(&*file.path) == path).ok_or_else(|| {
            let what = format!("find '{}' on the simulated machine", path.display());
            Failure::new(Exit::CannotObserve, what)
                .with_hint(format!("it has {}", names.join(", ")))
        })
    }

    /// Opens the audit log.
    ///
    /// # Errors
    /// When it cannot be opened for appending: no log, no signal.
    pub(crate) fn journal(&self) -> Result<Box<dyn Journal>, Failure> {
        match &self.simulation {
            Some(simulation) => Ok(Box::new(simulation.clone())),
            None => {
                let path = match &self.session {
                    Some(folder) => folder.clone(),
                    None => journal_folder()?,
                };
                let folder = TrustedFolder::make(&path, PathTrust::Protected);
                let journal = folder.and_then(|folder| FileJournal::open_in(&folder, AUDIT_LOG));
                let journal = journal.map_err(|error| {
                    Failure::from(error)
                        .ending(Exit::NotPermitted)
                        .with_hint("no signals are sent without a trusted audit log")
                })?;
                Ok(Box::new(journal))
            }
        }
    }

    /// Returns where the leases are kept: the folder that is named, by an option or by
    /// [`CLAIMS`] in the environment, else that of the session, else that of the machine.
    ///
    /// # Errors
    /// When the session's cannot be made.
    pub(crate) fn locks(&self, folder: Option<&Path>) -> Result<FileLocks, Failure> {
        let place = match (folder.map(Path::to_owned).or_else(named_claims), &self.session) {
            (Some(folder), _) => {
                check_claims(&folder)?;
                Place::folder(folder)
            }
            (None, Some(session)) => {
                let folder =
                    TrustedFolder::make(&session.join(SESSION_CLAIMS), PathTrust::Protected)?;
                Place::folder(folder.path())
            }
            // A machine without real processes has leases of its own: none.
            (None, None) if self.simulation.is_some() => {
                let made = tempfile::tempdir_in(live::place()?);
                let made = made.map_err(|error| Failure::io("make a private folder", error))?;
                Place::folder(self.nowhere.get_or_init(|| made).path())
            }
            (None, None) => Place::machine("/run", "/tmp"),
        };
        Ok(self.locks_in(place))
    }

    /// Returns where leases are kept, to read them, and makes nothing; `None` where there are none.
    pub(crate) fn locks_to_read(&self) -> Option<FileLocks> {
        let place = match (named_claims(), &self.session) {
            _ if self.simulation.is_some() => return None,
            (Some(folder), _) => Place::folder(Some(folder).filter(|at| check_claims(at).is_ok())?),
            (None, Some(session)) => {
                let folder = session.join(SESSION_CLAIMS);
                Place::folder(Some(folder).filter(|folder| folder.exists())?)
            }
            (None, None) => Place::machine("/run", "/tmp"),
        };
        Some(self.locks_in(place))
    }

    /// Returns who has claimed which device.
    pub(crate) fn leases(&self) -> DeviceLeases {
        self.locks_to_read().map_or_else(DeviceLeases::none, |locks| DeviceLeases::read(&locks))
    }

    fn locks_in(&self, place: Place) -> FileLocks {
        // What runs in a session does not keep the machine's own users of safe-gpu waiting.
        let tmp = self.session.as_deref().unwrap_or(Path::new("/tmp"));
        FileLocks::new(place, SafeGpuFiles::below(tmp), roots())
    }

    /// Returns the ports of an act.
    pub(crate) fn ports<'a>(&'a self, journal: &'a dyn Journal) -> Ports<'a> {
        Ports { backend: &*self.backend, host: &*self.host, clock: &*self.clock, journal }
    }
}

/// Returns the option that names this machine on a command line, to go into the next command.
/// Within a session none is needed: what is typed there finds its machine as this program did.
pub(crate) fn sim_option(origin: &Origin, global: &Global) -> String {
    match (origin, &global.sim) {
        (Origin::Simulated(_), None) if live::named().is_some() => String::new(),
        (Origin::Simulated(_), Some(path)) => {
            format!("--sim {} ", shell_word(&path.to_string_lossy()))
        }
        (Origin::Simulated(name), None) => format!("--sim {} ", shell_word(name)),
        _ => String::new(),
    }
}

/// Tells somebody at a terminal for what the driver is taking its time.
fn tell_waiting(waiting: &Waiting) {
    let call = waiting.call.as_ref().map_or(String::new(), |call| format!(" ({call})"));
    let (elapsed, deadline) = (waiting.elapsed.as_secs(), waiting.deadline.as_secs_f64());
    progress(&format!("waiting for the driver for {elapsed} s{call}; deadline {deadline} s"));
}

/// Says which machines there are.
pub(crate) fn unknown_machine(machine: &str) -> Failure {
    let names: Vec<&str> = gpu_sim::machines().iter().map(|machine| machine.name).collect();
    Failure::new(Exit::Usage, format!("find machine '{machine}'"))
        .with_source("no built-in machine, directory or file has this name")
        .with_hint(format!("available: {}", names.join(", ")))
}

/// The folder of the audit log: of root for the machine, of anybody else in the own state folder
/// (XDG Base Directory Specification: `$XDG_STATE_HOME`, else `~/.local/state`).
fn journal_folder() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/log/gpuws"));
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("gpuws"))
        .ok_or_else(|| {
            Failure::new(Exit::CannotObserve, "find a place for the audit log")
                .with_hint("set HOME or XDG_STATE_HOME; no signals are sent without an audit log")
        })
}
