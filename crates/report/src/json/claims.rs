//! `gpuws claim --json`, `gpuws run --json` and `gpuws leases --json`.

use super::{Device, SCHEMA, origin};
use crate::wording::claims::{User as UserName, passed};
use gpu_core::{Bytes, DeviceId, DeviceState, JobExit, LeaseEntry, Origin, Reading};
use gpu_reaper::Outcome;
use gpu_steward::{Decision, Grant, Listed, Listing, Preview, Queued, Refused, RunReport};
use serde::Serialize;

/// A lease that was granted.
#[derive(Serialize)]
pub struct Claimed {
    schema: u32,
    origin: &'static str,
    lease: String,
    gpus: Vec<Device>,
    passed_over: Vec<PassedOver>,
}

#[derive(Serialize)]
struct PassedOver {
    #[serde(flatten)]
    device: Device,
    why: String,
}

fn passed_over<'a>(
    all: impl Iterator<Item = (&'a DeviceId, &'a gpu_placement::Passed)>,
    user: UserName<'_>,
) -> Vec<PassedOver> {
    all.map(|(id, why)| PassedOver { device: Device::of(id), why: passed(why, user) }).collect()
}

impl Claimed {
    /// Returns what is told of a lease; `user` names users by number.
    pub fn of(grant: &Grant, user: UserName<'_>) -> Self {
        let decision = grant.decision.as_ref();
        Claimed {
            schema: SCHEMA,
            origin: origin(&grant.scene.snapshot.origin),
            lease: grant.entry.id.to_string(),
            gpus: grant.devices.iter().map(Device::of).collect(),
            passed_over: decision
                .map_or(Vec::new(), |decision| passed_over(decision.passed(), user)),
        }
    }
}

/// What a claim would get now.
#[derive(Serialize)]
pub struct Wanted {
    schema: u32,
    origin: &'static str,
    /// It can be had now.
    possible: bool,
    gpus: Vec<Device>,
    passed_over: Vec<PassedOver>,
    ahead_count: usize,
}

impl Wanted {
    /// Returns what is told of a look; `user` names users by number.
    pub fn of(seen: &Preview, user: UserName<'_>) -> Self {
        let (gpus, passed_over) = match &seen.decision {
            Ok(decision) => (named(decision), passed_over(decision.passed(), user)),
            Err(refused) => (Vec::new(), passed_over(refused.passed(), user)),
        };
        Wanted {
            schema: SCHEMA,
            origin: origin(&seen.scene.snapshot.origin),
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

/// A lease that was given back.
#[derive(Serialize)]
pub struct Released {
    schema: u32,
    origin: &'static str,
    lease: String,
    gpu_uuids: Vec<String>,
}

impl Released {
    /// Returns what is told of a lease of a machine.
    pub fn of(lease: &LeaseEntry, machine: &Origin) -> Self {
        Released {
            schema: SCHEMA,
            origin: origin(machine),
            lease: lease.id.to_string(),
            gpu_uuids: lease.devices.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What a run came to.
#[derive(Serialize)]
pub struct Run {
    schema: u32,
    origin: &'static str,
    lease: String,
    /// What gpuws itself ends with: 124 where the time limit ended the command.
    exit_code: u8,
    /// What the command ended with; null where a signal ended it.
    command_exit_code: Option<i32>,
    command_signal_code: Option<i32>,
    limit_hit: bool,
    elapsed_ms: u64,
    gpu_time_ms: u64,
    gpus: Vec<Used>,
    left_behind: Vec<Left>,
    still_there_by_pid: Vec<u32>,
    /// The devices stay leased for some of those.
    lease_stays: bool,
    /// Null where it could not be seen.
    memory_back: Option<bool>,
}

#[derive(Serialize)]
struct Used {
    #[serde(flatten)]
    device: Device,
    peak_memory_bytes: Option<u64>,
    /// The memory that it had; null for a whole device.
    share_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Left {
    pid: u32,
    name: String,
    outcome: Outcome,
}

impl Run {
    /// Returns what is told of a run that ends with this code; `share` is the memory that it had of
    /// each device.
    pub fn of(report: &RunReport, exit_code: u8, share: Option<Bytes>, machine: &Origin) -> Self {
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
            outcome: action.outcome.clone(),
        });
        let (command_exit_code, command_signal_code) = match report.ending {
            JobExit::Code(code) => (Some(code), None),
            JobExit::Signal(signal) => (None, Some(signal)),
        };
        Run {
            schema: SCHEMA,
            origin: origin(machine),
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

/// A lease, as the view of one of its devices has it.
#[derive(Serialize)]
pub(super) struct OnDevice {
    id: String,
    user: String,
    uid: u32,
    pid: u32,
    command: String,
    since: String,
    /// Memory of each device; null for whole devices.
    share_bytes: Option<u64>,
    /// The MIG devices of this one that it is on; none where it is on the whole.
    mig_uuids: Vec<String>,
}

impl OnDevice {
    pub(super) fn of(entry: &LeaseEntry, device: &DeviceState, user: UserName<'_>) -> Self {
        let parts = device.mig.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
        let parts = parts.filter(|uuid| entry.devices.contains(uuid));
        OnDevice {
            id: entry.id.to_string(),
            user: user(entry.owner),
            uid: entry.owner,
            pid: entry.root.pid.0,
            command: entry.command.clone(),
            since: entry.since.to_string(),
            share_bytes: entry.claim.memory().map(|bytes| bytes.0),
            mig_uuids: parts.map(ToString::to_string).collect(),
        }
    }
}

/// All leases and who waits.
#[derive(Serialize)]
pub struct Leases {
    schema: u32,
    origin: &'static str,
    leases: Vec<Lease>,
    queue: Vec<Waiting>,
}

#[derive(Serialize)]
struct Lease {
    #[serde(flatten)]
    entry: Named,
    gpus: Vec<Device>,
    /// The UUIDs of devices that are not seen here.
    unseen_gpus: Vec<String>,
    users: Vec<User>,
}

#[derive(Serialize)]
struct User {
    gpu_uuid: String,
    pid: u32,
    name: Option<String>,
    memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Named {
    id: String,
    user: String,
    uid: u32,
    pid: u32,
    /// The process is there, and the user's.
    alive: bool,
    command: String,
    since: String,
    count: u32,
    /// Memory of each device; null for whole devices.
    share_bytes: Option<u64>,
    within: Option<String>,
}

impl Named {
    fn of(entry: &LeaseEntry, alive: bool, user: UserName<'_>) -> Self {
        Named {
            id: entry.id.to_string(),
            user: user(entry.owner),
            uid: entry.owner,
            pid: entry.root.pid.0,
            alive,
            command: entry.command.clone(),
            since: entry.since.to_string(),
            count: entry.claim.count,
            share_bytes: entry.claim.memory().map(|bytes| bytes.0),
            within: entry.within.first().map(|outer| outer.id.to_string()),
        }
    }
}

#[derive(Serialize)]
struct Waiting {
    #[serde(flatten)]
    entry: Named,
    ahead_count: usize,
    is_stopped: bool,
    lacks: Vec<PassedOver>,
}

impl Leases {
    /// Returns what is told of a listing; `user` names users by number.
    pub fn of(listing: &Listing, user: UserName<'_>) -> Self {
        let known = |reading: Reading<gpu_core::Bytes>| reading.ok().map(|bytes| bytes.0);
        let lease = |leased: &Listed| Lease {
            entry: Named::of(&leased.entry, leased.root.is_some(), user),
            gpus: leased.devices.iter().filter_map(|(_, id)| id.as_ref()).map(Device::of).collect(),
            unseen_gpus: leased
                .devices
                .iter()
                .filter(|(_, id)| id.is_none())
                .map(|(uuid, _)| uuid.to_string())
                .collect(),
            users: leased
                .users
                .iter()
                .map(|user| User {
                    gpu_uuid: user.device.to_string(),
                    pid: user.pid.0,
                    name: user.name.clone(),
                    memory_bytes: known(user.memory),
                })
                .collect(),
        };
        let waiting = |queued: &Queued| Waiting {
            entry: Named::of(&queued.entry, queued.root.is_some(), user),
            ahead_count: queued.ahead,
            is_stopped: queued.is_stopped,
            lacks: queued
                .lacks
                .as_ref()
                .map_or(Vec::new(), |lacks: &Refused| passed_over(lacks.passed(), user)),
        };
        Leases {
            schema: SCHEMA,
            origin: origin(&listing.scene.snapshot.origin),
            leases: listing.leases.iter().map(lease).collect(),
            queue: listing.queue.iter().map(waiting).collect(),
        }
    }
}
