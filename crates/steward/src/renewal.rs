//! Keeps the files of a lease from being cleared away.

use crate::grant::Grant;
use crate::job_monitor::Watch;
use crate::run::Event;
use gpu_core::{EntryKind, Locks};
use std::time::Duration;

/// The kernel's files of a lease are shown to be in use this often: what clears `/tmp` of old files
/// counts in days.
const RENEWAL: Duration = Duration::from_secs(3600);

/// The same after one that failed.
const RETRY: Duration = Duration::from_secs(60);

/// When a lease is to be renewed.
pub(crate) struct Renewal {
    next: Duration,
    /// Whether the last renewal said that others see the lease.
    is_seen: bool,
}

impl Renewal {
    /// Returns that of a lease which was published now.
    pub(crate) fn new(now: Duration) -> Self {
        Renewal { next: now + RENEWAL, is_seen: true }
    }

    /// Renews a lease if it is time to, and publishes it again where it was cleared away.
    pub(crate) fn renew_if_due(
        &mut self,
        now: Duration,
        grant: &mut Grant,
        locks: &dyn Locks,
        watch: &mut Watch<'_>,
    ) {
        if now < self.next {
            return;
        }
        let Grant { entry, held, .. } = grant;
        let renewed = held.renew().and_then(|is_seen| {
            // Somebody cleared the file away: others do not see the lease any more.
            if !is_seen {
                *held = locks.publish(EntryKind::Lease, entry)?;
            }
            Ok(())
        });
        if let Err(error) = &renewed
            && self.is_seen
        {
            let _ = watch(Event::Unseen(error));
        }
        self.is_seen = renewed.is_ok();
        self.next = now + if self.is_seen { RENEWAL } else { RETRY };
    }
}
