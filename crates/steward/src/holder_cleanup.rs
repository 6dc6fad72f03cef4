//! Ends the processes that a job leaves behind on its devices.
//!
//! One scan is not enough. A process can pass the device to a fork of itself between two scans, and
//! a loop can start the next holder after the last one was ended. The scan is therefore repeated
//! until nothing changes for a while. Processes that appear during a scan are stopped before they
//! are inspected. If holders keep coming back, their parents are ended, too.

use crate::leftover_scan::LeftoverScan;
use crate::leftovers::{Cleaned, SIGTERM_ROUNDS, Tree};
use gpu_core::{Error, ErrorKind, Fault, Job, ProcessInfo, ProcessKey, Result, current_ancestry};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// If holders still appear after this many rounds, one more round does not help.
const ROUNDS: usize = 10;

/// This many consecutive scans must find no holder, ...
const EMPTY_SCANS: usize = 3;
/// ... over this time, while a process of the job lives that could start a holder: a shell's loop
/// typically waits a second.
const EMPTY_SCAN_PERIOD: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(500);

/// The maximum time for which new processes are stopped.
const MAX_SUSPEND_TIME: Duration = Duration::from_secs(5);

const WHY: &str = "left behind by a job, on its device";

impl Tree<'_> {
    /// Ends all holders; returns why it may be incomplete.
    ///
    /// # Errors
    /// If processes cannot be listed, or this process's own ancestors cannot be read.
    pub(crate) fn end_holders(
        &self,
        job: &mut dyn Job,
        grace: Duration,
        watch: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
        cleaned: &mut Cleaned,
    ) -> Result<Option<Fault>> {
        let clock = self.ports.clock;
        let (mut rounds, mut empty_scans, mut quiet_since) = (0, 0, None);
        // Processes that another round would not end either.
        let mut unended: BTreeMap<ProcessKey, ProcessInfo> = BTreeMap::new();
        loop {
            if cleaned.take_events(job) {
                let stopped = Error::new(
                    ErrorKind::Interrupted,
                    "end processes left behind by \
                    the job",
                );
                return Ok(Some(stopped.fault()));
            }
            let mut scan = self.scan(job)?;
            let finds_them = !scan.holders.is_empty() && rounds < SIGTERM_ROUNDS;
            let stopped = if finds_them || scan.members.is_empty() {
                Vec::new()
            } else {
                self.suspend_new(job, &mut scan)
            };
            scan.holders.retain(|holder| !unended.contains_key(&holder.key));
            if scan.holders.is_empty() && !scan.still_forking {
                self.resume(job, &stopped);
                let now = clock.monotonic();
                let span = now.saturating_sub(*quiet_since.get_or_insert(now));
                empty_scans += 1;
                let is_alone = scan.members.is_empty();
                if empty_scans >= EMPTY_SCANS && (is_alone || span >= EMPTY_SCAN_PERIOD) {
                    let fault = self.unended_fault(&unended, &cleaned.actions);
                    cleaned.remains = fault.is_some();
                    let hidden = unended.into_values().filter(|info| self.is_hidden(&info.key));
                    cleaned.remaining = hidden.collect();
                    cleaned.unlisted = scan.unlisted;
                    return Ok(fault.or(scan.unseen));
                }
                if !is_alone {
                    clock.sleep(PAUSE);
                }
                continue;
            }
            (empty_scans, quiet_since) = (0, None);
            rounds += 1;
            if rounds > ROUNDS {
                self.resume(job, &stopped);
                cleaned.remains = true;
                let what = "end job processes that keep reopening its devices";
                return Ok(Some(Error::new(ErrorKind::TimedOut, what).fault()));
            }
            let targets = self.targets(&scan, &stopped, rounds);
            if targets.is_empty() {
                self.resume(job, &stopped);
                clock.sleep(PAUSE);
                continue;
            }
            let is_stopped = targets.iter().any(|target| stopped.contains(&target.key));
            let polite = rounds <= SIGTERM_ROUNDS && !is_stopped;
            let grace = if polite { grace } else { Duration::ZERO };
            let escalation = self.escalate(job, &targets, WHY, grace, watch, cleaned);
            self.resume(job, &stopped);
            let escalation = escalation?;
            if escalation.stopped.is_some() {
                return Ok(escalation.stopped);
            }
            if escalation.is_futile {
                unended.extend(targets.into_iter().map(|target| (target.key, target)));
            }
        }
    }

    /// Stops and inspects the processes that appeared during the scan; returns those that were
    /// stopped. Without this, a scan that finds no holder proves little: a process that forks and
    /// exits every millisecond can always escape it.
    fn suspend_new(&self, job: &dyn Job, scan: &mut LeftoverScan) -> Vec<ProcessKey> {
        let helpers = self.ports.backend.helpers();
        let Ok(suspended) = job.suspend_new(&scan.steady, &helpers, MAX_SUSPEND_TIME, self.token)
        else {
            return Vec::new();
        };
        self.inspect(&suspended.stopped, scan);
        scan.still_forking = suspended.still_forking;
        suspended.stopped.iter().map(|stopped| stopped.key).collect()
    }

    fn resume(&self, job: &dyn Job, stopped: &[ProcessKey]) {
        if !stopped.is_empty() {
            job.resume(stopped, self.token);
        }
    }

    /// Returns the processes to end in a round. Stopped processes are ended first, and alone, so
    /// that they do not stay stopped during the grace period of others. After the rounds with
    /// SIGTERM, the parents of holders are ended, one more generation each round, because they
    /// start the next holders.
    fn targets(
        &self,
        scan: &LeftoverScan,
        stopped: &[ProcessKey],
        round: usize,
    ) -> Vec<ProcessInfo> {
        let is_stopped = |holder: &&ProcessInfo| stopped.contains(&holder.key);
        let mut targets: Vec<ProcessInfo> =
            scan.holders.iter().filter(is_stopped).cloned().collect();
        if targets.is_empty() {
            targets = scan.holders.clone();
        }
        for holder in targets.clone() {
            let above = current_ancestry(self.ports.host, Some(holder)).skip(1);
            let above = above.take_while(|above| !above.key.definitely_same(&self.root));
            for parent in above.take(round.saturating_sub(SIGTERM_ROUNDS)) {
                let is_member = scan.members.iter().any(|member| member.key == parent.key)
                    || stopped.contains(&parent.key);
                if is_member && !targets.iter().any(|target| target.key == parent.key) {
                    targets.push(parent);
                }
            }
        }
        targets
    }
}
