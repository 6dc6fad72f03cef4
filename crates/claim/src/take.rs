//! Takes devices: queue, look, decide, publish, look again; or wait.

use crate::ask::{Ahead, Ask, Chosen, HeldUp, NotTaken, Standing, Taken, Wait, Waiting};
use crate::ledger::{LEASES_OF_ONE, Leases, Ledger, is_same};
use crate::queue::Queue;
use crate::turn::{Turn, judge};
use gpu_core::{
    Claim, Clock, DeviceUuid, Entry, EntryKind, Error, ErrorKind, Held, HeldBack, Locks,
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

/// Who could take devices for so long and did not is passed. An honest claim looks at least every
/// ten seconds ([`LOOK_AGAIN_AT_MOST`]), and a look takes some time where the driver is slow.
const IDLE: Duration = Duration::from_secs(30);

/// A claim that sleeps looks for itself after so long, times its place among its equals: those
/// before it may see other devices, in another container, or wait for something of their own. It
/// stays awake for long enough to find them idle.
const OWN_LOOK: Duration = Duration::from_secs(120);
const AWAKE: Duration = Duration::from_secs(60);

/// A safe-gpu that keeps its lock for so long is stuck, or means harm: then devices are granted all
/// the same, and whoever asked is told.
const SAFE_GPU_AT_MOST: Duration = Duration::from_secs(60);

/// After a change, at least so long since the last attempt, and twice as long after each that
/// brought nothing, up to the limit: anybody can cause changes.
const ATTEMPTS_APART: Duration = Duration::from_millis(20);
const ATTEMPTS_APART_AT_MOST: Duration = Duration::from_millis(320);

/// A driver that fails to answer a claim which has waited is asked again for so long: otherwise one
/// that is loaded anew would end all claims of a queue.
const SILENT_AT_MOST: Duration = Duration::from_secs(600);

/// Of attempts that conflict, the earliest waits so long at most for the others to withdraw, twice
/// as long after each time in vain up to the limit, and reads so often.
const RIVALS_WITHDRAW: Duration = Duration::from_millis(100);
const RIVALS_WITHDRAW_AT_MOST: Duration = Duration::from_secs(5);
const RIVALS_READ: Duration = Duration::from_millis(2);

/// So many readings in a row must find an attempt in conflict with nobody: what was taken out of a
/// lease that ends during one of them may be missed by that one, and is seen by the next.
const READINGS_ALONE: u32 = 2;

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
        own_look: None,
        awake_until: start,
        attempted: start,
        apart: ATTEMPTS_APART,
        held_up_since: None,
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
    servable: BTreeMap<QueuePlace, Duration>,
    /// When it looks for itself although an equal claim is before it.
    own_look: Option<Duration>,
    /// Until when it does so.
    awake_until: Duration,
    /// When the last attempt began.
    attempted: Duration,
    /// How long after that one at least the next one begins that a change causes.
    apart: Duration,
    /// Since when a safe-gpu keeps its lock.
    held_up_since: Option<Duration>,
    /// Since when the driver fails to answer.
    silent_since: Option<Duration>,
    /// It was in the queue behind others, or had looked before.
    has_waited: bool,
    withdrawals: u32,
    /// A change was told, and is to be looked for once more.
    settling: bool,
    /// The attempt that is made when its time is over was made.
    made_last_attempt: bool,
}

impl<S> Taking<'_, S> {
    fn attempt(&mut self) -> Result<Attempt<S>, NotTaken> {
        self.keep_place()?;
        let mut queue = Queue::read(self.locks, &self.entry)?;
        self.attempted = self.clock.monotonic();
        if self.place.is_some()
            && !self.made_last_attempt
            && self.attempted >= self.awake_until
            && let Some(before) = queue.before(&self.entry)?
        {
            let leases = self.pool(&self.leases()?)?.leases;
            let standing = Standing { ahead: queue.ahead(), leases, held_up: None };
            let own_look = OWN_LOOK * queue.rank().max(1);
            self.own_look.get_or_insert(self.attempted.saturating_add(own_look));
            self.has_waited = true;
            return Ok(Attempt::Asleep(before, standing));
        }
        let before = self.leases()?;
        if self.is_still_behind(&before, &mut queue)? {
            return Ok(Attempt::Behind(self.standing(&before, &queue, None)?));
        }
        let held_back = self.hold_back();
        let held_up = self.held_up(held_back.as_ref());
        let is_new = held_up.is_none() || !self.has_seen_lately(&queue);
        if is_new {
            let scene = match (self.look)() {
                Err(error) => return self.silent(error, &before, &queue),
                Ok(scene) => scene,
            };
            let at = self.clock.monotonic();
            self.seen = Some(Seen { scene, at, before: self.pool(&before)?.leases });
        }
        // The look may have taken its time: who got devices meanwhile is to be seen.
        let leases = self.leases()?;
        let turn = self.judge(&leases, &mut queue)?;
        if held_up.is_some() {
            // The others are held up by the same lock: none of them is idle.
            self.servable.clear();
            return Ok(Attempt::Behind(self.standing(&leases, &queue, held_up)?));
        }
        match turn {
            Some(Turn::Take(devices)) => {
                self.silent_since = None;
                let standing = self.standing(&leases, &queue, None)?;
                self.grant(devices, held_back, standing)
            }
            // What was there may be back when the driver has been loaded anew.
            Some(Turn::Never) if !self.may_go_on() => Err(NotTaken::Never),
            Some(Turn::Never) => Ok(Attempt::Behind(self.standing(&leases, &queue, None)?)),
            _ => {
                self.silent_since = None;
                Ok(Attempt::Behind(self.standing(&leases, &queue, None)?))
            }
        }
    }

    fn has_seen_lately(&self, queue: &Queue<'_>) -> bool {
        let until = self.seen.as_ref().map(|seen| seen.at + look_again(&queue.ahead()));
        until.is_some_and(|until| self.clock.monotonic() < until)
    }

    /// Waits on where the driver fails to answer a claim that has waited already.
    fn silent(
        &mut self,
        error: Error,
        leases: &Ledger,
        queue: &Queue<'_>,
    ) -> Result<Attempt<S>, NotTaken> {
        if !self.may_go_on() {
            return Err(error.into());
        }
        self.seen = None;
        let held_up = Some(HeldUp::Driver(error.fault()));
        Ok(Attempt::Behind(self.standing(leases, queue, held_up)?))
    }

    /// Tells whether it may wait on although the driver does not answer, or not with all devices.
    fn may_go_on(&mut self) -> bool {
        let now = self.clock.monotonic();
        let since = *self.silent_since.get_or_insert(now);
        self.ask.wait != Wait::No && self.has_waited && now.saturating_sub(since) < SILENT_AT_MOST
    }

    /// Returns what keeps it from being served: a safe-gpu that is at work, for a time.
    fn held_up(&mut self, held_back: Option<&Result<Box<dyn HeldBack>>>) -> Option<HeldUp> {
        let Some(Err(error)) = held_back.filter(|held_back| is_timed_out(held_back)) else {
            self.held_up_since = None;
            return None;
        };
        let now = self.clock.monotonic();
        let since = *self.held_up_since.get_or_insert(now);
        let is_patient = now.saturating_sub(since) < SAFE_GPU_AT_MOST;
        is_patient.then(|| HeldUp::SafeGpu(error.fault()))
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
            self.place = Some(self.locks.publish(EntryKind::Waiter, &self.entry)?);
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
        let is_idle = |place: &QueuePlace| {
            since.get(place).is_some_and(|since| now.saturating_sub(*since) >= IDLE)
        };
        let choose = |claim: &Claim, beside: &[Entry]| (self.choose)(&seen.scene, claim, beside);
        let places = queue.earlier();
        let within = self.ask.within.as_ref();
        let mut read = |place: &QueuePlace| queue.rival(place, leases, within);
        let judged = judge(&self.entry, &pool, &places, &mut read, &is_idle, &choose)?;
        // Where this claim itself lacks devices, nobody was found to be servable.
        let servable = judged.servable.unwrap_or_default();
        let mut kept: BTreeMap<QueuePlace, Duration> = since
            .iter()
            .filter(|(place, _)| {
                servable.contains(place) || is_idle(place) && places.contains(place)
            })
            .map(|(place, since)| (place.clone(), *since))
            .collect();
        for place in servable {
            kept.entry(place).or_insert(now);
        }
        self.servable = kept;
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
    /// Each publishes before it reads. Of leases that are confirmed and conflict, let one be the
    /// last to have begun its last reading: all others were published before, so it saw all of
    /// them, and did not confirm. Of attempts that conflict the earliest stays and the others withdraw,
    /// so that one of them is confirmed.
    fn grant(
        &mut self,
        devices: Vec<DeviceUuid>,
        held_back: Option<Result<Box<dyn HeldBack>>>,
        standing: Standing,
    ) -> Result<Attempt<S>, NotTaken> {
        let entry = Entry { devices, since: self.clock.wall(), ..self.entry.clone() };
        let mut held = self.locks.publish(EntryKind::Attempt, &entry)?;
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
            if alone == READINGS_ALONE {
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
            self.clock.sleep(RIVALS_READ);
        }
    }

    /// Returns what competes with an attempt of its own, without that attempt.
    fn beside(&self, entry: &Entry, leases: Vec<Entry>) -> Result<Vec<Entry>, NotTaken> {
        let of_owner = leases.iter().filter(|lease| lease.owner == entry.owner).count();
        if of_owner > LEASES_OF_ONE {
            let what = format!("take devices for a user who has {LEASES_OF_ONE} leases already");
            return Err(Error::new(ErrorKind::Invalid, what).into());
        }
        let mut beside = self.pool(&Ledger::new(leases, Vec::new()))?.leases;
        let all = beside.len();
        beside.retain(|lease| !is_same(lease, entry));
        if beside.len() < all {
            return Ok(beside);
        }
        let what = format!("publish lease {}, which nobody sees", entry.id);
        Err(Error::new(ErrorKind::Io, what).into())
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
            if self.made_last_attempt {
                return Ok(());
            }
            if self.own_look.is_some_and(|at| now >= at) {
                self.own_look = None;
                self.awake_until = now + AWAKE;
                return Ok(());
            }
            let beat = self.beat + QUEUE_BEAT;
            if now >= beat {
                self.keep_place()?;
                let waiter = self.locks.waiter(before)?;
                if waiter.is_none_or(|waiter| waiter.is_stalled) {
                    return Ok(());
                }
                // Somebody reads along: then the places are counted anew.
                if self.ask.pace < QUEUE_BEAT / 5 {
                    let mut queue = Queue::read(self.locks, &self.entry)?;
                    queue.before(&self.entry)?;
                    standing.ahead = queue.ahead();
                }
                continue;
            }
            let slice = self.slice(now, beat);
            if self.locks.wait_for(before, slice)? {
                self.own_look = None;
                return Ok(());
            }
        }
    }

    /// Waits until something changed that may matter.
    fn wait(&mut self, standing: Standing) -> Result<(), NotTaken> {
        if self.ask.wait == Wait::No {
            return Err(self.ended(standing));
        }
        self.has_waited |= self.seen.is_some();
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
            if self.made_last_attempt || now >= until {
                self.apart = ATTEMPTS_APART;
                return Ok(());
            }
            self.keep_place()?;
            let slice = self.slice(now, until.min(self.beat + QUEUE_BEAT));
            if self.locks.wait(slice)? {
                let next = self.attempted + self.apart;
                self.clock.sleep(next.saturating_sub(self.clock.monotonic()));
                self.apart = (self.apart * 2).min(ATTEMPTS_APART_AT_MOST);
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
        over && std::mem::replace(&mut self.made_last_attempt, true)
    }

    /// Returns how it ends when there is no time left.
    fn ended(&self, standing: Standing) -> NotTaken {
        match self.ask.wait {
            Wait::No => NotTaken::NotNow(Box::new(standing)),
            Wait::For(_) | Wait::Ever => NotTaken::TimedOut(Box::new(standing)),
        }
    }
}

fn is_timed_out(held_back: &Result<Box<dyn HeldBack>>) -> bool {
    held_back.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut)
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
