//! One attempt: whether it is this claim's turn, and what blocks it.

use super::{Attempt, Seen, Taking};
use crate::admission::{Turn, judge};
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::request::{Standing, TakeError, Wait, WaitReason};
use gpu_core::{Claim, Error, ErrorKind, LeaseEntry, LeaseId, QueuePlace, Result, SafeGpuGuard};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// How often to poll safe-gpu's lock: safe-gpu does not signal when it is done.
pub(super) const SAFE_GPU_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A claim that could take devices for this long and did not is passed. An honest claim takes a
/// snapshot at least every ten seconds ([`MAX_POLL_INTERVAL`]), and a snapshot takes some time if
/// the driver is slow.
const IDLE_CLAIM_TIMEOUT: Duration = Duration::from_secs(30);

/// A sleeping claim takes its own snapshot after this long, multiplied by its position in its
/// class: claims before it may see other devices, in another container, or wait for something else.
/// It stays awake for long enough to detect that they are idle.
const SLEEP_TIMEOUT: Duration = Duration::from_secs(120);
pub(super) const AWAKE_PERIOD: Duration = Duration::from_secs(60);

/// A safe-gpu that keeps its lock for this long is stuck or malicious: devices are then granted
/// anyway, with a warning to the caller. Waiting claims share the time: each notes which process
/// has the lock.
const SAFE_GPU_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a waiting claim retries when the driver does not answer. Otherwise a driver reload
/// would end all claims of a queue.
const DRIVER_SILENCE_TIMEOUT: Duration = Duration::from_secs(600);

impl<S> Taking<'_, S> {
    pub(super) fn attempt(&mut self) -> Result<Attempt<S>, TakeError> {
        self.keep_place()?;
        let mut queue = Queue::read(self.locks, &self.entry)?;
        self.attempted = self.clock.monotonic();
        if self.place.is_some()
            && !self.made_last_attempt
            && self.attempted >= self.awake_until
            && let Some(before) = queue.before(&self.entry)?
        {
            let leases = self.blocking(&self.leases()?)?;
            let standing = Standing { ahead: queue.ahead(), leases, wait_reason: None };
            let own_snapshot = SLEEP_TIMEOUT * queue.rank().max(1);
            self.own_snapshot.get_or_insert(self.attempted.saturating_add(own_snapshot));
            self.has_waited = true;
            return Ok(Attempt::Asleep(before, standing));
        }
        let before = self.leases()?;
        if self.is_still_behind(&before, &mut queue)? {
            return Ok(Attempt::Behind(self.standing(&before, &queue, None)?));
        }
        let held_back = self.hold_back();
        let wait_reason = self.wait_reason(held_back.as_ref());
        let is_new = wait_reason.is_none() || !self.has_seen_lately();
        if is_new {
            let context = match (self.observe)() {
                Err(error) => return self.silent(error, &before, &queue),
                Ok(context) => context,
            };
            let at = self.clock.monotonic();
            let before = self.pool(&before)?.leases;
            let before = before.into_iter().map(|lease| (lease.id, lease.owner)).collect();
            self.seen = Some(Seen { context, at, before });
        }
        // The snapshot may have taken time: read again which leases were granted meanwhile.
        let leases = self.leases()?;
        let turn = self.judge(&leases, &mut queue)?;
        if wait_reason.is_some() {
            // The same lock blocks the others, so none of them is idle.
            self.servable.clear();
            return Ok(Attempt::Behind(self.standing(&leases, &queue, wait_reason)?));
        }
        match turn {
            Some(Turn::Take(devices)) => {
                self.silent_since = None;
                let standing = self.standing(&leases, &queue, None)?;
                self.grant(devices, held_back, standing)
            }
            // Devices may be back after the driver was reloaded.
            Some(Turn::Never) if !self.may_go_on() => Err(TakeError::Never),
            Some(Turn::Never) => Ok(Attempt::Behind(self.standing(&leases, &queue, None)?)),
            _ => {
                self.silent_since = None;
                Ok(Attempt::Behind(self.standing(&leases, &queue, None)?))
            }
        }
    }

    fn has_seen_lately(&self) -> bool {
        self.seen.is_some() && self.clock.monotonic() < self.snapshot_expiry
    }

    /// Keeps waiting if the driver does not answer a claim that has already waited.
    fn silent(
        &mut self,
        error: Error,
        leases: &Ledger,
        queue: &Queue<'_>,
    ) -> Result<Attempt<S>, TakeError> {
        if !self.may_go_on() {
            return Err(error.into());
        }
        self.seen = None;
        let wait_reason = Some(WaitReason::Driver(error.fault()));
        Ok(Attempt::Behind(self.standing(leases, queue, wait_reason)?))
    }

    /// Returns whether the claim may keep waiting although the driver does not answer, or not with
    /// all devices.
    fn may_go_on(&mut self) -> bool {
        let now = self.clock.monotonic();
        let since = *self.silent_since.get_or_insert(now);
        self.ask.wait != Wait::No
            && self.has_waited
            && now.saturating_sub(since) < DRIVER_SILENCE_TIMEOUT
    }

    /// Returns what blocks the claim: a safe-gpu at work, for a limited time.
    fn wait_reason(
        &mut self,
        held_back: Option<&Result<Box<dyn SafeGpuGuard>>>,
    ) -> Option<WaitReason> {
        let Some(Err(error)) = held_back.filter(|held_back| is_timed_out(held_back)) else {
            (self.wait_reason_since, self.holder) = (None, None);
            return None;
        };
        let now = self.clock.monotonic();
        let since = *self.wait_reason_since.get_or_insert(now);
        let since = self.holder.map_or(since, |(_, observed)| observed.min(since));
        let is_patient = now.saturating_sub(since) < SAFE_GPU_TIMEOUT;
        is_patient.then(|| WaitReason::SafeGpu(error.fault()))
    }

    /// Returns whether the claim certainly has to wait, without a new snapshot: the last one
    /// remains valid as long as no lease of that time has ended.
    fn is_still_behind(&mut self, leases: &Ledger, queue: &mut Queue<'_>) -> Result<bool> {
        let Some(Seen { before, .. }) = &self.seen else { return Ok(false) };
        let living: HashSet<(&LeaseId, u32)> =
            leases.leases.iter().map(|lease| (&lease.id, lease.owner)).collect();
        let lives = |(id, owner): &(LeaseId, u32)| living.contains(&(id, *owner));
        let is_known = self.has_seen_lately() && before.iter().all(lives);
        Ok(is_known && self.judge(leases, queue)? == Some(Turn::Wait))
    }

    fn hold_back(&self) -> Option<Result<Box<dyn SafeGpuGuard>>> {
        let patience =
            if self.ask.wait == Wait::No { Duration::ZERO } else { SAFE_GPU_POLL_INTERVAL };
        self.ask.holds_back_safe_gpu.then(|| self.locks.hold_back_safe_gpu(patience))
    }

    /// Returns what the last snapshot allows the claim to do; `None` if there is no snapshot.
    fn judge(&mut self, leases: &Ledger, queue: &mut Queue<'_>) -> Result<Option<Turn>> {
        let pool = self.pool(leases)?.leases;
        let Some(seen) = &self.seen else { return Ok(None) };
        let now = self.clock.monotonic();
        let since = &self.servable;
        let is_idle = |place: &QueuePlace| {
            since.get(place).is_some_and(|since| now.saturating_sub(*since) >= IDLE_CLAIM_TIMEOUT)
        };
        let choose =
            |claim: &Claim, others: &[LeaseEntry]| (self.choose)(&seen.context, claim, others);
        let places = queue.earlier();
        let within = self.ask.within.as_ref();
        let claim = &self.ask.claim;
        let mut read = |place: &QueuePlace| queue.rival(place, leases, claim, within);
        let judged = judge(&self.entry, &pool, &places, &mut read, &is_idle, &choose)?;
        let mut kept: BTreeMap<QueuePlace, Duration> = since
            .iter()
            .filter(|(place, _)| {
                judged.servable.contains(place) || is_idle(place) && places.contains(place)
            })
            .map(|(place, since)| (place.clone(), *since))
            .collect();
        for place in judged.servable {
            kept.entry(place).or_insert(now);
        }
        self.servable = kept;
        Ok(Some(judged.turn))
    }
}

fn is_timed_out(held_back: &Result<Box<dyn SafeGpuGuard>>) -> bool {
    held_back.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut)
}
