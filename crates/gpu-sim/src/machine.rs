//! A machine as plain data: its initial state and its reactions.
//!
//! Both `machine.toml` with its recordings and a recording of a live machine are converted to this
//! form. The engine runs it; nothing here changes by itself.

use crate::cards::Cards;
use gpu_core::{
    Absent, Bytes, Celsius, DeviceDetails, DeviceEventKind, DeviceFile, DeviceInfo,
    DeviceProcessKind, Driver, DriverMessage, Fault, FileId, FileRole, HeldFile, MemoryKind,
    Milliwatts, Partition, Pid, ProcessInfo, ProcessState, Reading, Timestamp, Topology,
    Unreadable,
};
use gpu_nvidia_driver::MAJOR;
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
    /// The hostname.
    pub hostname: Reading<String>,
    /// The driver, or why it does not answer.
    pub driver: Result<Driver, Fault>,
    /// The viewer.
    pub viewer: Viewer,
    /// Whether the viewer's PIDs are the driver's.
    pub sees_host_pids: Reading<bool>,
    /// The devices, by index.
    pub devices: Vec<Device>,
    /// The GPUs of AMD and Intel.
    pub cards: Cards,
    /// The host memory that devices share, by NUMA node; `None` for all of it.
    pub host_memory: BTreeMap<Option<u32>, HostShare>,
    /// The GPU device files.
    pub files: Vec<DeviceFile>,
    /// Why the holders are unknown, if they are.
    pub holders_fault: Option<Fault>,
    /// The topology.
    pub topology: Reading<Topology>,
    /// The processes.
    pub processes: Vec<Process>,
    /// Processes that the recording could not read and has no data for.
    pub unreadable: Unreadable,
    /// The driver's messages in the kernel log, oldest first, or why they are unknown.
    pub driver_messages: Result<Vec<DriverMessage>, Fault>,
    /// Scripted events.
    pub events: Vec<Scheduled>,
    /// The driver's message for a refused reset.
    pub reset_refusal: String,
    /// Its recordings, by file name.
    pub recordings: BTreeMap<String, Vec<u8>>,
}

/// The viewer of the machine, which determines what is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// UID; descriptors of other users are hidden, and signals to their processes refused.
    pub uid: u32,
    /// Name of that user.
    pub user: String,
    /// Unrestricted, like root.
    pub privileged: bool,
    /// The PID namespace that the viewer is confined to; `None` for the initial one.
    pub namespace: Option<String>,
    /// The viewer's own process, by its PID on the host.
    pub pid: Pid,
}

/// Host memory that devices share, without what they use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostShare {
    /// All of it.
    pub total: Bytes,
    /// Page cache that the kernel gives up for programs.
    pub cache: Bytes,
    /// What else the kernel and the programs of the host use.
    pub other: Bytes,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its identity.
    pub info: DeviceInfo,
    /// Where its memory is.
    pub kind: MemoryKind,
    /// Total memory.
    pub total: Reading<Bytes>,
    /// Memory that the driver takes and reports as used (NVML's version 1).
    pub reserve: Bytes,
    /// Memory that driver and firmware reserve and report separately (NVML's version 2).
    pub reserved: Reading<Bytes>,
    /// Memory that stays in use without a process, until a reset.
    pub leaked: Bytes,
    /// Why the device does not report its used memory, if it does not.
    pub used_untold: Option<Absent>,
    /// Utilisation, in percent, that comes from no process; or why it is not reported.
    pub idle_load: Reading<u8>,
    /// Temperature.
    pub temperature: Reading<Celsius>,
    /// Power draw.
    pub power_draw: Reading<Milliwatts>,
    /// Power limit.
    pub power_limit: Reading<Milliwatts>,
    /// All other values.
    pub details: DeviceDetails,
    /// Their values while a process computes on the device.
    pub busy: DeviceDetails,
    /// MIG instances; the `used` of each is its use without processes.
    pub mig: Vec<Partition>,
    /// Why its state cannot be read, if it cannot.
    pub fault: Option<Fault>,
    /// Why its processes cannot be read, if they cannot.
    pub list_fault: Option<Fault>,
}

/// A process and its reactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its data in `/proc` at the start, by its PID on the host.
    pub info: ProcessInfo,
    /// Why the viewer cannot read it: `NotFound` when NVML lists it and it has ended.
    pub hidden: Option<Absent>,
    /// Its PID namespace and its PID there, if that is not the initial one.
    pub namespace: Option<(String, Pid)>,
    /// Its device memory.
    pub holdings: Vec<Holding>,
    /// Its device files; the processes of a crowd on one device share them.
    pub files: Arc<Vec<HeldFile>>,
    /// Whether KFD lists it even if it uses no GPU: it has opened `/dev/kfd` once.
    pub opened_kfd: bool,
    /// CPU usage, in percent of one CPU.
    pub cpu_percent: u32,
    /// The reaction to SIGTERM.
    pub on_term: Reaction,
    /// The reaction to SIGKILL.
    pub on_kill: Reaction,
    /// The time from its end until its memory is free; `None` for never: the driver leaks it.
    pub memory_returns: Option<Duration>,
    /// The time from its end until its parent, if alive, starts another one like it.
    pub respawns: Option<Duration>,
}

/// Memory of one device that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The device, by index; those of cards are above those of NVML.
    pub device: u32,
    /// The amount.
    pub memory: Bytes,
    /// Its kind in NVML's list; `None` if it is not listed.
    pub listed: Option<DeviceProcessKind>,
    /// Why NVML does not report the amount, if it does not.
    pub memory_untold: Option<Absent>,
    /// The share of the device's time that its kernels take, in percent.
    pub load: u8,
    /// Why NVML does not report that share per process, if it does not.
    pub load_untold: Option<Absent>,
    /// MIG GPU instance.
    pub gpu_instance: Option<u32>,
    /// MIG compute instance.
    pub compute_instance: Option<u32>,
    /// How the driver of a card counts it; `None` on an NVIDIA device.
    pub client: Option<ClientUse>,
}

/// What else a client uses of a card (`fdinfo` of DRM drivers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientUse {
    /// Memory of the host that the card has mapped.
    pub host: Bytes,
    /// The number of the client, which processes that share it have in common; `None` for a client
    /// of its own.
    pub id: Option<u32>,
    /// The partition of the card; 0 also if it is not partitioned.
    pub partition: u32,
    /// Whether the process inherited the client: KFD counts memory only for who allocated it.
    pub inherited: bool,
}

/// The reaction of a process to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It ignores the signal.
    Ignores,
    /// It ends after this time.
    ExitsAfter(Duration),
    /// It waits in the kernel and ends when the wait does, at this time since the start; `None` for
    /// never.
    Stuck(Option<Duration>),
    /// Its first thread ends; the others live on and keep its resources.
    LeavesThreads,
}

/// A scripted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The time.
    pub when: When,
    /// The change.
    pub event: Event,
}

/// The time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time since the start.
    At(Duration),
    /// This long after the process with this PID on the host has ended, once.
    AfterExit(Pid, Duration),
}

/// A change of the machine. Processes are identified by their PID on the host; an event about a
/// process that is not alive changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process starts, with the given PID if it is free and the next free one if not.
    Start(Box<Process>),
    /// A process ends by itself.
    Exit(Pid),
    /// A process closes its device files and frees its memory: of one device, or of all.
    LetGo(Pid, Option<u32>),
    /// A process has this much memory on a device and takes this share of its time from now on.
    Uses(Pid, u32, Bytes, u8),
    /// A process uses this much CPU time from now on, in percent of one CPU.
    Computes(Pid, u32),
    /// A process moves to another process group.
    JoinsGroup(Pid, Pid),
    /// A process moves to another cgroup, and so leaves its container or job.
    JoinsCgroup(Pid, String),
    /// A device fails.
    Fails(u32, Fault),
    /// A device reports an event.
    Reports(u32, DeviceEventKind),
    /// The machine is as in a later snapshot of its recording; dropped after any action.
    Becomes(Box<Machine>),
}

impl Process {
    /// Returns a process without resources that exits a second after SIGTERM and a tenth of a
    /// second after SIGKILL, and whose memory is free 0.2 s after its end.
    pub fn new(info: ProcessInfo) -> Self {
        Process {
            info,
            hidden: None,
            namespace: None,
            holdings: Vec::new(),
            files: Arc::default(),
            opened_kfd: false,
            cpu_percent: 0,
            on_term: Reaction::ExitsAfter(Duration::from_secs(1)),
            on_kill: Reaction::ExitsAfter(Duration::from_millis(100)),
            memory_returns: Some(Duration::from_millis(200)),
            respawns: None,
        }
    }

    /// Returns whether only its entry in the process table is left: its first thread is a zombie
    /// and no other lives.
    pub(crate) fn has_ended(&self) -> bool {
        self.info.state == Ok(ProcessState::Zombie) && self.info.live_threads.unwrap_or(0) == 0
    }

    /// Returns the PID on the host.
    pub fn pid(&self) -> Pid {
        self.info.key.pid
    }
}

impl Holding {
    /// Returns memory that NVML lists as a CUDA context's, without utilisation.
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
            client: None,
        }
    }
}

/// Returns the paths of the devices' own files and of the two that every driver has.
pub(crate) fn drivers(devices: &[Device]) -> impl Iterator<Item = String> {
    let gpus = devices.iter().filter_map(|device| device.info.id.minor().ok());
    let gpus = gpus.map(|minor| format!("/dev/nvidia{minor}"));
    gpus.chain(["/dev/nvidiactl", "/dev/nvidia-uvm"].map(str::to_owned))
}

/// Returns the device file with this path, with the device numbers of Linux: 195 for `nvidia*`, 226
/// for `dri`, and one of the dynamic majors for the rest.
pub fn device_file(path: &str) -> DeviceFile {
    let file = gpu_nvidia_driver::device_file(path, Err(Absent::NotRecorded));
    let trailing = || {
        let digits = path.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_default()
    };
    let (major, minor) = match file.role {
        FileRole::Compute => (MAJOR, trailing()),
        FileRole::Control => (MAJOR, 255),
        FileRole::Display => (MAJOR, 254),
        FileRole::Memory => (511, 0),
        FileRole::Tools => (511, 1),
        FileRole::Capability => (236, trailing()),
        FileRole::Render => (226, trailing()),
        // A minor number has 20 bits. The upper bits of this hash hardly depend on the last byte.
        FileRole::Other => (240, crate::seed::fnv1a(path.as_bytes()) as u32 & 0xf_ffff),
    };
    DeviceFile { id: Ok(FileId::Device { major, minor }), ..file }
}
