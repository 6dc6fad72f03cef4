//! Leases and the queue.

use crate::catalog::Metric;
use crate::context::Context;
use crate::labels::{Labels, names_of};
use crate::metrics::{Metrics, from_milli, number};
use crate::users::{add_by_user, by_user};
use gpu_claim::Ledger;
use gpu_core::{Bytes, DeviceState, DeviceUuid, LeaseEntry, LeaseId, Share};
use gpu_steward::LeaseUser;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn add(context: &Context<'_>, metrics: &mut Metrics) {
    let Some(ledger) = context.ledger else { return };
    add_queue(context, ledger, metrics);
    let top = &context.top;
    let owners = top.iter().map(|lease| (context.user(Some(lease.owner)), lease.count() as u64));
    add_by_user(Metric::Leases, owners, metrics);
    let used = used(&context.used, ledger);
    let mut unused = Vec::new();
    for (index, (device, labels)) in context.devices().enumerate() {
        let is_on = |lease: &&LeaseEntry| names_of(device).any(|name| lease.has(&name));
        let on: Vec<&LeaseEntry> = top.iter().filter(is_on).collect();
        metrics.add(Metric::GpuLeases, labels.only(), number(on.len() as u64));
        if let Some(bytes) = reserved(device, &on) {
            metrics.add(Metric::GpuLeasedMemory, labels.only(), number(bytes.0));
        }
        if device.processes.is_ok() {
            let is_used = |lease: &LeaseEntry| {
                names_of(device).any(|name| used.contains(&(&lease.id, lease.owner, &*name)))
            };
            let owners = on.iter().filter(|lease| !is_used(lease)).map(|lease| lease.owner);
            unused.extend(owners.map(|owner| (index, context.user(Some(owner)), 1)));
        }
    }
    for ((index, user), count) in by_user(unused.into_iter()) {
        let labels = context.labels[index].and("user", user);
        metrics.add(Metric::GpuLeasesUnused, labels, number(count));
    }
    if let Some(jobs) = &context.jobs {
        for (device, labels) in context.devices() {
            let left_out = number(jobs.left_out(device.id().index));
            metrics.add(Metric::GpuJobsLeftOut, labels.only(), left_out);
        }
        for (location, job) in jobs.all() {
            let is_it = |(device, _): &(&DeviceState, &Labels)| device.id().index == location.gpu;
            let Some((_, labels)) = context.devices().find(is_it) else { continue };
            let [index, uuid] = labels.only();
            let instance = location.gpu_instance.map(|id| id.to_string()).unwrap_or_default();
            let user = context.user(job.uid);
            let labels =
                [index, uuid, ("gpu_instance", &*instance), ("hpc_job", &*job.id), ("user", user)];
            metrics.add(Metric::GpuJob, labels, 1.0);
        }
    }
}

fn add_queue(context: &Context<'_>, ledger: &Ledger, metrics: &mut Metrics) {
    let Ledger { waiters, stalled, .. } = ledger;
    for (state, claims) in [("waiting", waiters), ("stalled", stalled)] {
        metrics.add(Metric::QueueClaims, [("state", state)], number(claims.len() as u64));
    }
    let gpus = waiters.iter().map(|claim| u64::from(claim.claim.count)).sum();
    metrics.add(Metric::QueueGpus, [], number(gpus));
    // Clamp to now: the claimant wrote this timestamp.
    if let Some(oldest) = waiters.iter().map(|claim| claim.since.0).min() {
        let now = context.snapshot.taken_at.0;
        metrics.add(Metric::QueueOldest, [], from_milli(oldest.min(now)));
    }
    let owners = waiters.iter().map(|claim| (context.user(Some(claim.owner)), 1));
    add_by_user(Metric::UserQueuedClaims, owners, metrics);
}

/// Returns the leases in use, each with the device: a process below a lease that was taken out of
/// another uses the outer one too.
pub(crate) fn used<'s>(
    users: &'s BTreeMap<(&LeaseId, u32), Vec<LeaseUser>>,
    ledger: &'s Ledger,
) -> BTreeSet<(&'s LeaseId, u32, &'s DeviceUuid)> {
    let mut used = BTreeSet::new();
    for ((id, owner), users) in users {
        let is_it = |lease: &&LeaseEntry| (&lease.id, lease.owner) == (*id, *owner);
        let Some(mut lease) = ledger.leases.iter().find(is_it) else { continue };
        // Limit the steps to the number of leases, because leases can be written in a circle.
        for _ in 0..ledger.leases.len() {
            let Some(outer) = ledger.parent_of(lease) else { break };
            lease = outer;
        }
        used.extend(users.iter().map(|user| (&lease.id, lease.owner, &user.device)));
    }
    used
}

/// Returns the memory of a device that leases reserve, at most all of it; `None` if the memory of
/// the whole device or a part is unknown.
fn reserved(device: &DeviceState, leases: &[&LeaseEntry]) -> Option<Bytes> {
    let total = device.memory_total().ok()?;
    let key = device.id().lease_key().ok()?;
    let mut sum = Bytes(0);
    for lease in leases {
        sum += match lease.claim.share {
            Share::Memory(bytes) => bytes.min(total),
            Share::Whole if lease.has(&key) => total,
            Share::Whole => {
                let parts = device.partitions.iter().flatten();
                let leased = |part: &&gpu_core::Partition| {
                    part.uuid.as_ref().is_ok_and(|uuid| lease.has(uuid))
                };
                parts.filter(leased).map(|part| part.memory.total.ok()).sum::<Option<Bytes>>()?
            }
        };
    }
    Some(sum.min(total))
}
