//! Publishes an attempt and confirms it, or withdraws it.

use super::{Attempt, Taking};
use crate::ledger::{Leases, Ledger, MAX_LEASES_PER_USER, is_same};
use crate::request::{Chosen, Standing, TakeError, Taken};
use gpu_core::{Claim, DeviceUuid, EntryKind, Error, ErrorKind, LeaseEntry, Result, SafeGpuGuard};
use std::time::Duration;

/// The earliest of several conflicting attempts waits this long for the others to withdraw. The
/// time doubles after each failure up to the limit. Leases are read at this interval.
const CONFLICT_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_CONFLICT_TIMEOUT: Duration = Duration::from_secs(5);
const CONFLICT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// This many consecutive reads must find no conflict: a read during which an outer lease ends may
/// miss a lease taken out of it, and the next read sees that lease.
const UNCONTESTED_READS: u32 = 2;

impl<S> Taking<'_, S> {
    /// Publishes an attempt, checks for concurrent ones, and confirms it.
    ///
    /// Each claim publishes before it reads. Suppose that several confirmed leases conflict, and
    /// take the one whose last read began last: all others were published before, so it saw all of
    /// them, and did not confirm. Among conflicting attempts the earliest stays and the others
    /// withdraw, so one of them is confirmed.
    pub(super) fn grant(
        &mut self,
        devices: Vec<DeviceUuid>,
        held_back: Option<Result<Box<dyn SafeGpuGuard>>>,
        standing: Standing,
    ) -> Result<Attempt<S>, TakeError> {
        let entry = LeaseEntry { devices, since: self.clock.wall(), ..self.entry.clone() };
        let mut held = match self.locks.publish(EntryKind::Attempt, &entry) {
            Err(error) if error.kind() == ErrorKind::Again => {
                return Ok(Attempt::Withdrawn(standing));
            }
            held => held?,
        };
        let Some(seen) = self.seen.take() else { return Ok(Attempt::Withdrawn(standing)) };
        let fits = |others: &[LeaseEntry]| {
            is_alone((self.choose)(&seen.context, &exactly(&entry), others), &entry)
        };
        let patience = CONFLICT_TIMEOUT * 2u32.saturating_pow(self.withdrawals.min(10));
        let end = self.clock.monotonic() + patience.min(MAX_CONFLICT_TIMEOUT);
        let mut alone = 0;
        loop {
            let Leases { confirmed, attempts } = Leases::read(self.locks)?;
            let (earlier, later): (Vec<LeaseEntry>, Vec<LeaseEntry>) =
                attempts.into_iter().partition(|other| !entry.is_before(other));
            let first = self.competitors(&entry, [&confirmed[..], &earlier].concat())?;
            if !fits(&first) {
                return Ok(Attempt::Withdrawn(standing));
            }
            let others = self.competitors(&entry, [confirmed, earlier, later].concat())?;
            alone = if fits(&others) { alone + 1 } else { 0 };
            if alone == UNCONTESTED_READS {
                held.confirm()?;
                self.place = None;
                let context = seen.context;
                return Ok(Attempt::Taken(Box::new(Taken {
                    entry,
                    held,
                    held_back,
                    context,
                    others,
                })));
            }
            if alone > 0 {
                continue;
            }
            // Later claims see this attempt and withdraw.
            if self.clock.monotonic() >= end {
                return Ok(Attempt::Withdrawn(standing));
            }
            self.clock.sleep(CONFLICT_POLL_INTERVAL);
        }
    }

    /// Returns the competitors of an attempt, without the attempt itself.
    fn competitors(
        &self,
        entry: &LeaseEntry,
        leases: Vec<LeaseEntry>,
    ) -> Result<Vec<LeaseEntry>, TakeError> {
        let of_owner: usize =
            leases.iter().filter(|lease| lease.owner == entry.owner).map(LeaseEntry::count).sum();
        if of_owner > MAX_LEASES_PER_USER {
            let what = format!("grant more leases: the user already has {MAX_LEASES_PER_USER}");
            return Err(Error::new(ErrorKind::Invalid, what).into());
        }
        let mut competitors = self.pool(&Ledger::new(leases, Vec::new()))?.leases;
        let all = competitors.len();
        competitors.retain(|lease| !is_same(lease, entry));
        if competitors.len() < all {
            return Ok(competitors);
        }
        let what = format!("publish lease {}: it is not visible", entry.id);
        Err(Error::new(ErrorKind::Io, what).into())
    }
}

/// Returns a claim on exactly the devices of a lease.
fn exactly(lease: &LeaseEntry) -> Claim {
    let devices = lease.devices.clone();
    Claim { among: devices.clone(), required: devices, ..lease.claim.clone() }
}

/// Returns whether a lease got its devices again.
fn is_alone(chosen: Chosen, lease: &LeaseEntry) -> bool {
    let Chosen::Devices(mut again) = chosen else { return false };
    let mut devices = lease.devices.clone();
    again.sort();
    devices.sort();
    again == devices
}
