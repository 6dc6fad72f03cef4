//! What `--json` prints.
//!
//! Each object is a type of its own, made by `of` from what the libraries know, and written by
//! [`write`](crate::write::write). Within it, what a library already has in the form of JSON, such
//! as an enum, is the type of that library.

pub mod claims;
#[cfg(feature = "memory-trace")]
pub mod convert;
pub mod doctor;
pub mod env;
pub mod explain;
pub mod holders;
pub mod hosts;
pub mod leases;
#[cfg(feature = "memory-trace")]
pub mod memory;
pub mod names;
#[cfg(feature = "place")]
pub mod place_graph;
#[cfg(feature = "place")]
pub mod place_model;
pub mod reap;
pub mod record;
pub mod reset;
#[cfg(feature = "place")]
pub mod run_graph;
#[cfg(feature = "place")]
pub mod schedule;
pub mod status;
pub mod topo;
pub mod usage;
pub mod watch;

pub use claims::{Claimed, Released, Run, Wanted};
#[cfg(feature = "memory-trace")]
pub use convert::{Converted, Counts};
pub use doctor::Doctor;
pub use env::{Bounded, Known, Seen};
pub use explain::Explained;
pub use holders::{FoundHolder, Holders};
pub use hosts::Hosts;
pub use leases::Leases;
#[cfg(feature = "memory-trace")]
pub use memory::{Fit, Fitted, Recorded, Replayed};
#[cfg(feature = "place")]
pub use place_graph::PlacedGraph;
#[cfg(feature = "place")]
pub use place_model::PlacedModel;
pub use reap::Reap;
pub use record::RecordedFile;
pub use reset::Reset;
#[cfg(feature = "place")]
pub use run_graph::RanGraph;
#[cfg(feature = "place")]
pub use schedule::ScheduledGraph;
pub use status::Status;
pub use topo::Topo;
pub use usage::Report;
pub use watch::WatchEvent;

use crate::fault::{account, driver_remedy, remedy};
use gpu_core::{Absent, DeviceId, PodName, ProcessState, Reading, Snapshot, Workload};
use names::Origin;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the form of every object here.
pub const SCHEMA: u32 = 1;

/// The version of an object's form: always [`SCHEMA`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(SCHEMA)
    }
}

/// Where the data comes from.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// Name of the simulated machine. Null for any other origin.
    pub machine: Option<String>,
    /// What was recorded: the machine, and the local time. Null for any other origin.
    pub recording: Option<String>,
    /// Hostname of the machine. Null if unknown.
    pub hostname: Option<String>,
    /// Version of the NVIDIA driver. Null if unknown.
    pub driver_version: Option<String>,
    /// CUDA version that the driver supports. Null if unknown.
    pub cuda_version: Option<String>,
    /// Why the driver could not be queried. Null if it could.
    pub driver_error: Option<Failure>,
    /// Time of the sample, in UTC, as RFC 3339. Null for pasted output, which does not contain it.
    pub taken_at: Option<String>,
    /// Number of processes whose open files could not be read. Null if unknown.
    pub unreadable_process_count: Option<u32>,
}

/// Why a query or an action failed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// The failure, as a sentence fragment.
    pub what: String,
    /// What to do about it. Null if there is no general remedy.
    pub remedy: Option<&'static str>,
}

impl Failure {
    fn of(fault: &gpu_core::Fault) -> Self {
        Failure { what: account(fault), remedy: remedy(fault.kind) }
    }

    /// The driver cannot be queried.
    fn of_driver(fault: &gpu_core::Fault) -> Self {
        Failure { what: account(fault), remedy: driver_remedy(fault.kind) }
    }
}

/// Identifiers of a GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// NVML index of the GPU.
    pub index: u32,
    /// UUID of the GPU. Null if unknown.
    pub uuid: Option<String>,
    /// PCI bus ID of the GPU. Null if unknown.
    pub bus_id: Option<String>,
    /// Minor number N of the device file /dev/nvidiaN. Null if unknown.
    pub minor: Option<u32>,
}

impl Device {
    fn of(id: &DeviceId) -> Self {
        Device {
            index: id.index,
            uuid: id.uuid.as_ref().ok().map(ToString::to_string),
            bus_id: id.bus.ok().map(|bus| bus.to_string()),
            minor: id.minor().ok(),
        }
    }
}

impl Head {
    /// Returns the head of the object for a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let driver = snapshot.driver.as_ref().ok();
        let known = snapshot.origin != gpu_core::Origin::Pasted;
        Head {
            schema: Version,
            origin: Origin::from(&snapshot.origin),
            machine: match &snapshot.origin {
                gpu_core::Origin::Simulated(name) => Some(name.clone()),
                _ => None,
            },
            recording: match &snapshot.origin {
                gpu_core::Origin::Recorded(what) | gpu_core::Origin::Copied(what) => {
                    Some(what.clone())
                }
                _ => None,
            },
            hostname: snapshot.hostname.clone().ok(),
            driver_version: driver.and_then(|driver| driver.version.clone().ok()),
            cuda_version: driver.and_then(|driver| driver.cuda.clone().ok()),
            driver_error: snapshot.driver.as_ref().err().map(Failure::of_driver),
            taken_at: known.then(|| snapshot.taken_at.to_string()),
            unreadable_process_count: (known && snapshot.holders.is_ok())
                .then(|| snapshot.unreadable.total()),
        }
    }
}

/// A process.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Process ID.
    pub pid: u32,
    /// Start time, in clock ticks since boot (field 22 of /proc/PID/stat). Null if unknown.
    pub start_ticks: Option<u64>,
    /// Short name (comm), at most 15 bytes on Linux. Null if unknown.
    pub name: Option<String>,
    /// Command line, one string per argument, cut after 4 KiB. Null if unknown.
    pub command_line: Option<Arc<[String]>>,
    /// Name of the effective user. Null if unknown.
    pub user: Option<String>,
    /// Effective user ID. Null if unknown.
    pub uid: Option<u32>,
    /// Process ID of the parent. Null if unknown.
    pub parent_pid: Option<u32>,
    /// State of the main thread. Null if unknown.
    pub state: Option<ProcessState>,
    /// Start time, in UTC, as RFC 3339. Null if unknown.
    pub started_at: Option<String>,
    /// CPU time used so far, user and system, in milliseconds. Null if unknown.
    pub cpu_time_ms: Option<u64>,
    /// Path of the cgroup. Null if unknown.
    pub cgroup: Option<String>,
    /// Container, pod or job of the process. Null if it belongs to none.
    pub workload: Option<Workload>,
    /// Kubernetes pod of the process, by name. Null if it is in none, or its name is unknown.
    pub pod: Option<PodName>,
    /// Process IDs in each PID namespace, from that of the caller inward. Null if unknown.
    pub namespace_pids: Option<Vec<u32>>,
}

impl Process {
    fn of(snapshot: &Snapshot, pid: gpu_core::Pid) -> Self {
        Process::known(pid, snapshot.process(pid).ok())
    }

    fn known(pid: gpu_core::Pid, info: Option<&gpu_core::ProcessInfo>) -> Self {
        Process {
            pid: pid.0,
            start_ticks: info.and_then(|info| Some(info.key.start?.0)),
            name: info.map(|info| info.name.clone()),
            command_line: info.and_then(|info| info.command_line.clone().ok()),
            user: info.and_then(|info| info.user.clone().ok()),
            uid: info.and_then(|info| info.uid.ok()),
            parent_pid: info.and_then(|info| info.parent.ok()).map(|pid| pid.0),
            state: info.and_then(|info| info.state.ok()),
            started_at: info.and_then(|info| info.started_at.ok()).map(|at| at.to_string()),
            cpu_time_ms: info
                .and_then(|info| info.cpu_time.ok())
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            cgroup: info.and_then(|info| info.cgroup.clone().ok()),
            workload: info.and_then(|info| info.workload.as_deref()).cloned(),
            pod: info.and_then(|info| info.pod.as_deref()).cloned(),
            namespace_pids: info
                .and_then(|info| info.namespace_pids.as_ref().ok())
                .map(|pids| pids.iter().map(|pid| pid.0).collect()),
        }
    }
}

/// Returns the value, or notes why there is none.
fn known<T>(
    absent: &mut BTreeMap<&'static str, Absent>,
    name: &'static str,
    reading: Reading<T>,
) -> Option<T> {
    reading.map_err(|reason| absent.insert(name, reason)).ok()
}
