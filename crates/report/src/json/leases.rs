//! `gpuws leases --json`, and the leases on a device in `gpuws status --json`.

use super::claims::{PassedOver, passed_over};
use super::names::Origin;
use super::{Device, Head, Version};
use crate::wording::claims::User as UserName;
use gpu_core::{DeviceState, LeaseEntry};
use gpu_steward::{Listed, Listing, Queued, Refused};
use serde::Serialize;

/// A lease on a GPU or on a part of it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OnDevice {
    /// ID of the lease.
    pub id: String,
    /// Name of the owner, or the user ID if it has no name.
    pub user: String,
    /// User ID of the owner.
    pub uid: u32,
    /// ID of the process that the lease depends on.
    pub pid: u32,
    /// Command line of the claim.
    pub command: String,
    /// Time of the claim, in UTC, as RFC 3339.
    pub since: String,
    /// Memory reserved on each GPU, in bytes. Null for whole GPUs.
    pub share_bytes: Option<u64>,
    /// UUIDs of the leased MIG devices of this GPU. Empty if the lease is on the whole GPU.
    pub mig_uuids: Vec<String>,
    /// Number of leases that this one stands for: more than 1 if they exceed the limits per user.
    /// Some of them may be on other GPUs.
    pub lease_count: usize,
}

impl OnDevice {
    pub(super) fn of(entry: &LeaseEntry, device: &DeviceState, user: UserName<'_>) -> Self {
        let parts = device.partitions.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
        let parts = parts.filter(|uuid| entry.has(uuid));
        OnDevice {
            id: entry.id.to_string(),
            user: user(entry.owner),
            uid: entry.owner,
            pid: entry.root.pid.0,
            command: entry.command.clone(),
            since: entry.since.to_string(),
            share_bytes: entry.claim.memory().map(|bytes| bytes.0),
            mig_uuids: parts.map(ToString::to_string).collect(),
            lease_count: entry.count(),
        }
    }
}

/// All leases and waiting claims.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leases {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// Name of the simulated machine. Null for any other origin.
    pub machine: Option<String>,
    /// Time of the sample, in UTC, as RFC 3339.
    pub taken_at: String,
    /// The leases.
    pub leases: Vec<Lease>,
    /// The waiting claims, in the order of the queue.
    pub queue: Vec<Waiting>,
}

/// A lease.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lease {
    /// The claim that was granted.
    #[serde(flatten)]
    pub entry: Named,
    /// The leased GPUs that are visible.
    pub gpus: Vec<Device>,
    /// UUIDs of the leased devices that are not visible. Empty if it stands for several leases: their
    /// names are not kept.
    pub unseen_gpus: Vec<String>,
    /// Number of leases that this one stands for: more than 1 if they exceed the limits per user.
    pub lease_count: usize,
    /// Processes that use the leased GPUs.
    pub users: Vec<User>,
}

/// A process that uses a leased GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct User {
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// Process ID.
    pub pid: u32,
    /// Short name (comm) of the process. Null if unknown.
    pub name: Option<String>,
    /// Memory that the process uses on the GPU, in bytes. Null if unknown.
    pub memory_bytes: Option<u64>,
}

/// A claim.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    /// ID of the lease or of the waiting claim.
    pub id: String,
    /// Name of the owner, or the user ID if it has no name.
    pub user: String,
    /// User ID of the owner.
    pub uid: u32,
    /// ID of the process that the claim depends on.
    pub pid: u32,
    /// Whether the process that the claim depends on is alive and belongs to the owner.
    pub alive: bool,
    /// Command line of the claim.
    pub command: String,
    /// Time of the claim, in UTC, as RFC 3339.
    pub since: String,
    /// Number of requested GPUs.
    pub count: u32,
    /// Memory requested on each GPU, in bytes. Null for whole GPUs.
    pub share_bytes: Option<u64>,
    /// ID of the lease that this one is nested in. Null if there is none.
    pub within: Option<String>,
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

/// A waiting claim.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waiting {
    /// The claim.
    #[serde(flatten)]
    pub entry: Named,
    /// Number of earlier waiting claims for the same GPUs.
    pub ahead_count: usize,
    /// Whether the waiting process is stopped, so that later claims pass it.
    pub is_stopped: bool,
    /// The GPUs that it cannot get, each with the reason. Empty if only earlier claims block it.
    pub lacks: Vec<PassedOver>,
}

impl Leases {
    /// Returns the object for a listing; `user` names users by number.
    pub fn of(listing: &Listing, user: UserName<'_>) -> Self {
        let lease = |leased: &Listed| Lease {
            entry: Named::of(&leased.entry, leased.root.is_some(), user),
            gpus: leased.devices.iter().filter_map(|(_, id)| id.as_ref()).map(Device::of).collect(),
            unseen_gpus: leased
                .devices
                .iter()
                .filter(|(_, id)| id.is_none())
                .map(|(uuid, _)| uuid.to_string())
                .collect(),
            lease_count: leased.entry.count(),
            users: leased
                .users
                .iter()
                .map(|user| User {
                    gpu_uuid: user.device.to_string(),
                    pid: user.pid.0,
                    name: user.name.clone(),
                    memory_bytes: user.memory.ok().map(|bytes| bytes.0),
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
        let snapshot = &listing.context.snapshot;
        let Head { schema, origin, machine, .. } = Head::of(snapshot);
        Leases {
            schema,
            origin,
            machine,
            taken_at: snapshot.taken_at.to_string(),
            leases: listing.leases.iter().map(lease).collect(),
            queue: listing.queue.iter().map(waiting).collect(),
        }
    }
}
