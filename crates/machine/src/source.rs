//! The choice of adapters: a simulated machine if it is requested by name, otherwise this machine.
//! There is no fallback from one to the other. Inside a session, only its devices and processes are
//! visible.

mod leases;

pub use leases::{CLAIMS, LeaseReader};

use crate::backends::{self, Opened, Use, roots};
use crate::no_devices::NoDevices;
#[cfg(feature = "kubernetes")]
use crate::pods::PodNames;
use crate::several::Several;
use crate::{Cause, MachineError};
#[cfg(feature = "kubernetes")]
use gpu_core::ProcessDetail;
use gpu_core::visible::{GRAMMARS, Seen};
use gpu_core::{
    Absent, Clock, DeviceFile, DeviceState, Error, ErrorKind, GpuBackend, Groups, Host, Journal,
    KernelDriver, Launch, LeaseStore, NoJournal, Observation, Observer, Origin, Pid, ProcessFault,
    ProcessInfo, ProcessKey, ProcessTable, Reading, Snapshot,
};
use gpu_drm::{CopiedMachine, Drm};
use gpu_host::{FileJournal, LinuxHost, PathTrust, Roots, SystemClock, TrustedDir, has_account};
use gpu_reaper::Ports;
use gpu_sim::Simulation;
use gpu_sim::live::{self, SessionHost};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// A machine, as its ports.
pub struct Source {
    /// The devices.
    pub backend: Box<dyn GpuBackend>,
    /// The processes.
    pub host: Box<dyn Host>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    pub(crate) simulation: Option<Simulation>,
    /// The directory of the session in which this program runs.
    pub(crate) session: Option<PathBuf>,
    /// Whether processes of this machine can be ended: in a session, only if they have real
    /// placeholders.
    pub can_end_processes: bool,
    /// An empty lease directory, deleted with this value.
    no_leases: OnceLock<TempDir>,
    progress: fn(&str),
    /// The kubelet of this node.
    #[cfg(feature = "kubernetes")]
    pods: Option<PodNames>,
    /// The program that keeps placeholders, if it is another one.
    program: Option<PathBuf>,
}

/// The environment variable that, if not empty, keeps the search for holders from using bpf(2).
const NO_BPF: &str = "GPUWS_NO_BPF";

/// The directory of root's audit log.
const MACHINE_LOGS: &str = "/var/log/gpuws";

/// The file name of the audit log.
const AUDIT_LOG: &str = "audit.jsonl";

/// Returns which of these devices of a machine a program sees that is started here, with this
/// environment; `None` without devices.
pub fn seen(devices: &[DeviceState]) -> Option<Seen> {
    (!devices.is_empty()).then(|| Seen::of(GRAMMARS, &own_variable, devices))
}

/// Returns the value of a variable in the environment of this program, with a replacement for each
/// part that is not valid UTF-8.
pub fn own_variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// Returns this machine's processes, with the file systems of devices and drivers at these roots.
fn linux_host(roots: Roots) -> LinuxHost {
    let host = LinuxHost::with_drivers(roots, backends::drivers());
    let no_bpf = std::env::var_os(NO_BPF).is_some_and(|value| !value.is_empty());
    if no_bpf { host.without_bpf() } else { host }
}

/// The machine to open, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The simulated machine: its name, a directory, or a recording; `None` for this one.
    pub sim: Option<&'a Path>,
    /// The directory with the files of another machine.
    pub root: Option<&'a Path>,
    /// The NVML library to use instead of the installed one.
    pub nvml: Option<&'a Path>,
    /// The time to wait for the driver.
    pub deadline: Duration,
    /// Called with a message if a wait takes several seconds.
    pub progress: fn(&str),
    /// Called with a message if the snapshots lack something.
    pub warn: fn(&str),
    /// The program to start for tasks that must not run in this process: a path to gpuws. `None` if
    /// this program itself calls [`serve_if_requested`](crate::serve_if_requested).
    pub program: Option<&'a Path>,
}

impl<'a> Options<'a> {
    /// Returns the options for this machine: 30 s for the driver, and no messages.
    pub fn this_machine() -> Self {
        Options {
            sim: None,
            root: None,
            nvml: None,
            deadline: Duration::from_secs(30),
            progress: |_| {},
            warn: |_| {},
            program: None,
        }
    }

    /// Returns the options for a simulated machine.
    pub fn simulated(machine: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Options { sim: Some(machine.as_ref()), ..Options::this_machine() }
    }
}

impl Source {
    /// Leaks the machine right before the program exits. With many processes, freeing its memory
    /// takes a twentieth of the time of a snapshot.
    pub fn leak(self) {
        std::mem::forget((self.host, self.clock, self.simulation));
    }

    /// Returns the first of these users, by name or UID, without an account and without a visible
    /// process: the name is misspelled. A simulated machine has no accounts.
    ///
    /// # Errors
    /// When the processes cannot be listed.
    pub fn unknown_user<'a>(&self, users: &'a [String]) -> gpu_core::Result<Option<&'a String>> {
        let is_live = self.host.origin() == Origin::Live;
        let mut users = users.iter().filter(|user| !(is_live && has_account(user))).peekable();
        if users.peek().is_none() {
            return Ok(None);
        }
        let everyone = self.host.processes()?.processes;
        let has_process = |user: &&String| everyone.iter().any(|process| process.is_of(user));
        Ok(users.find(|user| !has_process(user)))
    }

    /// Opens the selected machine.
    ///
    /// # Errors
    /// When the simulated machine does not exist or is malformed.
    pub fn open(options: &Options<'_>) -> Result<Self, MachineError> {
        Source::prepared(options, Use::Any)
    }

    /// Opens the selected machine and starts to query these groups in the background. `once`: no
    /// other query follows.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub fn open_for_query(
        options: &Options<'_>,
        groups: Groups,
        once: bool,
    ) -> Result<Self, MachineError> {
        Source::prepared(options, Use::Query { groups, once })
    }

    /// Opens the selected machine for repeated snapshots with [`observe`](Source::observe). NVML
    /// stays initialised between snapshots, which saves most of their cost, unless the kernel may
    /// suspend an unused GPU.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub fn open_to_watch(options: &Options<'_>) -> Result<Self, MachineError> {
        let keep_open = !backends::nvidia_may_sleep();
        Source::prepared(options, Use::Watch { keep_open })
    }

    /// Opens the selected machine for repeated snapshots with [`observe`](Source::observe), between
    /// which NVML is not initialised, so that it blocks no reset.
    ///
    /// # Errors
    /// As [`open`](Source::open).
    pub fn open_to_observe(options: &Options<'_>) -> Result<Self, MachineError> {
        Source::prepared(options, Use::Watch { keep_open: false })
    }

    fn prepared(options: &Options<'_>, purpose: Use) -> Result<Self, MachineError> {
        let source = match (options.sim, options.root) {
            (Some(machine), _) => Source::simulated(Simulation::named(machine)?),
            (None, Some(root)) => Source::copied(root, options.deadline)?,
            (None, None) => Source::live(options, purpose)?,
        };
        #[cfg(feature = "kubernetes")]
        let source = {
            let is_other = source.host.origin() != Origin::Live;
            Source { pods: PodNames::find(is_other, options.warn), ..source }
        };
        Ok(source)
    }

    /// Returns this machine with its processes but without devices.
    pub fn bare() -> Self {
        Source::of_this_machine(Box::new(NoDevices))
    }

    /// Returns this machine with these devices.
    fn of_this_machine(backend: Box<dyn GpuBackend>) -> Self {
        Source::of(backend, Box::new(linux_host(roots())), Arc::new(SystemClock::new()))
    }

    /// Returns the machine at these roots with the devices of these backends, merged by PCI address,
    /// and the device files of their drivers.
    pub fn composed(
        backends: Vec<Box<dyn GpuBackend>>,
        drivers: Vec<Arc<dyn KernelDriver>>,
        roots: Roots,
    ) -> Self {
        let host = LinuxHost::with_drivers(roots, drivers.into());
        Source::of(Several::of(backends), Box::new(host), Arc::new(SystemClock::new()))
    }

    fn of(backend: Box<dyn GpuBackend>, host: Box<dyn Host>, clock: Arc<dyn Clock>) -> Self {
        Source {
            backend,
            host,
            clock,
            simulation: None,
            session: None,
            can_end_processes: true,
            no_leases: OnceLock::new(),
            progress: |_| {},
            #[cfg(feature = "kubernetes")]
            pods: None,
            program: None,
        }
    }

    /// Returns this machine with these device files, named by a scheduler, instead of those below
    /// `/dev`. A simulated machine keeps its own.
    pub fn with_device_files(self, files: Vec<DeviceFile>) -> Self {
        match (&self.simulation, &self.session) {
            (None, None) => {
                let host = Box::new(linux_host(roots()).with_device_files(files));
                Source { host, ..self }
            }
            _ => self,
        }
    }

    /// Returns a simulated machine.
    pub fn simulated(simulation: Simulation) -> Self {
        let nvidia = simulation.has_nvidia().then(|| Box::new(simulation.clone()) as _);
        let cards = simulation.tree().map(|tree| {
            let origin = ProcessTable::origin(&simulation);
            let own = simulation.clone();
            let drm = Drm::new(tree, origin);
            let drm = drm.resettable(Arc::new(move |path| own.reset_card(path)));
            Box::new(drm) as Box<dyn GpuBackend>
        });
        let backends = nvidia.into_iter().chain(cards).collect();
        let (host, clock) = (Box::new(simulation.clone()), Arc::new(simulation.clone()));
        let source = Source::of(Several::of(backends), host, clock);
        Source { simulation: Some(simulation), ..source }
    }

    /// Returns the machine of the files below a directory.
    ///
    /// # Errors
    /// When the directory cannot be opened, or has no files of a machine.
    fn copied(root: &Path, deadline: Duration) -> Result<Self, MachineError> {
        let copy = CopiedMachine::open(root, deadline)?;
        let source =
            Source::of(Box::new(copy.devices()), Box::new(copy), Arc::new(SystemClock::new()));
        Ok(Source { can_end_processes: false, ..source })
    }

    /// Returns whether this is the machine of other files than its own.
    fn is_copied(&self) -> bool {
        matches!(self.backend.origin(), Origin::Copied(_))
    }

    fn live(options: &Options<'_>, purpose: Use) -> Result<Self, MachineError> {
        let Options { nvml, program, deadline, progress, .. } = *options;
        let opened = backends::open(nvml, program, deadline, progress, purpose)?;
        // The environment has priority: the library may report another session, or none.
        let source = match live::named().or_else(|| opened.session()) {
            Some(dir) => Source::in_session(opened, &dir)?,
            None => Source::of_this_machine(opened.of_this_machine()),
        };
        Ok(Source { progress, program: program.map(Path::to_owned), ..source })
    }

    /// Returns the machine of the session in this directory.
    fn in_session(opened: Opened, dir: &Path) -> Result<Self, MachineError> {
        let host = SessionHost::open(
            dir,
            |dev, sys| Box::new(linux_host(Roots { dev, sys, ..roots() })),
            Arc::new(SystemClock::new()),
        )?;
        let backend = opened.of_session(dir, host.origin())?;
        let (session, clock) = (host.dir().to_owned(), Arc::new(host.clock()));
        let can_end_processes = host.has_real_processes();
        Ok(Source {
            session: Some(session),
            can_end_processes,
            ..Source::of(backend, Box::new(host), clock)
        })
    }

    /// Returns the placeholder program on the device in `CUDA_VISIBLE_DEVICES`, which ends with
    /// `root`.
    pub fn placeholder(&self, root: ProcessKey) -> Launch {
        let own = crate::placeholder(root, self.session());
        match (&self.program, &self.session) {
            (Some(program), None) => Launch { program: program.into(), ..own },
            _ => own,
        }
    }

    /// Returns the directory of the session in which this program runs.
    pub fn session(&self) -> Option<&Path> {
        self.session.as_deref()
    }

    /// Returns a process that the driver lists. The driver reports PIDs of the host; in another PID
    /// namespace they would belong to unrelated processes.
    pub fn listed_process(&self, pid: Pid) -> Reading<ProcessInfo> {
        if self.host.sees_host_pids() == Ok(false) {
            return Err(Absent::NotFound);
        }
        self.host.process(pid).map_err(|error| match error.kind() {
            ErrorKind::Process(ProcessFault::Gone) => Absent::NotFound,
            kind => kind.absent(),
        })
    }

    /// Takes a snapshot.
    pub fn snapshot(&self) -> Snapshot {
        self.detailed_snapshot(Observation::default())
    }

    /// Takes a snapshot that covers what `observation` requests.
    pub fn detailed_snapshot(&self, observation: Observation) -> Snapshot {
        let observation = self.with_workloads(observation);
        let observe = gpu_core::observe_in_detail;
        self.with_pods(observe(&*self.backend, &*self.host, &*self.clock, observation))
    }

    /// Takes one of many snapshots: see [`Observer`].
    pub fn observe(&self, observer: &mut Observer, observation: Observation) -> Snapshot {
        let observation = self.with_workloads(observation);
        self.with_pods(observer.observe(&*self.backend, &*self.host, &*self.clock, observation))
    }

    /// On a node of Kubernetes, also requests the pods of processes, which an outline lacks.
    #[cfg(feature = "kubernetes")]
    fn with_workloads(&self, observation: Observation) -> Observation {
        match self.pods {
            Some(_) => Observation { processes: ProcessDetail::Whole, ..observation },
            None => observation,
        }
    }

    #[cfg(not(feature = "kubernetes"))]
    fn with_workloads(&self, observation: Observation) -> Observation {
        observation
    }

    /// Returns a snapshot with the names of pods.
    #[cfg(feature = "kubernetes")]
    fn with_pods(&self, mut snapshot: Snapshot) -> Snapshot {
        if let Some(pods) = &self.pods {
            pods.fill(&mut snapshot, &*self.clock);
        }
        snapshot
    }

    #[cfg(not(feature = "kubernetes"))]
    fn with_pods(&self, snapshot: Snapshot) -> Snapshot {
        snapshot
    }

    /// Returns whether time advances only by sleeping.
    pub fn is_simulated(&self) -> bool {
        self.simulation.is_some()
    }

    /// Takes two snapshots, far enough apart for CPU time, which is counted in hundredths of a
    /// second, to advance, and for exiting processes to disappear.
    pub fn two_snapshots(&self) -> Vec<Snapshot> {
        self.snapshots(Observation::default(), 2, Duration::from_millis(500)).collect()
    }

    /// Takes `count` snapshots, but only one if no device can be queried, because further ones
    /// could not show a difference.
    pub fn snapshots(
        &self,
        observation: Observation,
        count: u16,
        pause: Duration,
    ) -> impl Iterator<Item = Snapshot> {
        let mut blind = false;
        (0..count).map_while(move |done| {
            if blind {
                return None;
            }
            if done > 0 {
                if self.simulation.is_none() && pause >= Duration::from_secs(1) {
                    let seconds = pause.as_secs();
                    (self.progress)(&format!(
                        "sample {done} of {count} taken; next in {seconds} s"
                    ));
                }
                self.clock.sleep(pause);
            }
            let snapshot = self.detailed_snapshot(observation);
            blind = snapshot.driver.is_err() && snapshot.devices.is_empty();
            Some(snapshot)
        })
    }

    /// Returns the file with this path.
    ///
    /// # Errors
    /// When there is no such file on this machine.
    pub fn file(&self, path: &Path) -> Result<DeviceFile, MachineError> {
        if self.simulation.is_none() && self.session.is_none() && !self.is_copied() {
            let file = gpu_host::resolve(path)?;
            let drivers = backends::drivers();
            return Ok(drivers.iter().fold(file, |file, driver| file.described_by(&**driver)));
        }
        let files = self.host.device_files()?;
        let names: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
        files.into_iter().find(|file| Path::new(&*file.path) == path).ok_or_else(|| {
            let what = format!("find '{}' on {}", path.display(), self.host.origin());
            MachineError::new(Error::new(Absent::NotFound, what))
                .with_hint(format!("choose from {}", names.join(", ")))
        })
    }

    /// Opens the audit log.
    ///
    /// # Errors
    /// When it cannot be opened for appending. No signals are sent without it.
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
                let is_fixed = self.session.is_some() || rustix::process::geteuid().is_root();
                let remedy =
                    if is_fixed { "" } else { "set XDG_STATE_HOME to your own directory; " };
                let journal = journal.map_err(|error| {
                    let hint = "no signals are sent without a trusted audit log";
                    let error = MachineError::new(error).of(Cause::NoAuditLog);
                    error.with_hint(format!("{remedy}{hint}"))
                })?;
                Ok(Box::new(journal))
            }
        }
    }

    /// Returns the audit log, or a log that records nothing, and the reason. This is for a run,
    /// which must end what it started, with an audit log or without.
    pub fn journal_if_any(&self) -> (Box<dyn Journal>, Option<MachineError>) {
        match self.journal() {
            Ok(journal) => (journal, None),
            Err(why) => (Box::new(NoJournal::new(why.error().clone())), Some(why)),
        }
    }

    /// Returns the audit log of this machine, which is root's, or of the session; `None` if actions
    /// are logged in memory only.
    #[cfg(feature = "export")]
    pub(crate) fn audit_log(&self) -> Option<PathBuf> {
        if self.simulation.is_some() {
            return None;
        }
        let dir = self.session.as_deref().unwrap_or(Path::new(MACHINE_LOGS));
        Some(dir.join(AUDIT_LOG))
    }

    /// Returns the ports for an action.
    pub fn ports<'a>(&'a self, journal: &'a dyn Journal) -> Ports<'a> {
        Ports { backend: &*self.backend, host: &*self.host, clock: &*self.clock, journal }
    }

    /// Returns the ports for claims, with an audit log that accepts no line: claims end no process.
    pub fn claim_ports<'a>(&'a self, locks: &'a dyn LeaseStore) -> gpu_steward::Ports<'a> {
        static NONE: LazyLock<NoJournal> = LazyLock::new(|| {
            let what = "write an audit log: this command ends no process";
            NoJournal::new(Error::new(ErrorKind::Unsupported, what))
        });
        let Ports { backend, host, clock, journal } = self.ports(&*NONE);
        gpu_steward::Ports { backend, host, clock, journal, locks }
    }
}

/// Returns whether this program runs in a session.
pub fn is_in_session() -> bool {
    live::named().is_some()
}

/// Returns the directory of the audit log: for root that of the machine, for other users their
/// state directory (XDG Base Directory Specification: `$XDG_STATE_HOME`, else `~/.local/state`).
fn journal_dir() -> Result<PathBuf, MachineError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(MACHINE_LOGS));
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("gpuws"))
        .ok_or_else(|| {
            MachineError::new(Error::new(
                ErrorKind::Unsupported,
                "find a directory for the audit log",
            ))
            .with_hint("set HOME or XDG_STATE_HOME; no signals are sent without an audit log")
        })
}
