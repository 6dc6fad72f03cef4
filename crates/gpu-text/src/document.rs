//! The output of every parser: one plain object, with the units that the other tool printed.
//!
//! Serialized, it is the output of `gpuws parse`: a missing value is `null`, never zero, and the
//! field names are a stable contract.

mod failures;
mod other;

use crate::stamp::{Stamp, TextTimes};
pub use failures::{DeviceFailure, ErrorCode, NamedDevice, ReportedFailure};
use gpu_core::Reading;
pub use other::{PartitionMode, Tool};
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
    /// TensorFlow's log of placed operations.
    Placement,
    /// A failure text of a whole tool.
    Error,
    /// Devices and processes, from a tool of AMD or Intel such as `rocm-smi`.
    Other,
}

impl Kind {
    /// All kinds, each with its name in JSON.
    pub const NAMED: [(&str, Kind); 18] = [
        ("table", Kind::Table),
        ("q", Kind::Q),
        ("xml", Kind::Xml),
        ("query_gpu", Kind::QueryGpu),
        ("query_apps", Kind::QueryApps),
        ("list", Kind::List),
        ("pmon", Kind::Pmon),
        ("dmon", Kind::Dmon),
        ("topo", Kind::Topo),
        ("p2p", Kind::P2p),
        ("mig", Kind::Mig),
        ("gpustat", Kind::Gpustat),
        ("fuser", Kind::Fuser),
        ("lsof", Kind::Lsof),
        ("kernel_log", Kind::KernelLog),
        ("placement", Kind::Placement),
        ("error", Kind::Error),
        ("other", Kind::Other),
    ];

    /// Returns the name used in JSON.
    pub const fn name(self) -> &'static str {
        Kind::NAMED[self as usize].0
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
    /// The program that printed a text of kind other; without it in any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// Version of the driver, not of nvidia-smi. Null if the text does not contain it.
    pub driver_version: Option<String>,
    /// CUDA version that the driver supports. Null if the text does not contain it.
    pub cuda_version: Option<String>,
    /// The GPUs, in the order of the text.
    pub gpus: Vec<Gpu>,
    /// The processes. Null if the text has no process table or reports that it is unsupported;
    /// empty if it lists no process.
    pub processes: Option<Vec<Process>>,
    /// The MIG devices.
    pub mig_devices: Vec<MigDevice>,
    /// Column names of pmon, dmon, CSV and the lists of mig.
    pub columns: Vec<String>,
    /// Rows of pmon, dmon, CSV and the lists of mig, by column name.
    pub rows: Vec<BTreeMap<String, Value>>,
    /// The matrix of topo. Null if the text does not contain it.
    pub topology: Option<Topology>,
    /// Rows of fuser -v and lsof.
    pub holders: Vec<Holder>,
    /// IDs of the processes that fuser or lsof could not read, according to their messages.
    pub unreadable_pids: BTreeSet<u32>,
    /// Failures of the whole tool.
    pub errors: Vec<ErrorCode>,
    /// Error messages of the driver in the kernel log, in the order of the text.
    pub driver_messages: Vec<DriverMessage>,
    /// Operations in TensorFlow's log of placements, in the order of the text; without it if there
    /// are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<Placement>,
    /// Lines that could not be parsed, at most 1000.
    pub unread: Vec<Unread>,
    /// The other outputs in the text, in its order; without them if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Document>,
    /// The line that reports each of `errors`, in their order; at most 200 characters each.
    #[serde(skip)]
    pub error_lines: Vec<String>,
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
            tool: None,
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
            placements: Vec::new(),
            unread: Vec::new(),
            others: Vec::new(),
            error_lines: Vec::new(),
            device_failures: Vec::new(),
            lists_mig: false,
            listing: None,
            times: TextTimes::default(),
        }
    }

    /// Records a line that could not be read; `line` counts from 1.
    pub(crate) fn note_unread(&mut self, line: usize, text: &str, why: &'static str) {
        if self.unread.len() < Self::MAX_UNREAD {
            self.unread.push(Unread { line, text: start_of(text), why });
        }
    }

    /// Adds a failure of the whole tool, once, with the line that reports it.
    pub(crate) fn note_error(&mut self, code: ErrorCode, line: &str) {
        if !self.errors.contains(&code) {
            self.errors.push(code);
            self.error_lines.push(start_of(line));
        }
    }
}

/// Returns the start of a line of the text.
fn start_of(line: &str) -> String {
    line.trim().chars().take(200).collect()
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
    /// The partition of a chip that the device is. Without it if the text does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionMode>,
    /// What TensorFlow's log reports of the GPU. Null in any other text.
    pub tensorflow: Option<TensorFlowDevice>,
    /// Whether it is part of a processor and its memory is the host's.
    #[serde(skip)]
    pub shares_host: bool,
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
            partition: None,
            tensorflow: None,
            shares_host: false,
            details: gpu_core::DeviceDetails::default(),
        }
    }
}

/// What TensorFlow's log reports of a device at start-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TensorFlowDevice {
    /// CUDA compute capability, such as 6.1. Null if the text does not contain it.
    pub compute_capability: Option<String>,
    /// Core clock, in MHz, which version 1 calls memoryClockRate. Null if the text does not contain
    /// it.
    pub clock_mhz: Option<u64>,
    /// Free memory, in MiB; the used memory of the GPU is the rest of its total. Null if the text
    /// does not contain it.
    pub memory_free_mib: Option<u64>,
    /// The devices that TensorFlow created on this GPU, in the order of the text.
    pub logical_devices: Vec<LogicalDevice>,
}

/// A device of TensorFlow on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogicalDevice {
    /// Name as printed, such as /job:localhost/replica:0/task:0/device:GPU:0.
    pub name: String,
    /// Memory limit, in MiB. Null if the text does not contain it.
    pub memory_mib: Option<u64>,
}

/// An operation that TensorFlow has placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Placement {
    /// Name of the node. Null if it was executed eagerly.
    pub name: Option<String>,
    /// The operation, such as MatMul. Null if the text does not contain it.
    pub op: Option<String>,
    /// Full name of the device, as printed.
    pub device: String,
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
    /// NVSwitch error number; the PCI bus ID above is then that of the NVSwitch. Null for GPU
    /// errors.
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
    /// The message without its time.
    #[serde(skip)]
    pub(crate) message: gpu_core::DriverMessage,
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

/// A cell of `pmon`, `dmon` or CSV.
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
        for (name, kind) in Kind::NAMED {
            assert_eq!((kind.name(), serde_json::to_value(kind).unwrap()), (name, name.into()));
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
