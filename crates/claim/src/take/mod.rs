//! Takes devices: queue, take a snapshot, decide, publish, check again; or wait.

mod attempt;
mod grant;
mod wait;

use crate::ledger::{Leases, Ledger, is_same};
use crate::queue::Queue;
use crate::request::{
    Ahead, Chosen, ClaimRequest, Standing, TakeError, Taken, Wait, WaitReason, Waiting,
};
use gpu_core::{
    Claim, Clock, DeviceUuid, EntryKind, Error, ErrorKind, LeaseEntry, LeaseGuard, LeaseId,
    LeaseStore, QUEUE_HEARTBEAT, QueuePlace, Result, SafeGpuHolder,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;
use wait::MIN_ATTEMPT_INTERVAL;

/// How long a snapshot remains valid: programs outside the scheme come and go unnoticed. It grows
/// with the number of claims ahead.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const POLL_INTERVAL_PER_PLACE: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Takes devices, waiting for them as the request says.
///
/// `observe` takes a snapshot of the machine; it is called without holding any lock except safe-gpu's.
/// `choose` is a function of a snapshot, a claim, and the other leases; other claims that come
/// first appear as leases too. `watch` is called during a wait, at the interval
/// [`ClaimRequest::pace`], and after each signal.
///
/// # Errors
/// [`TakeError`]; the claim is then withdrawn completely.
pub fn take<S>(
    locks: &dyn LeaseStore,
    clock: &dyn Clock,
    ask: &ClaimRequest,
    observe: &mut dyn FnMut() -> Result<S>,
    choose: &dyn Fn(&S, &Claim, &[LeaseEntry]) -> Chosen,
    watch: &mut dyn FnMut(&Waiting<'_>) -> ControlFlow<()>,
) -> Result<Taken<S>, TakeError> {
    let start = clock.monotonic();
    let entry = LeaseEntry {
        id: locks.new_id()?,
        ticket: locks.ticket()?,
        owner: locks.owner(),
        root: ask.root,
        within: ask.within.as_ref().map(LeaseEntry::nested).unwrap_or_default(),
        claim: ask.claim.clone(),
        devices: Vec::new(),
        parts_of: ask.parts_of.clone(),
        merged: None,
        command: ask.command.clone(),
        since: clock.wall(),
    };
    let deadline = match ask.wait {
        Wait::No => Some(start),
        Wait::For(patience) => start.checked_add(patience),
        Wait::Forever => None,
    };
    let mut taking = Taking {
        locks,
        clock,
        ask,
        observe,
        choose,
        watch,
        start,
        deadline,
        entry,
        place: None,
        renewed: start,
        seen: None,
        snapshot_expiry: start,
        servable: BTreeMap::new(),
        own_snapshot: None,
        awake_until: start,
        attempted: start,
        apart: MIN_ATTEMPT_INTERVAL,
        wait_reason_since: None,
        holder: None,
        silent_since: None,
        has_waited: false,
        withdrawals: 0,
        settling: false,
        made_last_attempt: false,
    };
    loop {
        match taking.attempt()? {
            Attempt::Taken(taken) => return Ok(*taken),
            Attempt::Withdrawn(standing) => taking.pause(standing)?,
            Attempt::Asleep(place, standing) => taking.sleep(&place, standing)?,
            Attempt::Behind(standing) => taking.wait(standing)?,
        }
    }
}

enum Attempt<S> {
    Taken(Box<Taken<S>>),
    /// Another claim got one of the devices at the same moment.
    Withdrawn(Standing),
    /// An earlier claim of the same user has the same request: wait until it leaves.
    Asleep(QueuePlace, Standing),
    /// It is the first of its class, and has to wait for devices.
    Behind(Standing),
}

/// A snapshot and the leases around it.
struct Seen<S> {
    context: S,
    at: Duration,
    /// The leases before the snapshot, each with its owner.
    before: Vec<(LeaseId, u32)>,
}

struct Taking<'a, S> {
    locks: &'a dyn LeaseStore,
    clock: &'a dyn Clock,
    ask: &'a ClaimRequest,
    observe: &'a mut dyn FnMut() -> Result<S>,
    choose: &'a dyn Fn(&S, &Claim, &[LeaseEntry]) -> Chosen,
    watch: &'a mut dyn FnMut(&Waiting<'_>) -> ControlFlow<()>,
    start: Duration,
    deadline: Option<Duration>,
    /// Its published entry.
    entry: LeaseEntry,
    /// The claim's place in the queue.
    place: Option<Box<dyn LeaseGuard>>,
    /// When the place was last renewed.
    renewed: Duration,
    seen: Option<Seen<S>>,
    /// How long the snapshot remains valid, as the last wait computed it: the queue that the next
    /// attempt reads may be longer by the places of dead claims, and the attempt would return to a
    /// wait that is over.
    snapshot_expiry: Duration,
    /// Since when an earlier claim could have taken devices.
    servable: BTreeMap<QueuePlace, Duration>,
    /// When the claim takes its own snapshot although a claim of its class is before it.
    own_snapshot: Option<Duration>,
    /// How long it stays awake for that.
    awake_until: Duration,
    /// When the last attempt began.
    attempted: Duration,
    /// The minimum time until a change causes the next attempt.
    apart: Duration,
    /// Since when a safe-gpu holds its lock.
    wait_reason_since: Option<Duration>,
    /// The process that held that lock at each renewal so far, and since when.
    holder: Option<(SafeGpuHolder, Duration)>,
    /// Since when the driver has not answered.
    silent_since: Option<Duration>,
    /// The claim was in the queue behind others, or has taken a snapshot before.
    has_waited: bool,
    withdrawals: u32,
    /// A change was signalled, which requires one more attempt.
    settling: bool,
    /// The last attempt after the timeout was made.
    made_last_attempt: bool,
}

impl<S> Taking<'_, S> {
    /// Publishes the claim's place in the queue, or renews it when due.
    fn keep_place(&mut self) -> Result<(), TakeError> {
        if self.ask.wait == Wait::No {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let is_there = match &self.place {
            Some(_) if now.saturating_sub(self.renewed) < QUEUE_HEARTBEAT => return Ok(()),
            Some(place) => place.renew()?,
            None => false,
        };
        if !is_there {
            self.place = None;
            self.place = Some(self.locks.publish(EntryKind::Waiter, &self.entry)?);
        }
        self.renewed = now;
        self.observe_safe_gpu(now);
        Ok(())
    }

    /// Notes which process holds safe-gpu's lock while other claims are served or wait for it: a
    /// claim that becomes next need not wait again for a holder that has blocked all of them.
    fn observe_safe_gpu(&mut self, now: Duration) {
        let holder = self.ask.holds_back_safe_gpu.then(|| self.locks.safe_gpu_holder()).flatten();
        let known = self.holder.take();
        self.holder = holder.map(|holder| match known {
            Some((known, since)) if known == holder => (holder, since),
            _ => (holder, now),
        });
    }

    fn leases(&self) -> Result<Ledger> {
        let Leases { confirmed, attempts } = Leases::read(self.locks)?;
        Ok(Ledger::new(confirmed.into_iter().chain(attempts).collect(), Vec::new()))
    }

    /// Returns the leases that compete with the claim.
    fn pool(&self, ledger: &Ledger) -> Result<Ledger> {
        let Some(within) = &self.ask.within else { return Ok(ledger.pool(None)) };
        let refused = |why| {
            let what = format!("claim within lease {}, which {why}", within.id);
            Error::new(ErrorKind::Invalid, what)
        };
        if !ledger.leases.iter().any(|lease| is_same(lease, within)) {
            return Err(refused("has ended"));
        }
        if !ledger.parent_of(&self.entry).is_some_and(|parent| is_same(parent, within)) {
            return Err(refused("belongs to another user"));
        }
        Ok(ledger.pool(Some(within)))
    }

    /// Returns the leases that compete with the claim for the devices that it may have.
    fn blocking(&self, leases: &Ledger) -> Result<Vec<LeaseEntry>> {
        let Claim { among, except, .. } = &self.ask.claim;
        // A lease on a whole device blocks its MIG devices, which have other names.
        let is_exact = !among.iter().chain(except).any(DeviceUuid::is_partition);
        let may_have = |uuid: &DeviceUuid| {
            (among.is_empty() || among.contains(uuid)) && !except.contains(uuid)
        };
        let mut blocking = self.pool(leases)?.leases;
        blocking.retain(|lease| {
            let has_mig = lease.devices.iter().any(DeviceUuid::is_partition);
            !is_exact || has_mig || lease.merged.is_some() || lease.devices.iter().any(may_have)
        });
        Ok(blocking)
    }

    fn standing(
        &self,
        leases: &Ledger,
        queue: &Queue<'_>,
        wait_reason: Option<WaitReason>,
    ) -> Result<Standing> {
        Ok(Standing { ahead: queue.ahead(), leases: self.blocking(leases)?, wait_reason })
    }
}

fn snapshot_lifetime(ahead: &Ahead) -> Duration {
    let places = u32::try_from(ahead.count).unwrap_or(1000).min(1000);
    (POLL_INTERVAL + POLL_INTERVAL_PER_PLACE * places).min(MAX_POLL_INTERVAL)
}
