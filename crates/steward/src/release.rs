//! The release of a lease that only the caller's own holders keep alive.

use crate::lease_holders::LeaseKeepers;
use gpu_core::{
    ActToken, Clock, EntryKind, Error, LeaseEntry, LeaseId, LeaseStore, OuterLease, Pid,
    ProcessFault, ProcessInfo, Result, Signal,
};
use std::time::Duration;

/// The time limit for the lease to disappear. A holder ends at once, but a busy machine may delay
/// it.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Why a lease was not released.
#[derive(Debug)]
pub enum ReleaseError {
    /// It belongs to another user.
    NotOwned(Box<LeaseEntry>),
    /// No such lease exists.
    NotFound,
    /// This lease was taken out of it.
    HasInner(Box<LeaseEntry>),
    /// It belongs to a run, and ends with this supervisor.
    IsOfRun(Pid),
    /// Programs that may have another purpose keep it.
    KeptByOthers(Vec<ProcessInfo>),
    /// No process that keeps it is visible.
    Unseen,
    /// The process that keeps it did not end.
    StillThere,
    /// A read or a signal failed.
    Failed(Error),
}

impl From<Error> for ReleaseError {
    fn from(error: Error) -> Self {
        ReleaseError::Failed(error)
    }
}

/// Ends the programs that keep a lease of the caller, verifies that it is gone, and returns its
/// entry. `keepers` finds those programs.
///
/// # Errors
/// If the lease does not exist, belongs to another user or to a run, has inner leases, or remains.
pub fn release(
    id: &LeaseId,
    caller: u32,
    locks: &dyn LeaseStore,
    clock: &dyn Clock,
    keepers: impl FnOnce(&LeaseEntry) -> Result<LeaseKeepers>,
    token: &ActToken,
) -> Result<LeaseEntry, ReleaseError> {
    let leases = locks.entries(EntryKind::Lease)?;
    let named = || leases.iter().filter(|lease| lease.id == *id);
    let Some(lease) = named().find(|lease| lease.owner == caller) else {
        return Err(match named().next() {
            Some(other) => ReleaseError::NotOwned(Box::new(other.clone())),
            None => ReleaseError::NotFound,
        });
    };
    let outer = OuterLease { id: lease.id.clone(), owner: lease.owner };
    // Any user can write that a lease is within this one, so its owner and root decide.
    let is_inner = |inner: &&LeaseEntry| {
        inner.within.contains(&outer) && (inner.owner == lease.owner || inner.owner == 0)
    };
    if let Some(inner) = leases.iter().find(is_inner) {
        return Err(ReleaseError::HasInner(Box::new(inner.clone())));
    }
    let holders = match keepers(lease)? {
        LeaseKeepers::Holders(holders) => holders,
        LeaseKeepers::Run(supervisor) => return Err(ReleaseError::IsOfRun(supervisor)),
        LeaseKeepers::Others(others) => return Err(ReleaseError::KeptByOthers(others)),
        LeaseKeepers::Unseen => return Err(ReleaseError::Unseen),
    };
    for holder in &holders {
        match holder.signal(Signal::Term, token) {
            Err(error) if error.kind() == ProcessFault::Gone.into() => {}
            sent => sent?,
        }
    }
    let start = clock.monotonic();
    let is_there = || -> Result<bool> {
        let leases = locks.entries(EntryKind::Lease)?;
        Ok(leases.iter().any(|other| other.id == *id && other.owner == caller))
    };
    while is_there()? {
        if clock.monotonic().saturating_sub(start) >= PATIENCE {
            return Err(ReleaseError::StillThere);
        }
        clock.sleep(PAUSE);
    }
    Ok(lease.clone())
}
