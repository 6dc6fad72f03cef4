//! Takes devices: look, decide, publish, look again; or wait.

use crate::ask::{Ask, Chosen, HeldUp, NotTaken, Taken, Wait, Waiting};
use crate::ledger::{LEASES_OF_ONE, Ledger, is_same};
use crate::publish::publish_known;
use crate::turn::{Turn, judge};
use gpu_core::{
    Claim, Clock, DeviceUuid, Entry, EntryKind, Error, ErrorKind, Held, HeldBack, LeaseId, Locks,
    Result,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// The table is held for a listing and a decision: who has it longer than this is stuck, or means
/// it.
const TABLE_PATIENCE: Duration = Duration::from_secs(10);

const TABLE_SLICE: Duration = Duration::from_secs(1);

/// Whoever has no time left waits for others' decisions all the same, so long.
const TABLE_AT_LEAST: Duration = Duration::from_millis(250);

/// A decision rests on a look that is at most so old when the table is there ...
const FRESH: Duration = Duration::from_secs(1);
/// ... unless the table has been too much in demand so often.
const LOOKS_FOR_ONE_TABLE: u32 = 3;

/// How long the words of locks are believed without another look: those outside of the scheme
/// come and go unseen. It grows with those who are ahead.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN_PER_PLACE: Duration = Duration::from_millis(250);
const LOOK_AGAIN_AT_MOST: Duration = Duration::from_secs(10);

/// Whoever watches is asked this often.
const SLICE: Duration = Duration::from_millis(100);

/// After a change, each waits so long, times the square of how many are ahead: the next ones are
/// to be fast, and the last are not to fight with them for the table.
const STAND_BACK: Duration = Duration::from_millis(4);
const STAND_BACK_AT_MOST: Duration = Duration::from_millis(250);

/// A change may be told an instant before it is there: it is looked for once more after this.
const SETTLED: Duration = Duration::from_millis(100);

/// A safe-gpu that is at work tells nobody when it is done.
const SAFE_GPU_PAUSE: Duration = Duration::from_millis(250);

/// Who could take devices for so long and did not is stopped, and is passed until it moves.
const STALLED: Duration = Duration::from_secs(10);

/// After a conflict, 1 to 20 ms, by chance.
const WITHDRAWN_AT_MOST_MS: u64 = 20;
/// Who does not wait gives up after so many of them.
const WITHDRAWALS: u32 = 10;

/// Takes devices, waiting for them as the ask says.
///
/// `look` tells what only the machine knows, and is called without any lock but safe-gpu's.
/// `choose` is a function of what was looked at, a claim, and the leases beside it, where others'
/// claims that come first stand as leases too. `watch` is called some times a second while it
/// waits.
///
/// # Errors
/// [`NotTaken`]; nothing is left of the claim then.
pub fn take<S>(
    locks: &dyn Locks,
    clock: &dyn Clock,
    ask: &Ask,
    look: &mut dyn FnMut() -> Result<S>,
    choose: &dyn Fn(&S, &Claim, &[Entry]) -> Chosen,
    watch: &mut dyn FnMut(&Waiting<'_>) -> ControlFlow<()>,
) -> Result<Taken<S>, NotTaken> {
    let start = clock.monotonic();
    let entry = Entry {
        id: locks.new_id()?,
        // Before it has a place in the queue, everybody there is before it.
        ticket: u64::MAX,
        owner: locks.owner(),
        root: ask.root,
        within: ask.within.as_ref().map(Entry::nested).unwrap_or_default(),
        claim: ask.claim.clone(),
        devices: Vec::new(),
        parts_of: ask.parts_of.clone(),
        command: ask.command.clone(),
        since: clock.wall(),
    };
    let deadline = match ask.wait {
        Wait::No => Some(start),
        Wait::For(patience) => start.checked_add(patience),
        Wait::Ever => None,
    };
    let mut taking = Taking {
        locks,
        clock,
        ask,
        look,
        choose,
        watch,
        start,
        deadline,
        entry,
        place: None,
        seen: None,
        servable: BTreeMap::new(),
        withdrawals: 0,
        settling: false,
        tried_last: false,
    };
    loop {
        match taking.attempt()? {
            Attempt::Taken(taken) => return Ok(*taken),
            Attempt::Withdrawn(pool) => taking.pause(&pool)?,
            Attempt::Behind(pool, held_up) => taking.wait(&pool, held_up)?,
        }
    }
}

enum Attempt<S> {
    Taken(Box<Taken<S>>),
    /// Somebody else got one of the devices at the same moment.
    Withdrawn(Ledger),
    Behind(Ledger, Option<HeldUp>),
}

/// What a look told.
struct Seen<S> {
    scene: S,
    at: Duration,
    /// The leases before it, where they were read.
    before: Option<Vec<Entry>>,
}

struct Taking<'a, S> {
    locks: &'a dyn Locks,
    clock: &'a dyn Clock,
    ask: &'a Ask,
    look: &'a mut dyn FnMut() -> Result<S>,
    choose: &'a dyn Fn(&S, &Claim, &[Entry]) -> Chosen,
    watch: &'a mut dyn FnMut(&Waiting<'_>) -> ControlFlow<()>,
    start: Duration,
    deadline: Option<Duration>,
    /// What is published of it.
    entry: Entry,
    /// Its place in the queue.
    place: Option<Box<dyn Held>>,
    seen: Option<Seen<S>>,
    /// Since when who came earlier could have taken devices.
    servable: BTreeMap<LeaseId, Duration>,
    withdrawals: u32,
    /// A change was told, and is to be looked for once more.
    settling: bool,
    /// The attempt that is made when its time is over was made.
    tried_last: bool,
}

impl<S> Taking<'_, S> {
    fn attempt(&mut self) -> Result<Attempt<S>, NotTaken> {
        let mut before = None;
        if let Some(place) = &self.place {
            if !place.renew()? {
                self.place = Some(publish_known(self.locks, EntryKind::Waiter, &mut self.entry)?);
            }
            let pool = self.pool(&Ledger::read(self.locks)?)?;
            if self.is_still_behind(&pool) {
                return Ok(Attempt::Behind(pool, None));
            }
            before = Some(pool.leases);
        }
        let held_back = self.hold_back();
        let busy = matches!(&held_back, Some(Err(error)) if error.kind() == ErrorKind::TimedOut);
        let table = self.look_and_lock(before)?;
        let pool = self.pool(&Ledger::read(self.locks)?)?;
        if self.place.is_none() {
            self.entry.ticket = self.locks.ticket()?;
        }
        match self.judge(&pool) {
            Some(Turn::Take(devices)) if !busy => self.grant(devices, table, held_back, pool),
            Some(Turn::Never) => Err(NotTaken::Never),
            _ => {
                if self.place.is_none() && self.ask.wait != Wait::No {
                    self.place = Some(self.locks.publish(EntryKind::Waiter, &self.entry)?);
                }
                Ok(Attempt::Behind(pool, busy.then_some(HeldUp::SafeGpu)))
            }
        }
    }

    /// Tells whether it is sure without another look that it has to wait: what was looked at a
    /// moment ago still holds as long as no lease of then has ended.
    fn is_still_behind(&mut self, pool: &Ledger) -> bool {
        let Some(Seen { at, before: Some(before), .. }) = &self.seen else { return false };
        let lives = |lease: &Entry| pool.leases.iter().any(|other| is_same(other, lease));
        let known = self.clock.monotonic() < *at + self.look_again(pool);
        known && before.iter().all(lives) && self.judge(pool) == Some(Turn::Wait)
    }

    /// How long a look counts.
    fn look_again(&self, pool: &Ledger) -> Duration {
        (LOOK_AGAIN + LOOK_AGAIN_PER_PLACE * self.ahead(pool)).min(LOOK_AGAIN_AT_MOST)
    }

    fn ahead(&self, pool: &Ledger) -> u32 {
        u32::try_from(pool.ahead_of(&self.entry).count()).unwrap_or(1000).min(1000)
    }

    fn hold_back(&self) -> Option<Result<Box<dyn HeldBack>>> {
        let patience = if self.ask.wait == Wait::No { Duration::ZERO } else { SAFE_GPU_PAUSE };
        self.ask.beside_safe_gpu.then(|| self.locks.hold_back_safe_gpu(patience))
    }

    /// Looks, and takes the table while that is fresh. Never the other way round: a driver can
    /// take its time.
    fn look_and_lock(&mut self, before: Option<Vec<Entry>>) -> Result<Box<dyn Held>, NotTaken> {
        let mut looks = 0;
        loop {
            let scene = (self.look)()?;
            let at = self.clock.monotonic();
            looks += 1;
            let table = self.table()?;
            let age = self.clock.monotonic().saturating_sub(at);
            if age <= FRESH || looks >= LOOKS_FOR_ONE_TABLE {
                self.seen = Some(Seen { scene, at, before });
                return Ok(table);
            }
        }
    }

    fn table(&mut self) -> Result<Box<dyn Held>, NotTaken> {
        let start = self.clock.monotonic();
        let left = self.deadline.map(|deadline| deadline.saturating_sub(start));
        let left = left.map(|left| left.max(TABLE_AT_LEAST)).filter(|left| *left < TABLE_PATIENCE);
        let end = start + left.unwrap_or(TABLE_PATIENCE);
        loop {
            let slice = end.saturating_sub(self.clock.monotonic()).min(TABLE_SLICE);
            let error = match self.locks.table(slice) {
                Err(error) if error.kind() == ErrorKind::TimedOut => error,
                table => return Ok(table?),
            };
            let is_over = self.clock.monotonic() >= end;
            if is_over && left.is_none() {
                return Err(error.into());
            }
            let pool = self.pool(&Ledger::read(self.locks)?)?;
            if is_over {
                return Err(self.ended(&pool, Some(HeldUp::Table)));
            }
            let ahead: Vec<Entry> = pool.ahead_of(&self.entry).cloned().collect();
            self.watched(&ahead, &pool.leases, Some(HeldUp::Table))?;
        }
    }

    /// Returns those that compete with it.
    fn pool(&self, ledger: &Ledger) -> Result<Ledger> {
        let Some(within) = &self.ask.within else { return Ok(ledger.pool(None)) };
        let refused = |why| {
            let what = format!("take devices out of lease {}, which {why}", within.id);
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

    /// Returns what it may do by the last look; `None` where there was none.
    fn judge(&mut self, pool: &Ledger) -> Option<Turn> {
        let scene = &self.seen.as_ref()?.scene;
        let now = self.clock.monotonic();
        let since = &self.servable;
        let stalled =
            |id: &LeaseId| since.get(id).is_some_and(|since| now.saturating_sub(*since) >= STALLED);
        let choose = |claim: &Claim, beside: &[Entry]| (self.choose)(scene, claim, beside);
        let judged = judge(&self.entry, pool, &stalled, &choose);
        if let Some(servable) = judged.servable {
            let waits = |id: &LeaseId| pool.waiters.iter().any(|waiter| waiter.id == *id);
            let mut kept: BTreeMap<LeaseId, Duration> = since
                .iter()
                .filter(|(id, _)| servable.contains(id) || stalled(id) && waits(id))
                .map(|(id, since)| (id.clone(), *since))
                .collect();
            for id in servable {
                kept.entry(id).or_insert(now);
            }
            self.servable = kept;
        }
        Some(judged.turn)
    }

    /// Publishes a lease, and looks whether somebody else did at the same moment.
    fn grant(
        &mut self,
        devices: Vec<DeviceUuid>,
        table: Box<dyn Held>,
        held_back: Option<Result<Box<dyn HeldBack>>>,
        pool: Ledger,
    ) -> Result<Attempt<S>, NotTaken> {
        let mut entry = Entry { devices, since: self.clock.wall(), ..self.entry.clone() };
        let held = match &self.place {
            // Its place has told its id to everybody.
            Some(_) => publish_known(self.locks, EntryKind::Lease, &mut entry)?,
            None => self.locks.publish(EntryKind::Lease, &entry)?,
        };
        let leases = self.locks.entries(EntryKind::Lease)?;
        let of_owner = leases.iter().filter(|lease| lease.owner == entry.owner).count();
        let mut beside = Ledger::new(leases, Vec::new()).pool(self.ask.within.as_ref());
        let all = beside.leases.len();
        beside.leases.retain(|lease| !is_same(lease, &entry));
        if beside.leases.len() == all {
            return Err(match of_owner > LEASES_OF_ONE {
                true => {
                    let what =
                        format!("take devices for a user who has {LEASES_OF_ONE} leases already");
                    Error::new(ErrorKind::Invalid, what)
                }
                false => {
                    let what = format!("publish lease {}, which nobody sees", entry.id);
                    Error::new(ErrorKind::Io, what)
                }
            }
            .into());
        }
        let Some(seen) = self.seen.take() else { return Ok(Attempt::Withdrawn(pool)) };
        if !is_alone((self.choose)(&seen.scene, &exactly(&entry), &beside.leases), &entry) {
            return Ok(Attempt::Withdrawn(pool));
        }
        self.place = None;
        drop(table);
        let beside = beside.leases;
        Ok(Attempt::Taken(Box::new(Taken { entry, held, held_back, scene: seen.scene, beside })))
    }

    /// Lets time pass after a conflict, so that those who were in it do not meet again.
    fn pause(&mut self, pool: &Ledger) -> Result<(), NotTaken> {
        self.withdrawals += 1;
        if self.withdrawals >= WITHDRAWALS && self.ask.wait == Wait::No {
            return Err(self.ended(pool, None));
        }
        let ahead: Vec<Entry> = pool.ahead_of(&self.entry).cloned().collect();
        let now = self.watched(&ahead, &pool.leases, None)?;
        if self.ask.wait != Wait::No && self.is_over(now) {
            return Err(self.ended(pool, None));
        }
        let chance =
            self.entry.id.as_str().bytes().fold(u64::from(self.withdrawals), |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(byte))
            });
        self.clock.sleep(Duration::from_millis(1 + chance % WITHDRAWN_AT_MOST_MS));
        Ok(())
    }

    /// Waits until something changed that may matter.
    fn wait(&mut self, pool: &Ledger, held_up: Option<HeldUp>) -> Result<(), NotTaken> {
        if self.ask.wait == Wait::No {
            return Err(self.ended(pool, held_up));
        }
        let ahead: Vec<Entry> = pool.ahead_of(&self.entry).cloned().collect();
        let places = self.ahead(pool);
        let stand_back = (STAND_BACK * places * places).min(STAND_BACK_AT_MOST);
        let now = self.clock.monotonic();
        let seen = self.seen.as_ref().map_or(now, |seen| seen.at);
        let mut until = seen + self.look_again(pool);
        if held_up.is_some() {
            until = until.min(now + SAFE_GPU_PAUSE);
        }
        if self.settling {
            until = until.min(now + SETTLED);
        }
        self.settling = false;
        let mut changed = false;
        loop {
            let now = self.watched(&ahead, &pool.leases, held_up)?;
            if self.is_over(now) {
                return Err(self.ended(pool, held_up));
            }
            if self.tried_last || now >= until {
                return Ok(());
            }
            let end = self.deadline.map_or(until, |deadline| deadline.min(until));
            let slice = SLICE.min(end - now);
            if changed {
                self.clock.sleep(slice);
            } else if self.locks.wait(slice)? {
                changed = true;
                self.settling = stand_back < SETTLED;
                until = self.clock.monotonic() + stand_back;
            }
        }
    }

    /// Asks whoever watches whether to go on, and returns what time it is.
    fn watched(
        &mut self,
        ahead: &[Entry],
        leases: &[Entry],
        held_up: Option<HeldUp>,
    ) -> Result<Duration, NotTaken> {
        let now = self.clock.monotonic();
        let waited = now.saturating_sub(self.start);
        match (self.watch)(&Waiting { ahead, leases, waited, held_up }) {
            ControlFlow::Continue(()) => Ok(now),
            ControlFlow::Break(()) => Err(NotTaken::Stopped),
        }
    }

    /// Tells whether its time is over. Once that is so it is tried once more: those who were ahead
    /// may have given up meanwhile.
    fn is_over(&mut self, now: Duration) -> bool {
        let over = self.deadline.is_some_and(|deadline| now >= deadline);
        over && std::mem::replace(&mut self.tried_last, true)
    }

    /// Returns how it ends when there is no time left.
    fn ended(&self, pool: &Ledger, held_up: Option<HeldUp>) -> NotTaken {
        let ahead = pool.ahead_of(&self.entry).cloned().collect();
        let leases = pool.leases.clone();
        match self.ask.wait {
            Wait::No => NotTaken::NotNow { ahead, leases, held_up },
            Wait::For(_) | Wait::Ever => NotTaken::TimedOut { ahead, leases, held_up },
        }
    }
}

/// Returns a claim on what a lease has and nothing else.
fn exactly(lease: &Entry) -> Claim {
    let devices = lease.devices.clone();
    Claim { among: devices.clone(), required: devices, ..lease.claim.clone() }
}

/// Tells whether a lease got again what it has.
fn is_alone(chosen: Chosen, lease: &Entry) -> bool {
    let Chosen::Devices(mut again) = chosen else { return false };
    let mut devices = lease.devices.clone();
    again.sort();
    devices.sort();
    again == devices
}
