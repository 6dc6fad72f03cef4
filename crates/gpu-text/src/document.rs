//! The output of every parser: one plain object, with the units that the other tool printed.
//!
//! Serialized, it is the output of `gpuws parse`: a missing value is `null`, never zero, and the
//! field names are a stable contract.

use crate::stamp::{Stamp, TextTimes};
use gpu_core::Reading;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of text of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The table that bare `nvidia-smi` prints.
    Table,
    /// `nvidia-smi -q`.
    Q,
    /// `nvidia-smi -q -x`.
    Xml,
    /// `nvidia-smi --query-gpu=… --format=csv`.
    QueryGpu,
    /// `nvidia-smi --query-compute-apps=… --format=csv`.
    QueryApps,
    /// `nvidia-smi -L`.
    List,
    /// `nvidia-smi pmon`.
    Pmon,
    /// `nvidia-smi dmon`.
    Dmon,
    /// `nvidia-smi topo -m`, or TensorFlow 1's device log with its DMA matrix.
    Topo,
    /// `nvidia-smi topo -p2p`.
    P2p,
    /// The lists of `nvidia-smi mig`: profiles and instances.
    Mig,
    /// `gpustat`.
    Gpustat,
    /// `fuser -v`.
    Fuser,
    /// `lsof`.
    Lsof,
    /// The kernel log, with messages of NVIDIA's driver: `dmesg`, `journalctl -k` or syslog.
    KernelLog,
    /// A failure text of a whole tool.
    Error,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 16] = [
        Kind::Table,
        Kind::Q,
        Kind::Xml,
        Kind::QueryGpu,
        Kind::QueryApps,
        Kind::List,
        Kind::Pmon,
        Kind::Dmon,
        Kind::Topo,
        Kind::P2p,
        Kind::Mig,
        Kind::Gpustat,
        Kind::Fuser,
        Kind::Lsof,
        Kind::KernelLog,
        Kind::Error,
    ];

    /// Returns the name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Q => "q",
            Kind::Xml => "xml",
            Kind::QueryGpu => "query_gpu",
            Kind::QueryApps => "query_apps",
            Kind::List => "list",
            Kind::Pmon => "pmon",
            Kind::Dmon => "dmon",
            Kind::Topo => "topo",
            Kind::P2p => "p2p",
            Kind::Mig => "mig",
            Kind::Gpustat => "gpustat",
            Kind::Fuser => "fuser",
            Kind::Lsof => "lsof",
            Kind::KernelLog => "kernel_log",
            Kind::Error => "error",
        }
    }
}

/// Everything parsed from one text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document {
    /// Version of this object's format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = 1)))]
    pub schema: u32,
    /// Kind of the text.
    pub kind: Kind,
    /// Version of the driver, not of nvidia-smi. Null if the text does not contain it.
    pub driver_version: Option<String>,
    /// CUDA version that the driver supports. Null if the text does not contain it.
    pub cuda_version: Option<String>,
    /// The GPUs, in the order of the text.
    pub gpus: Vec<Gpu>,
    /// The processes. Null if the text has no process table or says that it is not supported; empty
    /// if it says that there are none.
    pub processes: Option<Vec<Process>>,
    /// The MIG devices.
    pub mig_devices: Vec<MigDevice>,
    /// Column names of pmon, dmon, CSV and the lists of mig.
    pub columns: Vec<String>,
    /// Rows of pmon, dmon and the lists of mig, by column name.
    pub rows: Vec<BTreeMap<String, Value>>,
    /// The matrix of topo. Null if the text does not contain it.
    pub topology: Option<Topology>,
    /// Rows of fuser -v and lsof.
    pub holders: Vec<Holder>,
    /// IDs of the processes that fuser or lsof could not read, by their own messages.
    pub unreadable_pids: BTreeSet<u32>,
    /// Failures of the whole tool.
    pub errors: Vec<ErrorCode>,
    /// Error messages of the driver in the kernel log, in the order of the text.
    pub driver_messages: Vec<DriverMessage>,
    /// Lines that could not be parsed, at most 1000.
    pub unread: Vec<Unread>,
    /// The failures that name a device.
    #[serde(skip)]
    pub device_failures: Vec<DeviceFailure>,
    /// Whether the text lists all MIG devices of its devices.
    #[serde(skip)]
    pub lists_mig: bool,
    /// The indexes of the devices that have a process list in the text; `None` if all have one.
    #[serde(skip)]
    pub listing: Option<BTreeSet<u32>>,
    /// The latest times of the text.
    #[serde(skip)]
    pub times: TextTimes,
}

impl Document {
    /// The maximum number of unread lines kept.
    pub const MAX_UNREAD: usize = 1000;
    /// The maximum number of devices, processes, rows and holders kept, each.
    pub const MAX_ROWS: usize = 100_000;

    /// Returns an empty document.
    pub fn new(kind: Kind) -> Self {
        Document {
            schema: 1,
            kind,
            driver_version: None,
            cuda_version: None,
            gpus: Vec::new(),
            processes: None,
            mig_devices: Vec::new(),
            columns: Vec::new(),
            rows: Vec::new(),
            topology: None,
            holders: Vec::new(),
            unreadable_pids: BTreeSet::new(),
            errors: Vec::new(),
            driver_messages: Vec::new(),
            unread: Vec::new(),
            device_failures: Vec::new(),
            lists_mig: false,
            listing: None,
            times: TextTimes::default(),
        }
    }

    /// Records a line that could not be read; `line` counts from 1.
    pub(crate) fn note_unread(&mut self, line: usize, text: &str, why: &'static str) {
        if self.unread.len() < Self::MAX_UNREAD {
            let text = text.chars().take(200).collect();
            self.unread.push(Unread { line, text, why });
        }
    }
}

/// A failure of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure {
    /// What failed.
    pub code: ErrorCode,
    /// The device as the text names it.
    pub device: NamedDevice,
    /// Whether MIG will be enabled, if that is pending.
    pub enables_mig: bool,
}

/// A device as a failure text names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedDevice {
    /// By its PCI address.
    Bus(gpu_core::PciBusId),
    /// By its index.
    Index(u32),
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unread {
    /// Line number, from 1.
    pub line: usize,
    /// First 200 characters of the line.
    pub text: String,
    /// Why it could not be parsed, as a sentence fragment.
    pub why: &'static str,
}

/// A device, as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// Index of the GPU as printed; in -q and XML its position in the text. Null if CSV lacks the
    /// column.
    pub index: Option<u32>,
    /// Product name, with its ... if it was truncated. Null if the text does not contain it.
    pub name: Option<String>,
    /// PCI bus ID as printed. Null if the text does not contain it.
    pub bus_id: Option<String>,
    /// UUID. Null if the text does not contain it.
    pub uuid: Option<String>,
    /// Minor number. Null if the text does not contain it.
    pub minor: Option<u32>,
    /// Memory in use, in MiB. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_used_mib: Reading<u64>,
    /// Total memory, in MiB. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_total_mib: Reading<u64>,
    /// Memory reserved by the driver and firmware, in MiB. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_reserved_mib: Reading<u64>,
    /// GPU utilisation, in percent. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub utilization_percent: Reading<u64>,
    /// Temperature, in degrees Celsius. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<i64>"))]
    pub temperature_c: Reading<i64>,
    /// Power draw, in watts. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub power_draw_w: Reading<f64>,
    /// Power limit, in watts. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub power_limit_w: Reading<f64>,
    /// Whether persistence mode is enabled. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub persistence: Reading<bool>,
    /// Whether a display is active. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub display_active: Reading<bool>,
    /// Whether MIG mode is enabled. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub mig_enabled: Reading<bool>,
    /// The values that the health of the GPU is judged by.
    #[serde(skip)]
    pub details: gpu_core::DeviceDetails,
}

impl Default for Gpu {
    fn default() -> Self {
        use gpu_core::Absent::NotRecorded;
        Gpu {
            index: None,
            name: None,
            bus_id: None,
            uuid: None,
            minor: None,
            memory_used_mib: Err(NotRecorded),
            memory_total_mib: Err(NotRecorded),
            memory_reserved_mib: Err(NotRecorded),
            utilization_percent: Err(NotRecorded),
            temperature_c: Err(NotRecorded),
            power_draw_w: Err(NotRecorded),
            power_limit_w: Err(NotRecorded),
            persistence: Err(NotRecorded),
            display_active: Err(NotRecorded),
            mig_enabled: Err(NotRecorded),
            details: gpu_core::DeviceDetails::default(),
        }
    }
}

/// A process on a device, as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Index of its GPU. Null if the text does not contain it.
    pub gpu_index: Option<u32>,
    /// UUID of its GPU. Null if the text does not contain it.
    pub gpu_uuid: Option<String>,
    /// PCI bus ID of its GPU. Null if the text does not contain it.
    pub gpu_bus_id: Option<String>,
    /// Process ID. Null if the text does not contain it.
    pub pid: Option<u32>,
    /// Name of its user. Null if the text does not contain it.
    pub user: Option<String>,
    /// Type as printed: C, G, C+G or M+C. Null if the text does not contain it.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Name as printed, including placeholders such as `[Not Found]`. Null if the text does not
    /// contain it.
    pub name: Option<String>,
    /// Memory that the process uses on the GPU, in MiB. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_mib: Reading<u64>,
    /// ID of the MIG GPU instance. Null if the text does not contain it.
    pub gpu_instance_id: Option<u32>,
    /// ID of the MIG compute instance. Null if the text does not contain it.
    pub compute_instance_id: Option<u32>,
}

impl Default for Process {
    fn default() -> Self {
        Process {
            gpu_index: None,
            gpu_uuid: None,
            gpu_bus_id: None,
            pid: None,
            user: None,
            type_: None,
            name: None,
            memory_mib: Err(gpu_core::Absent::NotRecorded),
            gpu_instance_id: None,
            compute_instance_id: None,
        }
    }
}

/// A MIG device, as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MigDevice {
    /// Index of its GPU. Null if the text does not contain it.
    pub gpu_index: Option<u32>,
    /// ID of the GPU instance. Null if the text does not contain it.
    pub gpu_instance_id: Option<u32>,
    /// ID of the compute instance. Null if the text does not contain it.
    pub compute_instance_id: Option<u32>,
    /// Index among the MIG devices of the GPU. Null if the text does not contain it.
    pub mig_index: Option<u32>,
    /// Memory in use, in MiB. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_used_mib: Reading<u64>,
    /// Total memory, in MiB. Null if the text does not contain it.
    #[serde(serialize_with = "value_or_null")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub memory_total_mib: Reading<u64>,
    /// UUID. Null if the text does not contain it.
    pub uuid: Option<String>,
    /// Profile, such as 3g.20gb. Null if the text does not contain it.
    pub profile: Option<String>,
}

impl Default for MigDevice {
    fn default() -> Self {
        use gpu_core::Absent::NotRecorded;
        MigDevice {
            gpu_index: None,
            gpu_instance_id: None,
            compute_instance_id: None,
            mig_index: None,
            memory_used_mib: Err(NotRecorded),
            memory_total_mib: Err(NotRecorded),
            uuid: None,
            profile: None,
        }
    }
}

/// A row of `fuser -v` or `lsof`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// File searched for (fuser), or device numbers (lsof). Null if the text does not contain it.
    pub device: Option<String>,
    /// User name, possibly truncated. Null if the text does not contain it.
    pub user: Option<String>,
    /// Process ID. Null for a kernel mount.
    pub pid: Option<u32>,
    /// Access in fuser's letters, or mount. Null if the text does not contain it.
    pub access: Option<String>,
    /// Command name, possibly truncated. Null if the text does not contain it.
    pub command: Option<String>,
    /// Column FD of lsof. Null if the text does not contain it.
    pub fd: Option<String>,
    /// Column NAME of lsof. Null if the text does not contain it.
    pub name: Option<String>,
}

/// An error message of the driver in the kernel log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DriverMessage {
    /// Time of the message, in milliseconds since 1970-01-01 UTC. Null if its line has no date with
    /// a time zone.
    pub time_unix_ms: Option<u64>,
    /// PCI bus ID of the GPU or the NVSwitch.
    pub bus_id: String,
    /// Number in NVIDIA's Xid catalog. Null if the message only says that the GPU has fallen off
    /// the bus, or is an error of an NVSwitch.
    pub xid: Option<u32>,
    /// Number of an error of an NVSwitch, whose PCI bus ID is then the one above. Null for one of a
    /// GPU.
    pub sxid: Option<u32>,
    /// Process ID on the host. Null if the message has none.
    pub pid: Option<u32>,
    /// Name of the process, at most 100 characters. Null if the message has none.
    pub process: Option<String>,
    /// ID of the MIG GPU instance. Null if the message has none.
    pub gpu_instance_id: Option<u32>,
    /// ID of the MIG compute instance. Null if the message has none.
    pub compute_instance_id: Option<u32>,
    /// Rest of the message, at most 1024 characters.
    pub text: String,
    /// The time of the message, as far as its line has it.
    #[serde(skip)]
    pub(crate) stamp: Option<Stamp>,
}

/// The matrix of `topo`, by its printed names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Topology {
    /// Names of the columns: GPUs, then NICs.
    pub columns: Vec<String>,
    /// Cells by row, then by column, as printed: X, NV12, SYS and so on.
    pub matrix: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// CPU affinity by row. Empty if the text has no such column.
    pub cpu_affinity: BTreeMap<String, Option<String>>,
    /// NUMA affinity by row. Empty if the text has no such column.
    pub numa_affinity: BTreeMap<String, Option<String>>,
}

/// A cell of `pmon` or `dmon`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Value {
    /// `-`.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

/// The failure of a whole tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// nvidia-smi could not talk to the driver.
    DriverNotRunning,
    /// Library and kernel module are of different versions.
    NvmlMismatch,
    /// The CUDA library that a program loads does not fit the driver.
    CudaMismatch,
    /// No devices were found.
    NoDevices,
    /// A device's handle could not be obtained.
    DeviceHandle,
    /// A reset was refused.
    ResetRefused,
    /// There is no `libnvidia-ml.so.1`.
    NoLibrary,
    /// The operating system blocks the device.
    Blocked,
    /// The caller lacks the permission.
    NotPermitted,
    /// A change of the MIG mode is pending.
    MigPending,
    /// All NVLinks of a device are inactive.
    NvlinksInactive,
    /// NVML or CUDA fails with an unknown error at its start: most often a container lost the right
    /// to open its devices.
    LostAccess,
    /// The container runtime cannot give a container its GPUs.
    ContainerRuntime,
    /// The driver got no memory from the kernel: system memory, not that of a device.
    DriverOutOfMemory,
    /// The driver could not initialise a device.
    InitFailed,
    /// The driver's kernel module could not be loaded.
    ModuleNotLoaded,
    /// The kernel reports a task that does not run.
    TaskHung,
    /// The driver works again only after a reboot.
    RebootRequired,
    /// A process was ended because of system memory: by the kernel, a cgroup, Slurm, Kubernetes or
    /// Ray.
    HostMemory,
    /// The memory of a process that ended was not given back in time.
    MemoryNotReturned,
    /// CUDA may create no context on a device: it is exclusive and in use, or prohibited.
    DeviceBusy,
    /// CUDA finds no device.
    NoCudaDevice,
    /// A program asks for a device that does not exist, or that is hidden from it.
    NoSuchDevice,
    /// The driver is older than the CUDA version of the program requires.
    DriverTooOld,
    /// A program was not built for the architecture of the device.
    NoKernelImage,
    /// A kernel of a program accessed memory wrongly, or failed an assertion.
    MemoryAccess,
    /// A kernel ran too long on a device with a display.
    LaunchTimeout,
    /// A program met an uncorrected memory error of a device.
    EccError,
    /// A device behind NVLink switches is not registered with its fabric.
    FabricNotReady,
    /// A process uses CUDA after a fork of one that used it.
    ForkedProcess,
    /// MPS is not reachable.
    MpsUnavailable,
    /// NCCL failed, and does not say why.
    NcclError,
    /// CUDA failed with an unknown error.
    CudaUnknown,
    /// The kernel's driver of an AMD or Intel GPU reports that the GPU hung or was reset.
    GpuHung,
    /// Kubernetes has no GPU for a pod.
    NoFreeGpu,
    /// There is no `nvidia-smi`.
    NoTool,
    /// nvidia-smi does not know an option or a field.
    BadQuery,
    /// Any other failure text.
    Other,
}

/// Keeps a row if there is room; returns whether it was kept.
pub(crate) fn keep<T>(rows: &mut Vec<T>, row: T) -> bool {
    let room = rows.len() < Document::MAX_ROWS;
    if room {
        rows.push(row);
    }
    room
}

fn value_or_null<T: Serialize, S: Serializer>(
    reading: &Reading<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    reading.as_ref().ok().serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;

    #[test]
    fn kind_has_same_name_in_json() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn missing_value_is_null_in_json() {
        let gpu =
            Gpu { memory_used_mib: Ok(7), power_draw_w: Err(Absent::Failed), ..Gpu::default() };
        let json = serde_json::to_value(gpu).unwrap();
        assert_eq!(json["memory_used_mib"], 7);
        assert!(json["power_draw_w"].is_null() && json["name"].is_null());
    }

    #[test]
    fn unread_lines_and_rows_are_bounded() {
        let mut document = Document::new(Kind::Table);
        for line in 0..=Document::MAX_UNREAD {
            document.note_unread(line, &"é".repeat(201), "it is noise");
        }
        assert_eq!(document.unread.len(), Document::MAX_UNREAD);
        assert_eq!(document.unread[0].text, "é".repeat(200));
        let mut rows = vec![(); Document::MAX_ROWS - 1];
        assert!(keep(&mut rows, ()) && !keep(&mut rows, ()));
        assert_eq!(rows.len(), Document::MAX_ROWS);
    }
}
