//! The output of every parser: one plain object, with the units that the other tool printed.
//!
//! Serialized, it is the output of `gpuws parse`: a missing value is `null`, never zero, and the
//! field names are a stable contract.

use gpu_core::Reading;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of text of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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
    /// `fuser -v`.
    Fuser,
    /// `lsof`.
    Lsof,
    /// A failure text of a whole tool.
    Error,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 13] = [
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
        Kind::Fuser,
        Kind::Lsof,
        Kind::Error,
    ];

    /// Returns its name, as it stands in JSON.
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
            Kind::Fuser => "fuser",
            Kind::Lsof => "lsof",
            Kind::Error => "error",
        }
    }
}

/// Everything parsed from one text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// Version of this object's format: 1.
    pub schema: u32,
    /// The kind of the text.
    pub kind: Kind,
    /// Version of the driver (`Driver Version` or `KMD Version`), not of nvidia-smi.
    pub driver_version: Option<String>,
    /// CUDA version (`CUDA Version` or `CUDA UMD Version`).
    pub cuda_version: Option<String>,
    /// The devices, in the order of the text.
    pub gpus: Vec<Gpu>,
    /// The processes; `None` when the text has no process table or says that it is not supported,
    /// empty when it says that there are none.
    pub processes: Option<Vec<Process>>,
    /// MIG devices.
    pub mig_devices: Vec<MigDevice>,
    /// Column names of `pmon` and `dmon`, and of CSV.
    pub columns: Vec<String>,
    /// Rows of `pmon` and `dmon` by column name.
    pub rows: Vec<BTreeMap<String, Value>>,
    /// The matrix of `topo`.
    pub topology: Option<Topology>,
    /// Rows of `fuser -v` and `lsof`.
    pub holders: Vec<Holder>,
    /// Processes that `fuser` or `lsof` could not read, by their own messages.
    pub unreadable_pids: BTreeSet<u32>,
    /// The failure of the whole tool.
    pub errors: Vec<ErrorCode>,
    /// Lines that could not be read, at most [`Document::MAX_UNREAD`] of them.
    pub unread: Vec<Unread>,
}

impl Document {
    /// How many unread lines are kept.
    pub const MAX_UNREAD: usize = 1000;
    /// The most devices, processes, rows or holders that are kept of each.
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
            unread: Vec::new(),
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

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// Line number, from 1.
    pub line: usize,
    /// Its first 200 characters.
    pub text: String,
    /// The reason.
    pub why: &'static str,
}

/// A device, as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// The printed index; in `-q` and XML the position in the file; `None` in CSV without the
    /// column.
    pub index: Option<u32>,
    /// Product name, with its `...` if it was truncated.
    pub name: Option<String>,
    /// PCI address as printed.
    pub bus_id: Option<String>,
    /// UUID.
    pub uuid: Option<String>,
    /// Minor number.
    pub minor: Option<u32>,
    /// Memory used, MiB.
    #[serde(serialize_with = "value_or_null")]
    pub memory_used_mib: Reading<u64>,
    /// Total memory, MiB.
    #[serde(serialize_with = "value_or_null")]
    pub memory_total_mib: Reading<u64>,
    /// Memory reserved by driver and firmware, MiB.
    #[serde(serialize_with = "value_or_null")]
    pub memory_reserved_mib: Reading<u64>,
    /// GPU utilisation, percent.
    #[serde(serialize_with = "value_or_null")]
    pub utilization_percent: Reading<u64>,
    /// Temperature, degrees Celsius.
    #[serde(serialize_with = "value_or_null")]
    pub temperature_c: Reading<i64>,
    /// Power draw, watts.
    #[serde(serialize_with = "value_or_null")]
    pub power_draw_w: Reading<f64>,
    /// Power limit, watts.
    #[serde(serialize_with = "value_or_null")]
    pub power_limit_w: Reading<f64>,
    /// Persistence mode.
    #[serde(serialize_with = "value_or_null")]
    pub persistence: Reading<bool>,
    /// Display active.
    #[serde(serialize_with = "value_or_null")]
    pub display_active: Reading<bool>,
    /// MIG mode.
    #[serde(serialize_with = "value_or_null")]
    pub mig_enabled: Reading<bool>,
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
        }
    }
}

/// A process on a device, as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Index of its device.
    pub gpu_index: Option<u32>,
    /// UUID of its device.
    pub gpu_uuid: Option<String>,
    /// PCI address of its device.
    pub gpu_bus_id: Option<String>,
    /// PID.
    pub pid: Option<u32>,
    /// `C`, `G`, `C+G`, `M+C`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Name as printed, placeholders such as `[Not Found]` included.
    pub name: Option<String>,
    /// Device memory, MiB.
    #[serde(serialize_with = "value_or_null")]
    pub memory_mib: Reading<u64>,
    /// MIG GPU instance.
    pub gpu_instance_id: Option<u32>,
    /// MIG compute instance.
    pub compute_instance_id: Option<u32>,
}

impl Default for Process {
    fn default() -> Self {
        Process {
            gpu_index: None,
            gpu_uuid: None,
            gpu_bus_id: None,
            pid: None,
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
pub struct MigDevice {
    /// Index of the device it is part of.
    pub gpu_index: Option<u32>,
    /// GPU instance.
    pub gpu_instance_id: Option<u32>,
    /// Compute instance.
    pub compute_instance_id: Option<u32>,
    /// Its index among the device's MIG devices.
    pub mig_index: Option<u32>,
    /// Memory used, MiB.
    #[serde(serialize_with = "value_or_null")]
    pub memory_used_mib: Reading<u64>,
    /// Total memory, MiB.
    #[serde(serialize_with = "value_or_null")]
    pub memory_total_mib: Reading<u64>,
    /// UUID.
    pub uuid: Option<String>,
    /// Profile, such as `3g.20gb`.
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
pub struct Holder {
    /// The file searched for (`fuser`), or the device numbers column (`lsof`).
    pub device: Option<String>,
    /// User name, possibly truncated.
    pub user: Option<String>,
    /// PID; `None` for a `kernel mount` row.
    pub pid: Option<u32>,
    /// fuser's access letters, or `mount`.
    pub access: Option<String>,
    /// Command name, possibly truncated.
    pub command: Option<String>,
    /// lsof's FD column.
    pub fd: Option<String>,
    /// lsof's NAME column.
    pub name: Option<String>,
}

/// The matrix of `topo`, by its printed names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Names of the columns: GPUs, then NICs.
    pub columns: Vec<String>,
    /// The cells by row, then by column; `X`, `NV12`, `SYS`, … as printed, without blanks.
    pub matrix: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// CPU affinity by row; empty where the text has no such column.
    pub cpu_affinity: BTreeMap<String, Option<String>>,
    /// NUMA affinity by row; empty where the text has no such column.
    pub numa_affinity: BTreeMap<String, Option<String>>,
}

/// A cell of `pmon` or `dmon`.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// nvidia-smi could not talk to the driver.
    DriverNotRunning,
    /// Library and kernel module are of different versions.
    NvmlMismatch,
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
    /// Any other failure text.
    Other,
}

/// Keeps a row if there is room; returns whether there was.
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
