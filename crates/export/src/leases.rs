//! Leases and the queue.

use crate::catalog::Metric;
use crate::gpus::Labels;
use crate::look::{Scene, number, seconds};
use crate::metrics::Metrics;
use crate::users::add_by_user;
use gpu_claim::Ledger;
use gpu_core::{Bytes, DeviceState, DeviceUuid, LeaseEntry, LeaseId, Share};
use gpu_steward::lease_users;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn add(scene: &Scene<'_>, metrics: &mut Metrics) {
    let Some(ledger) = scene.ledger else { return };
    add_queue(scene, ledger, metrics);
    let top = &scene.top;
    let owners = top.iter().map(|lease| (scene.user(Some(lease.owner)), 1));
    add_by_user(Metric::Leases, owners, metrics);
    let used = used(scene, ledger);
    for device in &scene.snapshot.devices {
        let names = names_of(device);
        let on: Vec<&LeaseEntry> =
            top.iter().filter(|lease| names.iter().any(|n| lease.devices.contains(n))).collect();
        let labels = Labels::of(device.id());
        metrics.add(Metric::GpuLeases, labels.only(), number(on.len() as u64));
        if let Some(bytes) = reserved(device, &on) {
            metrics.add(Metric::GpuLeasedMemory, labels.only(), number(bytes.0));
        }
        if device.processes.is_ok() {
            let mut unused: BTreeMap<&str, u64> = BTreeMap::new();
            let is_used = |lease: &LeaseEntry| {
                names.iter().any(|name| used.contains(&(&lease.id, lease.owner, (*name).clone())))
            };
            for lease in on.iter().filter(|lease| !is_used(lease)) {
                *unused.entry(scene.user(Some(lease.owner))).or_default() += 1;
            }
            for (user, count) in unused {
                metrics.add(Metric::GpuLeasesUnused, labels.and("user", user), number(count));
            }
        }
    }
    if let Some(jobs) = &scene.jobs {
        for (place, job) in jobs.all() {
            let Some(device) =
                scene.snapshot.devices.iter().find(|device| device.id().index == place.gpu)
            else {
                continue;
            };
            let labels = Labels::of(device.id());
            let [index, uuid] = labels.only();
            let instance = place.gpu_instance.map(|id| id.to_string()).unwrap_or_default();
            let user = scene.user(job.uid);
            let labels =
                [index, uuid, ("gpu_instance", &*instance), ("hpc_job", &*job.id), ("user", user)];
            metrics.add(Metric::GpuJob, labels, 1.0);
        }
    }
}

fn add_queue(scene: &Scene<'_>, ledger: &Ledger, metrics: &mut Metrics) {
    let Ledger { waiters, stalled, .. } = ledger;
    for (state, claims) in [("waiting", waiters), ("stalled", stalled)] {
        metrics.add(Metric::QueueClaims, [("state", state)], number(claims.len() as u64));
    }
    let gpus = waiters.iter().map(|claim| u64::from(claim.claim.count)).sum();
    metrics.add(Metric::QueueGpus, [], number(gpus));
    // Nobody waits since the future, whatever the claim says.
    if let Some(oldest) = waiters.iter().map(|claim| claim.since.0).min() {
        let now = scene.snapshot.taken_at.0;
        metrics.add(Metric::QueueOldest, [], seconds(oldest.min(now)));
    }
    let owners = waiters.iter().map(|claim| (scene.user(Some(claim.owner)), 1));
    add_by_user(Metric::UserQueuedClaims, owners, metrics);
}

/// Returns the UUIDs of a device and of its parts.
pub(crate) fn names_of(device: &DeviceState) -> Vec<&DeviceUuid> {
    let parts = device.mig.iter().flatten().filter_map(|part| part.uuid.as_ref().ok());
    device.id().uuid.as_ref().ok().into_iter().chain(parts).collect()
}

/// Returns the leases that are used, each with the device: a process below a lease that was taken
/// out of another uses the outer one too.
fn used<'s>(scene: &Scene<'_>, ledger: &'s Ledger) -> BTreeSet<(&'s LeaseId, u32, DeviceUuid)> {
    let mut used = BTreeSet::new();
    for ((id, owner), users) in lease_users(scene.snapshot, &ledger.leases) {
        let is_it = |lease: &&LeaseEntry| (&lease.id, lease.owner) == (id, owner);
        let Some(mut lease) = ledger.leases.iter().find(is_it) else { continue };
        // Whoever writes leases in a circle gets no more steps than there are leases.
        for _ in 0..ledger.leases.len() {
            let Some(outer) = ledger.parent_of(lease) else { break };
            lease = outer;
        }
        used.extend(users.into_iter().map(|user| (&lease.id, lease.owner, user.device)));
    }
    used
}

/// Returns the memory of a device that leases reserve, at most all of it; `None` if it is unknown
/// how much a whole device or a part has.
fn reserved(device: &DeviceState, leases: &[&LeaseEntry]) -> Option<Bytes> {
    let total = device.memory_total().ok()?;
    let uuid = device.id().uuid.as_ref().ok()?;
    let mut sum = Bytes(0);
    for lease in leases {
        sum += match lease.claim.share {
            Share::Memory(bytes) => bytes.min(total),
            Share::Whole if lease.devices.contains(uuid) => total,
            Share::Whole => {
                let parts = device.mig.iter().flatten();
                let leased = |part: &&gpu_core::MigInstance| {
                    part.uuid.as_ref().is_ok_and(|uuid| lease.devices.contains(uuid))
                };
                parts.filter(leased).map(|part| part.memory.total.ok()).sum::<Option<Bytes>>()?
            }
        };
    }
    Some(sum.min(total))
}
