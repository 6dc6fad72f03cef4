//! What `--json` prints: views with their own stable names, apart from the libraries' types.
//!
//! Each object is a type of its own, made by `of` from what the libraries know, and written by
//! [`write`](crate::write::write).

mod claims;
mod convert;
mod details;
mod doctor;
mod env;
mod explain;
mod holders;
mod memory;
mod reap;
mod record;
mod reset;
mod status;
mod topo;

pub use claims::{Claimed, Leases, Released, Run, Wanted};
pub use convert::{Converted, Counts};
pub use doctor::Doctor;
pub use env::{Bounded, Known, Seen};
pub use explain::Explained;
pub use holders::{FoundHolder, Holders};
pub use memory::{Fit, Fitted, Recorded, Replayed};
pub use reap::Reap;
pub use record::RecordedFile;
pub use reset::Reset;
pub use status::Status;
pub use topo::Topo;

use crate::fault::{account, remedy};
use gpu_core::{DeviceId, Origin, Snapshot};
use serde::Serialize;
use std::sync::Arc;

/// Version of the form of every object here.
pub const SCHEMA: u32 = 1;

/// Where the figures come from.
#[derive(Serialize)]
pub struct Head {
    schema: u32,
    /// `live`, `simulated` or `pasted`.
    origin: &'static str,
    /// Name of the simulated machine.
    machine: Option<String>,
    hostname: Option<String>,
    driver_version: Option<String>,
    cuda_version: Option<String>,
    /// Why no driver answers.
    driver_error: Option<Failure>,
    /// Null for pasted text, which does not say.
    taken_at: Option<String>,
    /// Null where nobody knows.
    unreadable_process_count: Option<u32>,
}

/// Why something could not be asked, and what to do about it.
#[derive(Serialize)]
struct Failure {
    what: String,
    remedy: Option<&'static str>,
}

impl Failure {
    fn of(fault: &gpu_core::Fault) -> Self {
        Failure { what: account(fault), remedy: remedy(fault.kind) }
    }
}

/// A device by its names.
#[derive(Serialize)]
struct Device {
    index: u32,
    uuid: Option<String>,
    bus_id: Option<String>,
    minor: Option<u32>,
}

impl Device {
    fn of(id: &DeviceId) -> Self {
        Device {
            index: id.index,
            uuid: id.uuid.as_ref().ok().map(ToString::to_string),
            bus_id: id.bus.ok().map(|bus| bus.to_string()),
            minor: id.minor.ok(),
        }
    }
}

impl Head {
    /// Returns the head of what is told of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let driver = snapshot.driver.as_ref().ok();
        let known = snapshot.origin != Origin::Pasted;
        Head {
            schema: SCHEMA,
            origin: origin(&snapshot.origin),
            machine: match &snapshot.origin {
                Origin::Simulated(name) => Some(name.clone()),
                _ => None,
            },
            hostname: snapshot.hostname.clone().ok(),
            driver_version: driver.and_then(|driver| driver.version.clone().ok()),
            cuda_version: driver.and_then(|driver| driver.cuda.clone().ok()),
            driver_error: snapshot.driver.as_ref().err().map(Failure::of),
            taken_at: known.then(|| snapshot.taken_at.to_string()),
            unreadable_process_count: (known && snapshot.holders.is_ok())
                .then(|| snapshot.unreadable.total()),
        }
    }
}

/// A process with what people know it by.
#[derive(Serialize)]
struct Process {
    pid: u32,
    start_ticks: Option<u64>,
    name: Option<String>,
    command_line: Option<Arc<[String]>>,
    user: Option<String>,
    uid: Option<u32>,
    parent_pid: Option<u32>,
    state: Option<gpu_core::ProcessState>,
    started_at: Option<String>,
    cpu_time_ms: Option<u64>,
    cgroup: Option<String>,
    workload: Option<Box<gpu_core::Workload>>,
    namespace_pids: Option<Vec<u32>>,
}

impl Process {
    fn of(snapshot: &Snapshot, pid: gpu_core::Pid) -> Self {
        let info = snapshot.process(pid).ok();
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
            workload: info.and_then(|info| info.workload.clone()),
            namespace_pids: info
                .and_then(|info| info.namespace_pids.as_ref().ok())
                .map(|pids| pids.iter().map(|pid| pid.0).collect()),
        }
    }
}

/// The word for where figures come from.
pub fn origin(origin: &Origin) -> &'static str {
    match origin {
        Origin::Live => "live",
        Origin::Simulated(_) => "simulated",
        Origin::Pasted => "pasted",
    }
}
