//! A machine of four devices, with fake locks and a fake clock.

use gpu_claim::*;
use gpu_core::*;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) const MACHINE: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Default)]
pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) entries: Vec<(EntryKind, LeaseEntry)>,
    pub(crate) tickets: u64,
    pub(crate) ids: u64,
    /// The entries that others publish at the same moment as the next attempts here.
    pub(crate) met: Vec<(EntryKind, LeaseEntry)>,
    pub(crate) safe_gpu: Option<ErrorKind>,
    /// How long the last claim was ready to wait for safe-gpu's lock.
    pub(crate) patience: Option<Duration>,
    /// The process that holds safe-gpu's lock, while taking it fails with [`ErrorKind::TimedOut`].
    pub(crate) holder: Option<Pid>,
    /// The number of reads after which the conflicting claims withdraw.
    pub(crate) met_withdraw_after: Option<u32>,
    /// How many attempts are refused because the user has too many at the moment.
    pub(crate) refusals: u32,
    /// The number of reads of leases.
    pub(crate) readings: u32,
    /// Stalled claims.
    pub(crate) stalled: Vec<LeaseId>,
    /// Claims whose processes died and left their places in the queue.
    pub(crate) dead: Vec<LeaseId>,
    /// When changes are signalled, the first one first.
    pub(crate) signals: VecDeque<Duration>,
    /// How often a place in the queue was renewed, and waited for.
    pub(crate) beats: u32,
    pub(crate) sleeps: u32,
}

#[derive(Clone, Default)]
pub(crate) struct Made(Arc<Mutex<World>>);

impl Made {
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self, kind: EntryKind, entry: LeaseEntry) {
        self.with(|world| world.entries.push((kind, entry)));
    }

    pub(crate) fn end(&self, id: &LeaseId) {
        self.with(|world| world.entries.retain(|(_, entry)| entry.id != *id));
    }

    pub(crate) fn waiters(&self) -> usize {
        self.entries(EntryKind::Waiter).unwrap().len()
    }
}

pub(crate) struct Kept(Made, EntryKind, LeaseId);

impl LeaseGuard for Kept {
    fn confirm(&mut self) -> Result<()> {
        let Kept(made, kind, id) = self;
        made.with(|world| {
            let own = world.entries.iter_mut().find(|(k, e)| k == kind && e.id == *id);
            own.expect("it is there").0 = EntryKind::Lease;
        });
        *kind = EntryKind::Lease;
        Ok(())
    }
    fn inherit(&self, _: bool) -> Result<()> {
        Ok(())
    }
    fn renew(&self) -> Result<bool> {
        let Kept(made, kind, id) = self;
        made.with(|world| world.beats += 1);
        Ok(made.with(|world| world.entries.iter().any(|(k, e)| k == kind && e.id == *id)))
    }
    fn leave(self: Box<Self>) {}
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Kept(made, kind, id) = self;
        made.with(|world| world.entries.retain(|(k, e)| k != kind || e.id != *id));
    }
}

pub(crate) struct Nothing;

impl SafeGpuGuard for Nothing {
    fn waiting(&self) -> Result<Vec<Pid>> {
        Ok(Vec::new())
    }
}

impl Clock for Made {
    fn wall(&self) -> Timestamp {
        Timestamp(self.with(|world| u64::try_from(world.now.as_millis()).unwrap()))
    }
    fn monotonic(&self) -> Duration {
        self.with(|world| world.now)
    }
    fn sleep(&self, duration: Duration) {
        self.with(|world| world.now += duration);
    }
}

impl LeaseStore for Made {
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>> {
        let of_kind = |(k, entry): &(EntryKind, LeaseEntry)| (*k == kind).then(|| entry.clone());
        self.with(|world| {
            world.readings += u32::from(kind == EntryKind::Attempt);
            if world.met_withdraw_after.is_some_and(|after| world.readings > after) {
                world.entries.retain(|(k, e)| *k != EntryKind::Attempt || e.command == "own");
            }
        });
        Ok(self.with(|world| world.entries.iter().filter_map(of_kind).collect()))
    }
    fn queue(&self) -> Result<Vec<QueuePlace>> {
        let waiters = self.entries(EntryKind::Waiter)?;
        let mut places: Vec<_> = waiters.iter().map(place_of).collect();
        places.sort();
        Ok(places)
    }
    fn waiter(&self, place: &QueuePlace) -> Result<Option<Waiter>> {
        let waiters = self.entries(EntryKind::Waiter)?;
        let is_dead = self.with(|world| world.dead.contains(&place.id));
        let entry = waiters.into_iter().find(|entry| !is_dead && place.is_of(entry));
        let is_stalled = self.with(|world| world.stalled.contains(&place.id));
        Ok(entry.map(|entry| Waiter { entry, is_stalled }))
    }
    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>> {
        let is_refused = |world: &mut World| {
            let refused = world.refusals > 0;
            world.refusals -= u32::from(refused);
            refused
        };
        if kind == EntryKind::Attempt && self.with(is_refused) {
            return Err(Error::new(ErrorKind::Again, "publish"));
        }
        self.add(kind, entry.clone());
        if kind == EntryKind::Attempt
            && let Some((kind, met)) = self.with(|world| world.met.pop())
        {
            self.with(|world| world.entries.retain(|(_, entry)| entry.id != met.id));
            self.add(kind, met);
        }
        Ok(Box::new(Kept(self.clone(), kind, entry.id.clone())))
    }
    fn owner(&self) -> u32 {
        1000
    }
    fn new_id(&self) -> Result<LeaseId> {
        self.with(|world| world.ids += 1);
        Ok(id(&format!("own-{}", self.with(|world| world.ids))))
    }
    fn ticket(&self) -> Result<u64> {
        self.with(|world| world.tickets += 1);
        Ok(100 + self.with(|world| world.tickets))
    }
    fn wait(&self, at_most: Duration) -> Result<bool> {
        Ok(self.with(|world| {
            let end = world.now + at_most;
            let signal = world.signals.pop_front_if(|signal| *signal <= end);
            world.now = signal.map_or(end, |signal| signal.max(world.now));
            signal.is_some()
        }))
    }
    fn wait_for(&self, place: &QueuePlace, at_most: Duration) -> Result<bool> {
        self.with(|world| world.sleeps += 1);
        self.sleep(at_most);
        Ok(self.waiter(place)?.is_none())
    }
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        BTreeMap::new()
    }
    fn hold_back_safe_gpu(&self, patience: Duration) -> Result<Box<dyn SafeGpuGuard>> {
        self.with(|world| world.patience = Some(patience));
        match self.with(|world| world.safe_gpu) {
            None => Ok(Box::new(Nothing)),
            Some(kind) => Err(Error::new(kind, "hold safe-gpu's locks")),
        }
    }
    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder> {
        self.with(|world| {
            let is_locked = world.safe_gpu == Some(ErrorKind::TimedOut);
            is_locked.then_some(SafeGpuHolder { file: 0, process: world.holder })
        })
    }
}

fn place_of(entry: &LeaseEntry) -> QueuePlace {
    let class = u64::from(entry.claim.count);
    QueuePlace { ticket: entry.ticket, id: entry.id.clone(), owner: entry.owner, class }
}

pub(crate) fn id(text: &str) -> LeaseId {
    LeaseId::parse(text).unwrap()
}

pub(crate) fn devices(names: &[&str]) -> Vec<DeviceUuid> {
    names.iter().map(|&name| DeviceUuid(name.into())).collect()
}

/// An entry of another process of the same user.
pub(crate) fn entry(name: &str, ticket: u64, count: u32, names: &[&str]) -> LeaseEntry {
    LeaseEntry {
        id: id(name),
        ticket,
        owner: 1000,
        root: ProcessKey { pid: Pid(7), start: None },
        within: Vec::new(),
        claim: Claim::whole(count),
        devices: devices(names),
        parts_of: Vec::new(),
        merged: None,
        command: "other".into(),
        since: Timestamp(0),
    }
}

pub(crate) fn ask(count: u32, wait: Wait) -> ClaimRequest {
    let root = ProcessKey { pid: Pid(1), start: None };
    let claim = Claim::whole(count);
    ClaimRequest {
        claim,
        root,
        within: None,
        parts_of: Vec::new(),
        command: "own".into(),
        wait,
        pace: Duration::from_millis(100),
        holds_back_safe_gpu: false,
    }
}

/// The first free devices; all claims are on whole devices.
pub(crate) fn choose(_: &(), claim: &Claim, others: &[LeaseEntry]) -> Chosen {
    let all = devices(&MACHINE);
    let wanted = |d: &&DeviceUuid| claim.among.is_empty() || claim.among.contains(d);
    let could: Vec<_> = all.iter().filter(wanted).cloned().collect();
    let taken = |d: &&DeviceUuid| !others.iter().any(|lease| lease.devices.contains(d));
    let count = claim.count as usize;
    let free: Vec<_> = could.iter().filter(taken).take(count).cloned().collect();
    match () {
        () if could.len() < count => Chosen::Never,
        () if free.len() < count => Chosen::NotNow { could },
        () => Chosen::Devices(free),
    }
}

/// Takes devices, and lets `watch` change the world during the wait.
pub(crate) fn take_while(
    made: &Made,
    ask: &ClaimRequest,
    mut watch: impl FnMut(&Waiting<'_>) -> ControlFlow<()>,
) -> Result<Taken<()>, TakeError> {
    take(made, made, ask, &mut || Ok(()), &choose, &mut watch)
}

pub(crate) fn take_now(made: &Made, ask: &ClaimRequest) -> Result<Taken<()>, TakeError> {
    take_while(made, ask, |_| ControlFlow::Continue(()))
}

pub(crate) fn names(taken: Result<Taken<()>, TakeError>) -> Vec<String> {
    let taken = taken.unwrap_or_else(|why| panic!("{why:?}"));
    taken.entry.devices.into_iter().map(|uuid| uuid.0).collect()
}
