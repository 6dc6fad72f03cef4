//! Protects the files of a lease from clean-up.

use crate::event::{Event, Watch};
use crate::grant::Grant;
use gpu_core::{EntryKind, LeaseStore};
use std::time::Duration;

/// How often the files of a lease are marked as used: programs that remove old files from `/tmp`
/// count in days.
const RENEWAL: Duration = Duration::from_secs(3600);

/// The interval after a failed renewal.
const RETRY: Duration = Duration::from_secs(60);

/// The schedule of a lease's renewals.
pub(crate) struct Renewal {
    next: Duration,
    /// Whether the last renewal found the lease visible to others.
    is_seen: bool,
}

impl Renewal {
    /// Creates the schedule of a lease that was just published.
    pub(crate) fn new(now: Duration) -> Self {
        Renewal { next: now + RENEWAL, is_seen: true }
    }

    /// Renews a lease if it is due, and publishes it again if its file was removed.
    pub(crate) fn renew_if_due(
        &mut self,
        now: Duration,
        grant: &mut Grant,
        locks: &dyn LeaseStore,
        watch: &mut Watch<'_>,
    ) {
        if now < self.next {
            return;
        }
        let Grant { entry, held, .. } = grant;
        let renewed = held.renew().and_then(|is_seen| {
            // The file was removed: the lease is no longer visible to others.
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
