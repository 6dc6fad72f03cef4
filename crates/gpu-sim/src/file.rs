//! The format of `machine.toml`, which describes what recordings do not show.
//!
//! The reference for users is `sim-fixtures/README.md`. An unknown field is an error everywhere: if
//! a misspelt reaction were ignored, a test could pass for the wrong reason.

use crate::product::Products;
use crate::toml_source::TomlSource;
use gpu_core::{DeviceDetails, DeviceProcessKind, MachineFault, MemoryKind, ProcessState, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::value::Datetime;

/// A whole `machine.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineFile {
    pub(crate) description: String,
    pub(crate) clock: Datetime,
    pub(crate) booted: Option<Datetime>,
    pub(crate) hostname: Option<String>,
    #[serde(default)]
    pub(crate) recordings: RecordingsEntry,
    #[serde(default)]
    pub(crate) driver: DriverEntry,
    #[serde(default)]
    pub(crate) viewer: ViewerEntry,
    pub(crate) cards: Option<Spanned<String>>,
    #[serde(default, rename = "card")]
    pub(crate) card_entries: Vec<CardEntry>,
    pub(crate) device_files: Option<Vec<String>>,
    pub(crate) topology: Option<Vec<String>>,
    pub(crate) peers: Option<Vec<String>>,
    pub(crate) paths: Option<Vec<String>>,
    #[serde(default, rename = "product")]
    pub(crate) products: Products,
    #[serde(default, rename = "gpu")]
    pub(crate) gpus: Vec<GpuEntry>,
    #[serde(default)]
    pub(crate) host_memory: Vec<HostMemoryEntry>,
    #[serde(default, rename = "process")]
    pub(crate) processes: Vec<ProcessEntry>,
    #[serde(default, rename = "driver_message")]
    pub(crate) driver_messages: Vec<DriverMessageEntry>,
    #[serde(default, rename = "event")]
    pub(crate) events: Vec<EventEntry>,
}

/// What the files of a card do not show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CardEntry {
    pub(crate) bus: Spanned<String>,
    #[serde(default)]
    pub(crate) memory_leaked_mib: u64,
}

/// Host memory that devices share.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostMemoryEntry {
    pub(crate) node: Option<u32>,
    pub(crate) total_kib: u64,
    #[serde(default)]
    pub(crate) cache_kib: u64,
    #[serde(default)]
    pub(crate) other_kib: u64,
}

/// The files to read from the same directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordingsEntry {
    /// The files with the state of the machine at the start.
    #[serde(default)]
    pub(crate) state: Vec<Spanned<String>>,
    /// The file with the driver's message when it refused a reset.
    pub(crate) reset_refused: Option<Spanned<String>>,
    /// Other files, available by name.
    #[serde(default)]
    pub(crate) other: Vec<Spanned<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriverEntry {
    pub(crate) version: Option<String>,
    pub(crate) cuda: Option<String>,
    pub(crate) fault: Option<MachineFault>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewerEntry {
    pub(crate) uid: Option<u32>,
    pub(crate) user: Option<String>,
    pub(crate) privileged: Option<bool>,
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuEntry {
    pub(crate) index: Spanned<u32>,
    pub(crate) through: Option<u32>,
    pub(crate) name: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) minor: Option<u32>,
    pub(crate) bus: Option<Spanned<String>>,
    pub(crate) memory_kind: Option<MemoryKind>,
    pub(crate) memory_total_mib: Option<u64>,
    pub(crate) driver_reserve_mib: Option<u64>,
    pub(crate) memory_reserved_mib: Option<u64>,
    pub(crate) memory_leaked_mib: Option<u64>,
    pub(crate) idle_utilization_percent: Option<u8>,
    pub(crate) temperature_c: Option<i32>,
    pub(crate) power_draw_mw: Option<u64>,
    pub(crate) power_limit_mw: Option<u64>,
    pub(crate) persistence: Option<bool>,
    pub(crate) display_active: Option<bool>,
    pub(crate) mig_enabled: Option<bool>,
    pub(crate) fault: Option<GpuFault>,
    #[serde(default)]
    pub(crate) unsupported: Vec<Unsupported>,
    #[serde(default)]
    pub(crate) mig: Vec<MigEntry>,
    #[serde(default)]
    pub(crate) details: DeviceDetails,
    #[serde(default)]
    pub(crate) busy: DeviceDetails,
}

/// Values that a device does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unsupported {
    Uuid,
    Minor,
    Bus,
    Memory,
    Processes,
    Utilization,
    Temperature,
    PowerDraw,
    PowerLimit,
    Persistence,
    DisplayActive,
    MigEnabled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GpuFault {
    Lost,
    ResetRequired,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigEntry {
    pub(crate) index: u32,
    pub(crate) uuid: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: Option<u32>,
    pub(crate) memory_total_mib: u64,
    #[serde(default)]
    pub(crate) driver_reserve_mib: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: Spanned<u32>,
    pub(crate) name: Option<String>,
    pub(crate) command_line: Option<Vec<String>>,
    pub(crate) uid: Option<u32>,
    pub(crate) user: Option<String>,
    pub(crate) parent: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) session: Option<u32>,
    pub(crate) cgroup: Option<String>,
    pub(crate) workload: Option<WorkloadEntry>,
    pub(crate) started: Option<Datetime>,
    pub(crate) ignores_hangup: Option<bool>,
    pub(crate) tracer: Option<u32>,
    pub(crate) state: Option<ProcessState>,
    pub(crate) threads: Option<u32>,
    pub(crate) kernel_thread: Option<bool>,
    pub(crate) namespace: Option<NamespaceEntry>,
    /// Whether it has ended but NVML still lists it.
    pub(crate) gone: Option<bool>,
    /// Whether it has opened `/dev/kfd` once.
    pub(crate) opened_kfd: Option<bool>,
    pub(crate) cpu_percent: Option<u32>,
    pub(crate) cpu_time_ms: Option<u64>,
    pub(crate) memory: Option<Vec<MemoryEntry>>,
    pub(crate) files: Option<BTreeMap<String, Spanned<String>>>,
    pub(crate) on_term: Option<ReactionEntry>,
    pub(crate) on_kill: Option<ReactionEntry>,
    pub(crate) memory_returns_after_ms: Option<u64>,
    pub(crate) leaks_memory: Option<bool>,
    pub(crate) respawns_after_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkloadEntry {
    pub(crate) kind: gpu_core::WorkloadKind,
    pub(crate) id: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceEntry {
    pub(crate) name: String,
    pub(crate) pid: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryEntry {
    pub(crate) gpu: Option<u32>,
    pub(crate) card: Option<String>,
    #[serde(default)]
    pub(crate) mib: u64,
    /// Memory of the host that a card has mapped.
    pub(crate) host_mib: Option<u64>,
    pub(crate) partition: Option<u32>,
    pub(crate) client: Option<u32>,
    #[serde(default)]
    pub(crate) inherited: bool,
    #[serde(default = "yes")]
    pub(crate) listed: bool,
    #[serde(default = "compute")]
    pub(crate) kind: DeviceProcessKind,
    /// Whether NVML reports the amount.
    #[serde(default = "yes")]
    pub(crate) reported: bool,
    pub(crate) utilization_percent: Option<u8>,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) compute_instance: Option<u32>,
}

fn yes() -> bool {
    true
}

fn compute() -> DeviceProcessKind {
    DeviceProcessKind::Compute
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReactionEntry {
    Ignores,
    ExitsAfterMs(u64),
    Stuck,
    StuckUntilMs(u64),
    LeavesThreads,
}

/// A message of the driver in the kernel log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriverMessageEntry {
    pub(crate) gpu: Option<u32>,
    pub(crate) bus: Option<Spanned<String>>,
    pub(crate) xid: Option<u32>,
    #[serde(default)]
    pub(crate) fallen_off_bus: bool,
    pub(crate) at: Option<Datetime>,
    pub(crate) seconds_ago: Option<u64>,
    pub(crate) pid: Option<u32>,
    pub(crate) process: Option<String>,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) compute_instance: Option<u32>,
    pub(crate) text: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventEntry {
    pub(crate) at_ms: Option<Spanned<u64>>,
    pub(crate) after_exit_of: Option<Spanned<u32>>,
    #[serde(default)]
    pub(crate) after_ms: u64,
    pub(crate) start: Option<ProcessEntry>,
    pub(crate) exit: Option<u32>,
    pub(crate) let_go: Option<LetGoEntry>,
    pub(crate) uses: Option<UsesEntry>,
    pub(crate) computes: Option<ComputesEntry>,
    pub(crate) joins_group: Option<GroupEntry>,
    pub(crate) joins_cgroup: Option<CgroupEntry>,
    pub(crate) fails: Option<FailsEntry>,
    pub(crate) reports: Option<ReportsEntry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetGoEntry {
    pub(crate) pid: u32,
    pub(crate) gpu: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsesEntry {
    pub(crate) pid: u32,
    pub(crate) gpu: u32,
    pub(crate) mib: u64,
    pub(crate) utilization_percent: u8,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputesEntry {
    pub(crate) pid: u32,
    pub(crate) cpu_percent: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupEntry {
    pub(crate) pid: u32,
    pub(crate) group: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CgroupEntry {
    pub(crate) pid: u32,
    pub(crate) cgroup: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailsEntry {
    pub(crate) gpu: u32,
    pub(crate) fault: GpuFault,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportsEntry {
    pub(crate) gpu: u32,
    pub(crate) xid: u64,
}

impl MachineFile {
    /// Parses a `machine.toml`.
    ///
    /// # Errors
    /// `Invalid`, with the line, and with a suggestion for an unknown field.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| {
            let what = crate::toml_error::plain(error.message());
            TomlSource(text).error(error.span(), &what)
        })
    }
}
