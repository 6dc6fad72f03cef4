//! How long claims waited before they were granted.

use crate::catalog::Metric;
use crate::metrics::Metrics;
use gpu_claim::Ledger;
use gpu_core::{LeaseId, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// The upper bounds of the histogram of waits, in seconds.
const BOUNDS: [f64; 9] = [1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, f64::INFINITY];

/// A longer wait is counted as this one: a lease contains what its owner wrote.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// The waits of claims that were granted between snapshots.
///
/// A ticket is the time since boot at which its claim arrived, and a lease has the time of its
/// grant, so each wait is known exactly, however rare the snapshots are. A lease that began and
/// ended between two snapshots is not counted.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The leases of the previous snapshot; `None` before the first one.
    known: Option<BTreeSet<(LeaseId, u32)>>,
    counts: [u64; BOUNDS.len()],
    sum: f64,
}

impl Waits {
    /// Returns an empty record.
    pub fn new() -> Self {
        Waits::default()
    }

    /// Counts the leases that are new since the previous snapshot. `now` is a ticket and the time
    /// at which it was drawn.
    pub fn add(&mut self, ledger: &Ledger, now: (u64, Timestamp)) {
        let (ticket, wall) = now;
        // The leases of one user beyond the limit are merged into one without a process.
        let leases = ledger.leases.iter().filter(|lease| lease.root.pid.0 != 0);
        let mut here = BTreeSet::new();
        for lease in leases {
            let key = (lease.id.clone(), lease.owner);
            if self.known.as_ref().is_some_and(|known| !known.contains(&key)) {
                let age = Duration::from_nanos(ticket.saturating_sub(lease.ticket));
                let held = wall.since(lease.since);
                self.count(age.saturating_sub(held).min(LONGEST).as_secs_f64());
            }
            here.insert(key);
        }
        self.known = Some(here);
    }

    fn count(&mut self, seconds: f64) {
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(BOUNDS.len() - 1)] += 1;
        self.sum += seconds;
    }

    pub(crate) fn add_to(&self, metrics: &mut Metrics) {
        let buckets = BOUNDS.into_iter().zip(self.counts).collect();
        metrics.add_histogram(Metric::ClaimWait, self.sum, buckets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_counted_in_the_bucket_of_the_next_bound() {
        for (seconds, bucket) in [
            (0.0, 0),
            (1.0, 0),
            (1.5, 1),
            (10.0, 1),
            (60.0, 2),
            (60.5, 3),
            (86_400.0, 7),
            (86_401.0, 8),
            (LONGEST.as_secs_f64(), 8),
        ] {
            let mut waits = Waits::new();
            waits.count(seconds);
            let counted = waits.counts.iter().position(|count| *count == 1);
            assert_eq!((counted, waits.sum), (Some(bucket), seconds), "{seconds}");
        }
    }
}
