//! The users of a leased device, as the job may see them.

use crate::ancestry::{descends, lease_of};
use crate::claim_context::ClaimContext;
use crate::offers::is_user;
use gpu_core::{DeviceState, LeaseEntry, Pid, ProcessInfo, Share};

/// Returns the listed processes that make a device of the lease `own` look used within that lease:
/// those of the lease, except placeholders, and if the lease is on the whole device, those without
/// any lease. A safe-gpu outside may have taken the device where no placeholder was possible; a
/// safe-gpu of the job must not take it as well.
///
/// Other jobs that share the device do not count, nor do users that the claim accepted.
pub fn users_within_lease(
    context: &ClaimContext,
    device: &DeviceState,
    own: &LeaseEntry,
    leases: &[LeaseEntry],
    is_placeholder: impl Fn(&ProcessInfo) -> bool,
) -> Vec<Pid> {
    let snapshot = &context.snapshot;
    let is_exclusive = own.claim.share == Share::Whole && !own.claim.accept_used;
    let is_known = |pid| snapshot.sees_host_pids != Ok(false) && snapshot.process(pid).is_ok();
    let listed = device.processes.iter().flatten();
    let users = listed.filter(|process| match descends(snapshot, process.pid, &own.root) {
        true => !snapshot.process(process.pid).is_ok_and(&is_placeholder),
        false => {
            let has_lease = device
                .id()
                .lease_key()
                .is_ok_and(|key| lease_of(snapshot, process.pid, &key, leases).is_some());
            is_exclusive && is_known(process.pid) && !has_lease && is_user(context, device, process)
        }
    });
    users.map(|process| process.pid).collect()
}
