//! `gpuws claim --json` and `gpuws run --json`.

use super::names::Origin;
use super::reap::Outcome;
use super::{Device, Version};
use crate::wording::claims::{User as UserName, passed};
use gpu_core::{Bytes, DeviceId, JobExit, LeaseEntry};
use gpu_steward::{Decision, Grant, Preview, RunReport};
use serde::Serialize;

/// A lease that was granted.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claimed {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// ID of the lease.
    pub lease: String,
    /// The leased GPUs.
    pub gpus: Vec<Device>,
    /// The other GPUs, each with the reason.
    pub passed_over: Vec<PassedOver>,
}

/// A GPU that was not chosen.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PassedOver {
    /// The GPU.
    #[serde(flatten)]
    pub device: Device,
    /// Why it was not chosen, as a sentence fragment.
    pub why: String,
}

pub(super) fn passed_over<'a>(
    all: impl Iterator<Item = (&'a DeviceId, &'a gpu_placement::Passed)>,
    user: UserName<'_>,
) -> Vec<PassedOver> {
    all.map(|(id, why)| PassedOver { device: Device::of(id), why: passed(why, user, None) })
        .collect()
}

impl Claimed {
    /// Returns the object for a lease; `user` names users by number.
    pub fn of(grant: &Grant, user: UserName<'_>) -> Self {
        let decision = grant.decision.as_ref();
        Claimed {
            schema: Version,
            origin: Origin::from(&grant.context.snapshot.origin),
            lease: grant.entry.id.to_string(),
            gpus: grant.devices.iter().map(Device::of).collect(),
            passed_over: decision
                .map_or(Vec::new(), |decision| passed_over(decision.passed(), user)),
        }
    }
}

/// What a claim would get now.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wanted {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// Whether the claim can be granted now.
    pub possible: bool,
    /// The GPUs that it would get. Empty if it cannot be granted now.
    pub gpus: Vec<Device>,
    /// The other GPUs, each with the reason.
    pub passed_over: Vec<PassedOver>,
    /// Number of waiting claims that come first.
    pub ahead_count: usize,
}

impl Wanted {
    /// Returns the object for a snapshot; `user` names users by number.
    pub fn of(seen: &Preview, user: UserName<'_>) -> Self {
        let (gpus, passed_over) = match &seen.decision {
            Ok(decision) => (named(decision), passed_over(decision.passed(), user)),
            Err(refused) => (Vec::new(), passed_over(refused.passed(), user)),
        };
        Wanted {
            schema: Version,
            origin: Origin::from(&seen.context.snapshot.origin),
            possible: seen.decision.is_ok(),
            gpus,
            passed_over,
            ahead_count: seen.ahead.len(),
        }
    }
}

fn named(decision: &Decision) -> Vec<Device> {
    decision.devices().iter().map(Device::of).collect()
}

/// A lease that was released.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Released {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// ID of the lease.
    pub lease: String,
    /// UUIDs of the GPUs or MIG devices that were leased.
    pub gpu_uuids: Vec<String>,
}

impl Released {
    /// Returns the object for a lease of a machine.
    pub fn of(lease: &LeaseEntry, machine: &gpu_core::Origin) -> Self {
        Released {
            schema: Version,
            origin: Origin::from(machine),
            lease: lease.id.to_string(),
            gpu_uuids: lease.devices.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The result of a command that ran on leased GPUs.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// ID of the lease.
    pub lease: String,
    /// Exit code of gpuws itself: 124 if the time limit ended the command.
    pub exit_code: u8,
    /// Exit code of the command. Null if a signal ended it.
    pub command_exit_code: Option<i32>,
    /// Number of the signal that ended the command. Null if the command exited.
    pub command_signal_code: Option<i32>,
    /// Whether the time limit ended the command.
    pub limit_hit: bool,
    /// Wall time of the command, in milliseconds.
    pub elapsed_ms: u64,
    /// Time of the lease, summed over the GPUs, in milliseconds.
    pub gpu_time_ms: u64,
    /// The leased GPUs.
    pub gpus: Vec<Used>,
    /// Processes that the command left behind, and how each ended.
    pub left_behind: Vec<Left>,
    /// IDs of the processes of the command that are still running.
    pub still_there_by_pid: Vec<u32>,
    /// Whether the lease is kept for processes that are still running.
    pub lease_stays: bool,
    /// Whether all memory of the command was seen free afterwards. Null if it could not be
    /// measured.
    pub memory_back: Option<bool>,
}

/// A GPU that a command had.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Used {
    /// The GPU.
    #[serde(flatten)]
    pub device: Device,
    /// Peak memory use of the command, sampled each second, in bytes. Null if it could not be read.
    pub peak_memory_bytes: Option<u64>,
    /// Memory that the lease reserved, in bytes. Null if it was the whole GPU.
    pub share_bytes: Option<u64>,
}

/// A process that a command left behind.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Left {
    /// Process ID.
    pub pid: u32,
    /// Short name (comm) of the process.
    pub name: String,
    /// What became of the process.
    pub outcome: Outcome,
}

impl Run {
    /// Returns the object for a run that ends with this code; `share` is the memory that it had of
    /// each device.
    pub fn of(
        report: &RunReport,
        exit_code: u8,
        share: Option<Bytes>,
        machine: &gpu_core::Origin,
    ) -> Self {
        let millis =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let used = report.devices.iter().map(|used| Used {
            device: Device::of(&used.device),
            peak_memory_bytes: used.peak.ok().map(|bytes| bytes.0),
            share_bytes: share.map(|bytes| bytes.0),
        });
        let left = report.left_behind.iter().map(|action| Left {
            pid: action.pid.0,
            name: action.name.clone(),
            outcome: Outcome::of(&action.outcome),
        });
        let (command_exit_code, command_signal_code) = match report.ending {
            JobExit::Code(code) => (Some(code), None),
            JobExit::Signal(signal) => (None, Some(signal)),
        };
        Run {
            schema: Version,
            origin: Origin::from(machine),
            lease: report.lease.to_string(),
            exit_code,
            command_exit_code,
            command_signal_code,
            limit_hit: report.limit_hit,
            elapsed_ms: millis(report.elapsed),
            gpu_time_ms: millis(report.device_time()),
            gpus: used.collect(),
            left_behind: left.collect(),
            still_there_by_pid: report.still_there.iter().map(|info| info.key.pid.0).collect(),
            lease_stays: report.lease_stays,
            memory_back: report.memory_back.ok(),
        }
    }
}
