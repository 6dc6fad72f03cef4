//! Keeps a lease for processes that could not be ended.
//!
//! A process that SIGKILL does not end still has the device open. It may not have inherited the
//! lease, because it may have closed every descriptor but the device's. The supervisor itself
//! therefore holds the lease until the last such process is gone, after it has reported these
//! processes to the caller.

use crate::event::Watch;
use crate::grant::Grant;
use crate::leftovers::{INT, QUIT, Reach, TERM, Tree};
use crate::renewal::Renewal;
use gpu_core::{Job, JobEvent, LeaseStore, ProcessInfo, ProcessKey};
use std::collections::HashSet;
use std::time::Duration;

/// The interval at first, for processes that need a second to end; it grows later.
const INITIAL_POLL_INTERVAL: Duration = Duration::from_millis(250);
const FINAL_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// While processes of the job live, this many consecutive scans must find no holder.
const EMPTY_SCANS: usize = 3;

/// A lease that is kept for some processes of a job.
pub(crate) struct LeaseKeeper<'a> {
    pub(crate) tree: &'a Tree<'a>,
    pub(crate) reach: Reach,
    pub(crate) locks: &'a dyn LeaseStore,
}

impl LeaseKeeper<'_> {
    /// Returns true once all are gone, and false if a signal asked to give up before. SIGHUP does
    /// not: the terminal of the run may close before its processes end.
    pub(crate) fn outlast(
        &self,
        remaining: &[ProcessInfo],
        job: &mut dyn Job,
        grant: &mut Grant,
        watch: &mut Watch<'_>,
    ) -> bool {
        let clock = self.tree.ports.clock;
        let mut renewal = Renewal::new(clock.monotonic());
        let mut remaining: HashSet<ProcessKey> = remaining.iter().map(|info| info.key).collect();
        let (mut pace, mut quiet) = (INITIAL_POLL_INTERVAL, 0);
        loop {
            let end = clock.monotonic() + pace;
            loop {
                match job.next(end.saturating_sub(clock.monotonic())) {
                    Ok(Some(JobEvent::EndRequested(TERM | INT | QUIT))) => return false,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => {
                        clock.sleep(end.saturating_sub(clock.monotonic()));
                        break;
                    }
                }
            }
            pace = (pace * 2).min(FINAL_POLL_INTERVAL);
            renewal.renew_if_due(clock.monotonic(), grant, self.locks, watch);
            // If the members cannot be read, assume that all still exist.
            let Ok(members) = self.tree.members(job) else { continue };
            let is_member = |key: &ProcessKey| members.iter().any(|member| member.key == *key);
            remaining.retain(|key| is_member(key) || self.tree.is_hidden(key));
            if remaining.iter().any(|key| self.tree.is_hidden(key)) {
                continue;
            }
            if members.is_empty() {
                return true;
            }
            // Each process of a tree that is to end whole keeps the lease, and a stuck holder cannot
            // close its device.
            if self.reach == Reach::Tree || self.tree.has_stuck(&remaining) {
                continue;
            }
            // Holders may have closed their device, or started others before they ended.
            let Ok(left) = self.tree.remaining(job, self.reach) else { continue };
            remaining = left.iter().map(|info| info.key).collect();
            if !remaining.is_empty() {
                quiet = 0;
                continue;
            }
            quiet += 1;
            if quiet >= EMPTY_SCANS {
                return true;
            }
            pace = INITIAL_POLL_INTERVAL;
        }
    }
}
