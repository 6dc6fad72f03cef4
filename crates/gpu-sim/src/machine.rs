//! A machine as plain data: what it is at the start and how it reacts.
//!
//! It is what `machine.toml` and the recordings beside it come down to, and what a recording of a
//! live machine comes down to. The engine runs it; nothing here changes by itself.

use gpu_core::{
    Absent, Bytes, Celsius, DeviceDetails, DeviceEventKind, DeviceFile, DeviceFileKind, DeviceInfo,
    DeviceProcessKind, Driver, Fault, FileId, HeldFile, MigInstance, Milliwatts, Pid, ProcessInfo,
    ProcessState, Reading, Timestamp, Topology, Unreadable,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A machine that a [`Simulation`](crate::Simulation) can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// What it shows, in one line.
    pub description: String,
    /// The wall clock at the start.
    pub clock: Timestamp,
    /// When it was booted; start times of processes count from here.
    pub booted: Timestamp,
    /// The machine's own name.
    pub hostname: Reading<String>,
    /// The driver, or why it does not answer.
    pub driver: Result<Driver, Fault>,
    /// Who looks.
    pub viewer: Viewer,
    /// Whether the viewer's process numbers are the driver's.
    pub sees_host_pids: Reading<bool>,
    /// The devices, by index.
    pub devices: Vec<Device>,
    /// The GPU device files.
    pub files: Vec<DeviceFile>,
    /// Why nobody can tell who holds them, if nobody can.
    pub holders_fault: Option<Fault>,
    /// How the devices are connected.
    pub topology: Reading<Topology>,
    /// The processes.
    pub processes: Vec<Process>,
    /// Processes that a recording could not look into and of which it says no more.
    pub unreadable: Unreadable,
    /// What happens without anybody's doing.
    pub events: Vec<Scheduled>,
    /// What the driver says when it refuses a reset.
    pub reset_refusal: String,
    /// The recordings it was made from, by file name.
    pub recordings: BTreeMap<String, Vec<u8>>,
}

/// Who looks at the machine, and so what can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// User id; descriptors of other users are hidden, and signals to them refused.
    pub uid: u32,
    /// Name of that user.
    pub user: String,
    /// Sees and may do everything, as root does.
    pub privileged: bool,
    /// The PID namespace the viewer is confined to; `None` for the first one.
    pub namespace: Option<String>,
    /// The viewer's own process, by its number on the host.
    pub pid: Pid,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub info: DeviceInfo,
    /// All memory.
    pub total: Reading<Bytes>,
    /// What the driver takes for itself and reports as used (NVML's version 1).
    pub reserve: Bytes,
    /// What driver and firmware hold back and report apart from what is used (NVML's version 2).
    pub reserved: Reading<Bytes>,
    /// Memory that stays used though nobody holds it, until a reset.
    pub leaked: Bytes,
    /// Why the device does not tell how much is used, if it does not.
    pub used_untold: Option<Absent>,
    /// Utilisation, in percent, that comes from no process; or why none is told.
    pub idle_load: Reading<u8>,
    /// Temperature.
    pub temperature: Reading<Celsius>,
    /// Power drawn.
    pub power_draw: Reading<Milliwatts>,
    /// Power limit.
    pub power_limit: Reading<Milliwatts>,
    /// Everything else that it tells.
    pub details: DeviceDetails,
    /// What it tells instead while something computes on it.
    pub busy: DeviceDetails,
    /// MIG instances; the `used` of each is what it uses with no process in it.
    pub mig: Vec<MigInstance>,
    /// Why it cannot be asked how it is, if it cannot.
    pub fault: Option<Fault>,
    /// Why it cannot be asked for its processes, if it cannot.
    pub list_fault: Option<Fault>,
}

/// A process and its reactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What `/proc` tells of it at the start, by its number on the host.
    pub info: ProcessInfo,
    /// Why the viewer learns nothing of it: `NotFound` when NVML lists it and it has ended.
    pub hidden: Option<Absent>,
    /// Its PID namespace and its number there, when that is not the first one.
    pub namespace: Option<(String, Pid)>,
    /// The device memory that it has.
    pub holdings: Vec<Holding>,
    /// The device files that it has; those of a crowd on one device are all the same.
    pub files: Arc<Vec<HeldFile>>,
    /// Processor time that it takes, in percent of one processor.
    pub cpu_percent: u32,
    /// What SIGTERM does.
    pub on_term: Reaction,
    /// What SIGKILL does.
    pub on_kill: Reaction,
    /// How long after its end its memory is free again; `None` for never: the driver leaks it.
    pub memory_returns: Option<Duration>,
    /// How long after its end its parent starts another like it, if it does and still lives.
    pub respawns: Option<Duration>,
}

/// Memory of one device that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The device, by index.
    pub device: u32,
    /// How much.
    pub memory: Bytes,
    /// As what NVML lists it; `None` when it does not.
    pub listed: Option<DeviceProcessKind>,
    /// Why NVML does not tell the amount, if it does not.
    pub memory_untold: Option<Absent>,
    /// How much of the device's time its kernels take, in percent.
    pub load: u8,
    /// Why NVML does not tell that share by process, if it does not.
    pub load_untold: Option<Absent>,
    /// MIG GPU instance.
    pub gpu_instance: Option<u32>,
    /// MIG compute instance.
    pub compute_instance: Option<u32>,
}

/// What a signal does to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing.
    Ignores,
    /// It ends after this time.
    ExitsAfter(Duration),
    /// It waits in the kernel and ends when the wait does, at this time since the start; `None`
    /// for never.
    Stuck(Option<Duration>),
    /// Its first thread ends; the others live on and keep what the process has.
    LeavesThreads,
}

/// Something that happens without anybody's doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When.
    pub when: When,
    /// What.
    pub event: Event,
}

/// When an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time since the start.
    At(Duration),
    /// So long after the process with this number on the host has ended, once.
    AfterExit(Pid, Duration),
}

/// A change of the machine. Processes are named by their number on the host; an event about a
/// process that does not live changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process starts, with the number given if that is free and the next free one if not.
    Start(Box<Process>),
    /// A process ends by itself.
    Exit(Pid),
    /// A process closes its device files and frees its memory: of one device, or of all.
    LetGo(Pid, Option<u32>),
    /// A process has this much memory on a device and takes this share of its time from now on.
    Uses(Pid, u32, Bytes, u8),
    /// A process takes this much processor time from now on, in percent of one processor.
    Computes(Pid, u32),
    /// A process moves to another process group.
    JoinsGroup(Pid, Pid),
    /// A process moves to another cgroup, and with it out of its container or job.
    JoinsCgroup(Pid, String),
    /// A device fails.
    Fails(u32, Fault),
    /// A device reports something by itself.
    Reports(u32, DeviceEventKind),
    /// The machine is as in a later look of its recording; dropped once somebody has acted.
    Becomes(Box<Machine>),
}

impl Process {
    /// Returns a process that has nothing, obeys SIGTERM after a second and SIGKILL after a tenth
    /// of one, and whose memory is free again 0.2 s after its end.
    pub fn new(info: ProcessInfo) -> Self {
        Process {
            info,
            hidden: None,
            namespace: None,
            holdings: Vec::new(),
            files: Arc::default(),
            cpu_percent: 0,
            on_term: Reaction::ExitsAfter(Duration::from_secs(1)),
            on_kill: Reaction::ExitsAfter(Duration::from_millis(100)),
            memory_returns: Some(Duration::from_millis(200)),
            respawns: None,
        }
    }

    /// Returns whether only its entry in the process table is left: its first thread is a zombie and
    /// no other lives.
    pub(crate) fn has_ended(&self) -> bool {
        self.info.state == Ok(ProcessState::Zombie) && self.info.live_threads.unwrap_or(0) == 0
    }

    /// Returns the number on the host.
    pub fn pid(&self) -> Pid {
        self.info.key.pid
    }
}

impl Holding {
    /// Returns memory that NVML lists as a CUDA context's, with nothing running.
    pub fn new(device: u32, memory: Bytes) -> Self {
        Holding {
            device,
            memory,
            listed: Some(DeviceProcessKind::Compute),
            memory_untold: None,
            load: 0,
            load_untold: Some(Absent::NotSupported),
            gpu_instance: None,
            compute_instance: None,
        }
    }
}

/// Returns the device file with this path, with the device numbers that Linux gives it: 195 for
/// `nvidia*`, 226 for `dri`, and one of the dynamic majors for the rest.
pub fn device_file(path: &str) -> DeviceFile {
    let kind = DeviceFileKind::of_path(path);
    let trailing = || {
        let digits = path.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_default()
    };
    let (major, minor) = match kind {
        DeviceFileKind::Gpu(minor) => (195, minor),
        DeviceFileKind::Control => (195, 255),
        DeviceFileKind::Modeset => (195, 254),
        DeviceFileKind::Uvm => (511, 0),
        DeviceFileKind::UvmTools => (511, 1),
        DeviceFileKind::Capability => (236, trailing()),
        DeviceFileKind::Render => (226, trailing()),
        DeviceFileKind::Other => (240, crate::seed::fnv1a(path.as_bytes()) as u32 >> 12),
    };
    DeviceFile { path: path.into(), kind, id: Ok(FileId::Device { major, minor }) }
}
