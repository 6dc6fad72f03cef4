//! Takes devices: queue, look, decide, publish, look again; or wait.

use crate::ask::{Ahead, Ask, Chosen, HeldUp, NotTaken, Standing, Taken, Wait, Waiting};
use crate::ledger::{LEASES_OF_ONE, Leases, Ledger, is_same};
use crate::publish::publish_known;
use crate::queue::Queue;
use crate::turn::{Turn, judge};
use gpu_core::{
    Claim, Clock, DeviceUuid, Entry, EntryKind, Error, ErrorKind, Held, HeldBack, LeaseId, Locks,
    QUEUE_BEAT, QueuePlace, Result,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// How long a look at the devices counts: those outside of the scheme come and go unseen. It grows
/// with those who are ahead.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN_PER_PLACE: Duration = Duration::from_millis(250);
const LOOK_AGAIN_AT_MOST: Duration = Duration::from_secs(10);

/// A change may be told an instant before it is there: it is looked for once more after this.
const SETTLED: Duration = Duration::from_millis(100);

/// A safe-gpu that is at work tells nobody when it is done.
const SAFE_GPU_PAUSE: Duration = Duration::from_millis(250);

/// Who could take devices for so long and did not is passed.
const IDLE: Duration = Duration::from_secs(10);

/// Of attempts that conflict, the earliest waits so long at most for the others to withdraw, twice
/// as long after each time in vain up to the limit, and looks so often.
const RIVALS_WITHDRAW: Duration = Duration::from_millis(100);
const RIVALS_WITHDRAW_AT_MOST: Duration = Duration::from_secs(5);
const RIVALS_LOOK: Duration = Duration::from_millis(2);

/// So many looks in a row must find an attempt alone: what was taken out of a lease that ends
/// during one of them may be missed by that one, and is seen by the next.
const LOOKS_ALONE: u32 = 2;

/// After a conflict, 1 to 20 ms, by chance.
const WITHDRAWN_AT_MOST_MS: u64 = 20;
/// Who does not wait gives up after so many of them.
const WITHDRAWALS: u32 = 10;

/// Takes devices, waiting for them as the ask says.
///
/// `look` tells what only the machine knows, and is called without any lock but safe-gpu's.
/// `choose` is a function of what was looked at, a claim, and the leases beside it, where others'
/// claims that come first stand as leases too. `watch` is called while it waits, as often as
/// [`Ask::pace`] says, and after each signal.
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
        ticket: locks.ticket()?,
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
        beat: start,
        seen: None,
        servable: BTreeMap::new(),
        withdrawals: 0,
        settling: false,
        tried_last: false,
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
    /// Somebody else got one of the devices at the same moment.
    Withdrawn(Standing),
    /// An earlier claim of the same user asks for the same: nothing is to be done until it leaves.
    Asleep(QueuePlace, Standing),
    /// It is the first of its kind, and has to wait for devices.
    Behind(Standing),
}

/// What a look told.
struct Seen<S> {
    scene: S,
    at: Duration,
    /// The leases before it.
    before: Vec<Entry>,
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
    /// When that was renewed.
    beat: Duration,
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
        self.keep_place()?;
        let mut queue = Queue::read(self.locks, &self.entry)?;
        if self.place.is_some()
            && !self.tried_last
            && let Some(before) = queue.before(&self.entry)?
        {
            let leases = self.pool(&self.leases()?)?.leases;
            let standing = Standing { ahead: queue.ahead(), leases, held_up: None };
            return Ok(Attempt::Asleep(before, standing));
        }
        let before = self.leases()?;
        if self.is_still_behind(&before, &mut queue)? {
            return Ok(Attempt::Behind(self.standing(&before, &queue, None)?));
        }
        let held_back = self.hold_back();
        let held_up = match &held_back {
            Some(Err(error)) if error.kind() == ErrorKind::TimedOut => {
                Some(HeldUp::SafeGpu(error.fault()))
            }
            _ => None,
        };
        let scene = (self.look)()?;
        let at = self.clock.monotonic();
        self.seen = Some(Seen { scene, at, before: self.pool(&before)?.leases });
        // The look may have taken its time: who got devices meanwhile is to be seen.
        let leases = self.leases()?;
        match self.judge(&leases, &mut queue)? {
            Some(Turn::Take(devices)) if held_up.is_none() => {
                let standing = self.standing(&leases, &queue, None)?;
                self.grant(devices, held_back, standing)
            }
            Some(Turn::Never) => Err(NotTaken::Never),
            _ => Ok(Attempt::Behind(self.standing(&leases, &queue, held_up)?)),
        }
    }

    /// Publishes its place in the queue, or renews it where that is due.
    fn keep_place(&mut self) -> Result<(), NotTaken> {
        if self.ask.wait == Wait::No {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let is_there = match &self.place {
            Some(_) if now.saturating_sub(self.beat) < QUEUE_BEAT => return Ok(()),
            Some(place) => place.renew()?,
            None => false,
        };
        if !is_there {
            self.place = None;
            self.place = Some(publish_known(self.locks, EntryKind::Waiter, &mut self.entry)?);
        }
        self.beat = now;
        Ok(())
    }

    fn leases(&self) -> Result<Ledger> {
        let Leases { confirmed, attempts } = Leases::read(self.locks)?;
        Ok(Ledger::new([confirmed, attempts].concat(), Vec::new()))
    }

    /// Tells whether it is sure without another look that it has to wait: what was looked at a
    /// moment ago still holds as long as no lease of then has ended.
    fn is_still_behind(&mut self, leases: &Ledger, queue: &mut Queue<'_>) -> Result<bool> {
        let Some(Seen { at, before, .. }) = &self.seen else { return Ok(false) };
        let lives = |lease: &Entry| leases.leases.iter().any(|other| is_same(other, lease));
        let is_known = self.clock.monotonic() < *at + look_again(&queue.ahead());
        let is_known = is_known && before.iter().all(lives);
        Ok(is_known && self.judge(leases, queue)? == Some(Turn::Wait))
    }

    fn hold_back(&self) -> Option<Result<Box<dyn HeldBack>>> {
        let patience = if self.ask.wait == Wait::No { Duration::ZERO } else { SAFE_GPU_PAUSE };
        self.ask.beside_safe_gpu.then(|| self.locks.hold_back_safe_gpu(patience))
    }

    /// Returns the leases that compete with it.
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
    fn judge(&mut self, leases: &Ledger, queue: &mut Queue<'_>) -> Result<Option<Turn>> {
        let pool = self.pool(leases)?.leases;
        let Some(seen) = &self.seen else { return Ok(None) };
        let now = self.clock.monotonic();
        let since = &self.servable;
        let is_idle =
            |id: &LeaseId| since.get(id).is_some_and(|since| now.saturating_sub(*since) >= IDLE);
        let choose = |claim: &Claim, beside: &[Entry]| (self.choose)(&seen.scene, claim, beside);
        let places = queue.earlier();
        let within = self.ask.within.as_ref();
        let mut read = |place: &QueuePlace| queue.rival(place, leases, within);
        let judged = judge(&self.entry, &pool, &places, &mut read, &is_idle, &choose)?;
        if let Some(servable) = judged.servable {
            let waits = |id: &LeaseId| places.iter().any(|place| place.id == *id);
            let mut kept: BTreeMap<LeaseId, Duration> = since
                .iter()
                .filter(|(id, _)| servable.contains(id) || is_idle(id) && waits(id))
                .map(|(id, since)| (id.clone(), *since))
                .collect();
            for id in servable {
                kept.entry(id).or_insert(now);
            }
            self.servable = kept;
        }
        Ok(Some(judged.turn))
    }

    /// Returns where it stands.
    fn standing(
        &self,
        leases: &Ledger,
        queue: &Queue<'_>,
        held_up: Option<HeldUp>,
    ) -> Result<Standing> {
        Ok(Standing { ahead: queue.ahead(), leases: self.pool(leases)?.leases, held_up })
    }

    /// Publishes an attempt, looks whether somebody else did at the same moment, and confirms it.
    ///
    /// Each publishes before it looks. Of leases that are confirmed and conflict, let one be the
    /// last to have begun its last look: all others were published before, so it saw all of them,
    /// and did not confirm. Of attempts that conflict the earliest stays and the others withdraw,
    /// so that one of them is confirmed.
    fn grant(
        &mut self,
        devices: Vec<DeviceUuid>,
        held_back: Option<Result<Box<dyn HeldBack>>>,
        standing: Standing,
    ) -> Result<Attempt<S>, NotTaken> {
        let mut entry = Entry { devices, since: self.clock.wall(), ..self.entry.clone() };
        let mut held = publish_known(self.locks, EntryKind::Attempt, &mut entry)?;
        let Some(seen) = self.seen.take() else { return Ok(Attempt::Withdrawn(standing)) };
        let fits = |beside: &[Entry]| {
            is_alone((self.choose)(&seen.scene, &exactly(&entry), beside), &entry)
        };
        let patience = RIVALS_WITHDRAW * 2u32.saturating_pow(self.withdrawals.min(10));
        let end = self.clock.monotonic() + patience.min(RIVALS_WITHDRAW_AT_MOST);
        let mut alone = 0;
        loop {
            let Leases { confirmed, attempts } = Leases::read(self.locks)?;
            let (earlier, later): (Vec<Entry>, Vec<Entry>) =
                attempts.into_iter().partition(|other| !entry.is_before(other));
            let first = self.beside(&entry, [&confirmed[..], &earlier].concat())?;
            if !fits(&first) {
                return Ok(Attempt::Withdrawn(standing));
            }
            let beside = self.beside(&entry, [confirmed, earlier, later].concat())?;
            alone = if fits(&beside) { alone + 1 } else { 0 };
            if alone == LOOKS_ALONE {
                held.confirm()?;
                self.place = None;
                let scene = seen.scene;
                return Ok(Attempt::Taken(Box::new(Taken {
                    entry,
                    held,
                    held_back,
                    scene,
                    beside,
                })));
            }
            if alone > 0 {
                continue;
            }
            // Those who came later see this attempt and withdraw.
            if self.clock.monotonic() >= end {
                return Ok(Attempt::Withdrawn(standing));
            }
            self.clock.sleep(RIVALS_LOOK);
        }
    }

    /// Returns what competes with an attempt of its own, without that attempt.
    fn beside(&self, entry: &Entry, leases: Vec<Entry>) -> Result<Vec<Entry>, NotTaken> {
        let of_owner = leases.iter().filter(|lease| lease.owner == entry.owner).count();
        let mut beside = self.pool(&Ledger::new(leases, Vec::new()))?.leases;
        let all = beside.len();
        beside.retain(|lease| !is_same(lease, entry));
        if beside.len() < all {
            return Ok(beside);
        }
        let what = match of_owner > LEASES_OF_ONE {
            true => format!("take devices for a user who has {LEASES_OF_ONE} leases already"),
            false => format!("publish lease {}, which nobody sees", entry.id),
        };
        let kind = if of_owner > LEASES_OF_ONE { ErrorKind::Invalid } else { ErrorKind::Io };
        Err(Error::new(kind, what).into())
    }

    /// Lets time pass after a conflict, so that those who were in it do not meet again.
    fn pause(&mut self, standing: Standing) -> Result<(), NotTaken> {
        self.withdrawals += 1;
        if self.withdrawals >= WITHDRAWALS && self.ask.wait == Wait::No {
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
        self.clock.sleep(Duration::from_millis(1 + chance % WITHDRAWN_AT_MOST_MS));
        Ok(())
    }

    /// Sleeps until the claim before it has left the queue, or has stopped moving.
    fn sleep(&mut self, before: &QueuePlace, mut standing: Standing) -> Result<(), NotTaken> {
        loop {
            let now = self.watched(&standing)?;
            if self.is_over(now) {
                return Err(self.ended(standing));
            }
            if self.tried_last {
                return Ok(());
            }
            let beat = self.beat + QUEUE_BEAT;
            if now >= beat {
                self.keep_place()?;
                let mut queue = Queue::read(self.locks, &self.entry)?;
                if queue.before(&self.entry)?.as_ref() != Some(before) {
                    return Ok(());
                }
                standing.ahead = queue.ahead();
                continue;
            }
            let slice = self.slice(now, beat);
            if self.locks.wait_for(before, slice)? {
                return Ok(());
            }
        }
    }

    /// Waits until something changed that may matter.
    fn wait(&mut self, standing: Standing) -> Result<(), NotTaken> {
        if self.ask.wait == Wait::No {
            return Err(self.ended(standing));
        }
        let now = self.clock.monotonic();
        let seen = self.seen.as_ref().map_or(now, |seen| seen.at);
        let mut until = seen + look_again(&standing.ahead);
        if standing.held_up.is_some() {
            until = until.min(now + SAFE_GPU_PAUSE);
        }
        if std::mem::take(&mut self.settling) {
            until = until.min(now + SETTLED);
        }
        loop {
            let now = self.watched(&standing)?;
            if self.is_over(now) {
                return Err(self.ended(standing));
            }
            if self.tried_last || now >= until {
                return Ok(());
            }
            self.keep_place()?;
            let slice = self.slice(now, until.min(self.beat + QUEUE_BEAT));
            if self.locks.wait(slice)? {
                self.settling = true;
                return Ok(());
            }
        }
    }

    /// How long it may wait before something is to be done again.
    fn slice(&self, now: Duration, until: Duration) -> Duration {
        let end = self.deadline.map_or(until, |deadline| deadline.min(until));
        self.ask.pace.min(end.saturating_sub(now))
    }

    /// Asks whoever watches whether to go on, and returns what time it is.
    fn watched(&mut self, standing: &Standing) -> Result<Duration, NotTaken> {
        let now = self.clock.monotonic();
        let Standing { ahead, leases, held_up } = standing;
        let waited = now.saturating_sub(self.start);
        match (self.watch)(&Waiting { ahead, leases, waited, held_up: held_up.as_ref() }) {
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
    fn ended(&self, standing: Standing) -> NotTaken {
        match self.ask.wait {
            Wait::No => NotTaken::NotNow(Box::new(standing)),
            Wait::For(_) | Wait::Ever => NotTaken::TimedOut(Box::new(standing)),
        }
    }
}

fn look_again(ahead: &Ahead) -> Duration {
    let places = u32::try_from(ahead.count).unwrap_or(1000).min(1000);
    (LOOK_AGAIN + LOOK_AGAIN_PER_PLACE * places).min(LOOK_AGAIN_AT_MOST)
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
