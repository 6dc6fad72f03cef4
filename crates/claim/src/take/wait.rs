//! Waits between attempts: after a conflict, behind a claim of its class, or for a change.

use super::attempt::{AWAKE_PERIOD, SAFE_GPU_POLL_INTERVAL};
use super::{Taking, snapshot_lifetime};
use crate::queue::Queue;
use crate::request::{Standing, TakeError, Wait, Waiting};
use gpu_core::{QUEUE_HEARTBEAT, QueuePlace, Result};
use std::ops::ControlFlow;
use std::time::Duration;

/// A change may be signalled just before it is visible: try once more after this time.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// After a change, the minimum time since the last attempt, doubled after each futile one up to the
/// limit: any process can cause changes.
pub(super) const MIN_ATTEMPT_INTERVAL: Duration = Duration::from_millis(20);
const MAX_ATTEMPT_INTERVAL: Duration = Duration::from_millis(320);

/// The longest pause after a conflict; the pause is 1 to 20 ms, at random.
const MAX_WITHDRAWAL_PAUSE_MS: u64 = 20;
/// A claim that does not wait gives up after this many conflicts.
const MAX_WITHDRAWALS: u32 = 10;

impl<S> Taking<'_, S> {
    /// Waits after a conflict, so that the same claims do not collide again.
    pub(super) fn pause(&mut self, standing: Standing) -> Result<(), TakeError> {
        self.withdrawals += 1;
        if self.withdrawals >= MAX_WITHDRAWALS && self.ask.wait == Wait::No {
            return Err(self.ended(standing));
        }
        let now = self.watched(&standing)?;
        if self.ask.wait != Wait::No && self.is_over(now) {
            return Err(self.ended(standing));
        }
        let chance =
            self.entry.id.as_str().bytes().fold(u64::from(self.withdrawals), |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(byte))
            });
        self.clock.sleep(Duration::from_millis(1 + chance % MAX_WITHDRAWAL_PAUSE_MS));
        Ok(())
    }

    /// Sleeps until the claim before it has left the queue, or has stalled.
    pub(super) fn sleep(
        &mut self,
        before: &QueuePlace,
        mut standing: Standing,
    ) -> Result<(), TakeError> {
        loop {
            let now = self.watched(&standing)?;
            if self.is_over(now) {
                return Err(self.ended(standing));
            }
            if self.made_last_attempt {
                return Ok(());
            }
            if self.own_snapshot.is_some_and(|at| now >= at) {
                self.own_snapshot = None;
                self.awake_until = now + AWAKE_PERIOD;
                return Ok(());
            }
            let renewal = self.renewed + QUEUE_HEARTBEAT;
            if now >= renewal {
                self.keep_place()?;
                let waiter = self.locks.waiter(before)?;
                if waiter.is_none_or(|waiter| waiter.is_stalled) {
                    return Ok(());
                }
                // The watcher is called often and wants current counts, so count the places again.
                if self.ask.pace < QUEUE_HEARTBEAT / 5 {
                    let mut queue = Queue::read(self.locks, &self.entry)?;
                    queue.before(&self.entry)?;
                    standing.ahead = queue.ahead();
                }
                continue;
            }
            let slice = self.slice(now, renewal);
            if self.locks.wait_for(before, slice)? {
                self.own_snapshot = None;
                return Ok(());
            }
        }
    }

    /// Waits for a change that may matter.
    pub(super) fn wait(&mut self, standing: Standing) -> Result<(), TakeError> {
        if self.ask.wait == Wait::No {
            return Err(self.ended(standing));
        }
        self.has_waited |= self.seen.is_some();
        let now = self.clock.monotonic();
        let seen = self.seen.as_ref().map_or(now, |seen| seen.at);
        self.snapshot_expiry = seen + snapshot_lifetime(&standing.ahead);
        let mut until = self.snapshot_expiry;
        if standing.wait_reason.is_some() {
            until = until.min(now + SAFE_GPU_POLL_INTERVAL);
        }
        if std::mem::take(&mut self.settling) {
            until = until.min(now + SETTLE_TIME);
        }
        loop {
            let now = self.watched(&standing)?;
            if self.is_over(now) {
                return Err(self.ended(standing));
            }
            if self.made_last_attempt || now >= until {
                self.apart = MIN_ATTEMPT_INTERVAL;
                return Ok(());
            }
            self.keep_place()?;
            let slice = self.slice(now, until.min(self.renewed + QUEUE_HEARTBEAT));
            if self.locks.wait(slice)? {
                let next = self.attempted + self.apart;
                self.clock.sleep(next.saturating_sub(self.clock.monotonic()));
                self.apart = (self.apart * 2).min(MAX_ATTEMPT_INTERVAL);
                self.settling = true;
                return Ok(());
            }
        }
    }

    /// Returns how long the claim may wait before something is due.
    fn slice(&self, now: Duration, until: Duration) -> Duration {
        let end = self.deadline.map_or(until, |deadline| deadline.min(until));
        self.ask.pace.min(end.saturating_sub(now))
    }

    /// Asks the watcher whether to continue, and returns the current time.
    fn watched(&mut self, standing: &Standing) -> Result<Duration, TakeError> {
        let now = self.clock.monotonic();
        let Standing { ahead, leases, wait_reason } = standing;
        let waited = now.saturating_sub(self.start);
        match (self.watch)(&Waiting { ahead, leases, waited, wait_reason: wait_reason.as_ref() }) {
            ControlFlow::Continue(()) => Ok(now),
            ControlFlow::Break(()) => Err(TakeError::Stopped),
        }
    }

    /// Returns whether the timeout has expired. The claim then tries once more: claims ahead may
    /// have given up meanwhile.
    fn is_over(&mut self, now: Duration) -> bool {
        let over = self.deadline.is_some_and(|deadline| now >= deadline);
        over && std::mem::replace(&mut self.made_last_attempt, true)
    }

    /// Returns the outcome when no time is left.
    fn ended(&self, standing: Standing) -> TakeError {
        match self.ask.wait {
            Wait::No => TakeError::NotNow(Box::new(standing)),
            Wait::For(_) | Wait::Forever => TakeError::TimedOut(Box::new(standing)),
        }
    }
}
