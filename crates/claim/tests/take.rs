//! Taking devices of a machine of four, with locks and a clock that are made up.

use gpu_claim::*;
use gpu_core::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const MACHINE: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Default)]
struct World {
    now: Duration,
    entries: Vec<(EntryKind, Entry)>,
    tickets: u64,
    ids: u64,
    /// Leases that others publish at the same moment as the next ones here.
    met: Vec<Entry>,
    safe_gpu: Option<ErrorKind>,
    /// How long each taking of the table lasts.
    table: Duration,
    tables: u32,
    /// Somebody has the table and keeps it.
    is_table_kept: bool,
}

#[derive(Clone, Default)]
struct Made(Arc<Mutex<World>>);

impl Made {
    fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, kind: EntryKind, entry: Entry) {
        self.with(|world| world.entries.push((kind, entry)));
    }

    fn end(&self, id: &LeaseId) {
        self.with(|world| world.entries.retain(|(_, entry)| entry.id != *id));
    }

    fn waiters(&self) -> usize {
        self.entries(EntryKind::Waiter).unwrap().len()
    }
}

struct Kept(Made, EntryKind, LeaseId);

impl Held for Kept {
    fn inherit(&self, _: bool) -> Result<()> {
        Ok(())
    }
    fn renew(&self) -> Result<bool> {
        let Kept(made, kind, id) = self;
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

struct Nothing;

impl Held for Nothing {
    fn inherit(&self, _: bool) -> Result<()> {
        Ok(())
    }
    fn renew(&self) -> Result<bool> {
        Ok(true)
    }
    fn leave(self: Box<Self>) {}
}

impl HeldBack for Nothing {
    fn waiting(&self) -> Result<Vec<Pid>> {
        Ok(Vec::new())
    }
}

impl Clock for Made {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }
    fn monotonic(&self) -> Duration {
        self.with(|world| world.now)
    }
    fn sleep(&self, duration: Duration) {
        self.with(|world| world.now += duration);
    }
}

impl Locks for Made {
    fn table(&self, patience: Duration) -> Result<Box<dyn Held>> {
        self.with(|world| {
            if world.is_table_kept {
                world.now += patience;
                return Err(Error::new(ErrorKind::TimedOut, "lock the table"));
            }
            world.now += world.table;
            world.tables += 1;
            Ok(Box::new(Nothing) as Box<dyn Held>)
        })
    }
    fn entries(&self, kind: EntryKind) -> Result<Vec<Entry>> {
        let of_kind = |(k, entry): &(EntryKind, Entry)| (*k == kind).then(|| entry.clone());
        Ok(self.with(|world| world.entries.iter().filter_map(of_kind).collect()))
    }
    fn publish(&self, kind: EntryKind, entry: &Entry) -> Result<Box<dyn Held>> {
        self.add(kind, entry.clone());
        if kind == EntryKind::Lease
            && let Some(met) = self.with(|world| world.met.pop())
        {
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
        self.sleep(at_most);
        Ok(false)
    }
    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        BTreeMap::new()
    }
    fn hold_back_safe_gpu(&self, _: Duration) -> Result<Box<dyn HeldBack>> {
        match self.with(|world| world.safe_gpu) {
            None => Ok(Box::new(Nothing)),
            Some(kind) => Err(Error::new(kind, "hold back safe-gpu")),
        }
    }
}

fn id(text: &str) -> LeaseId {
    LeaseId::parse(text).unwrap()
}

fn devices(names: &[&str]) -> Vec<DeviceUuid> {
    names.iter().map(|&name| DeviceUuid(name.into())).collect()
}

/// An entry of another process of the same user.
fn entry(name: &str, ticket: u64, count: u32, names: &[&str]) -> Entry {
    Entry {
        id: id(name),
        ticket,
        owner: 1000,
        root: ProcessKey { pid: Pid(7), start: None },
        within: None,
        claim: Claim::whole(count),
        devices: devices(names),
        command: "other".into(),
        since: Timestamp(0),
    }
}

fn ask(count: u32, wait: Wait) -> Ask {
    let root = ProcessKey { pid: Pid(1), start: None };
    let claim = Claim::whole(count);
    Ask { claim, root, within: None, command: "own".into(), wait, beside_safe_gpu: false }
}

/// The first that are free; all claims are on whole devices.
fn choose(_: &(), claim: &Claim, beside: &[Entry]) -> Chosen {
    let all = devices(&MACHINE);
    let wanted = |d: &&DeviceUuid| claim.among.is_empty() || claim.among.contains(d);
    let could: Vec<_> = all.iter().filter(wanted).cloned().collect();
    let taken = |d: &&DeviceUuid| !beside.iter().any(|lease| lease.devices.contains(d));
    let count = claim.count as usize;
    let free: Vec<_> = could.iter().filter(taken).take(count).cloned().collect();
    match () {
        () if could.len() < count => Chosen::Never,
        () if free.len() < count => Chosen::NotNow { could },
        () => Chosen::Devices(free),
    }
}

/// Takes, and lets `watch` change the world while it waits.
fn take_while(
    made: &Made,
    ask: &Ask,
    mut watch: impl FnMut(&Waiting<'_>) -> ControlFlow<()>,
) -> Result<Taken<()>, NotTaken> {
    take(made, made, ask, &mut || Ok(()), &choose, &mut watch)
}

fn take_now(made: &Made, ask: &Ask) -> Result<Taken<()>, NotTaken> {
    take_while(made, ask, |_| ControlFlow::Continue(()))
}

fn names(taken: Result<Taken<()>, NotTaken>) -> Vec<String> {
    let taken = taken.unwrap_or_else(|why| panic!("{why:?}"));
    taken.entry.devices.into_iter().map(|uuid| uuid.0).collect()
}

#[test]
fn what_is_free_is_taken_and_held_until_it_is_dropped() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 1, &["a"]));
    let taken = take_now(&made, &ask(2, Wait::No)).ok().unwrap();
    assert_eq!(taken.entry.devices, devices(&["b", "c"]));
    assert_eq!(taken.beside, [entry("x", 1, 1, &["a"])]);
    assert!(taken.held_back.is_none());
    assert_eq!(made.entries(EntryKind::Lease).unwrap().len(), 2);
    assert_eq!(made.waiters(), 0);
    drop(taken);
    assert_eq!(made.entries(EntryKind::Lease).unwrap().len(), 1);
}

#[test]
fn who_does_not_wait_leaves_nothing() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 2, &["a", "b"]));
    made.add(EntryKind::Waiter, entry("w", 2, 1, &[]));
    let Err(NotTaken::NotNow { ahead, leases, held_up: None }) = take_now(&made, &ask(3, Wait::No))
    else {
        panic!("two are free")
    };
    assert_eq!((ahead.len(), leases.len()), (1, 1));
    assert!(matches!(take_now(&made, &ask(5, Wait::Ever)), Err(NotTaken::Never)));
    assert_eq!((made.waiters(), made.with(|world| world.entries.len())), (1, 2));
}

#[test]
fn a_wait_ends_when_the_time_is_over_or_somebody_asks_and_leaves_nothing() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let five = Wait::For(Duration::from_secs(5));
    let result = take_while(&made, &ask(1, five), |waiting| {
        assert_eq!(made.waiters(), 1);
        assert_eq!(waiting.leases.len(), 1);
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(NotTaken::TimedOut { .. })));
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(5) && now < Duration::from_secs(6), "{now:?}");
    let result = take_while(&made, &ask(1, Wait::Ever), |_| ControlFlow::Break(()));
    assert!(matches!(result, Err(NotTaken::Stopped)));
    assert_eq!(made.waiters(), 0);
}

#[test]
fn a_wait_ends_with_the_devices_of_whoever_ended() {
    let made = Made::default();
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let taken = take_while(&made, &ask(4, Wait::Ever), |waiting| {
        if waiting.waited > Duration::from_secs(3) {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), MACHINE);
    // In the last moment too.
    made.add(EntryKind::Lease, entry("x", 1, 4, &MACHINE));
    let five = Wait::For(Duration::from_secs(5));
    let taken = take_while(&made, &ask(4, five), |waiting| {
        if waiting.waited >= Duration::from_secs(5) {
            made.end(&id("x"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), MACHINE);
}

#[test]
fn of_two_at_one_moment_who_sees_the_other_withdraws() {
    let made = Made::default();
    made.with(|world| world.met = vec![entry("y", 1, 1, &["b"]), entry("x", 1, 1, &["a"])]);
    let mut first = true;
    let taken = take_while(&made, &ask(1, Wait::Ever), |_| {
        let own = made.entries(EntryKind::Lease).unwrap();
        let own = own.iter().filter(|lease| lease.command == "own").count();
        assert_eq!(own, 0, "it is withdrawn before anything else");
        first = false;
        ControlFlow::Continue(())
    });
    assert_eq!(names(taken), ["c"]);
    assert!(!first);
    assert_eq!(made.with(|world| world.tables), 3);
}

#[test]
fn who_was_met_on_another_device_is_no_reason_to_withdraw() {
    let made = Made::default();
    made.with(|world| world.met = vec![entry("x", 1, 1, &["d"])]);
    assert_eq!(names(take_now(&made, &ask(1, Wait::No))), ["a"]);
}

#[test]
fn who_is_ahead_and_does_not_move_is_passed_after_a_while() {
    let made = Made::default();
    made.add(EntryKind::Waiter, entry("stopped", 1, 4, &[]));
    let taken = take_now(&made, &ask(1, Wait::For(Duration::from_secs(60))));
    assert_eq!(names(taken), ["a"]);
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(10) && now < Duration::from_secs(25), "{now:?}");
    // One that could not be served has nothing to answer for.
    made.add(EntryKind::Lease, entry("x", 1, 1, &["d"]));
    let result = take_now(&made, &ask(1, Wait::For(Duration::from_secs(60))));
    assert!(matches!(result, Err(NotTaken::TimedOut { .. })));
}

#[test]
fn a_lease_is_taken_out_of_another() {
    let made = Made::default();
    let outer = entry("outer", 1, 3, &["a", "b", "c"]);
    made.add(EntryKind::Lease, outer.clone());
    made.add(EntryKind::Waiter, entry("w", 2, 4, &[]));
    let mut inner = ask(1, Wait::No);
    inner.claim.among = outer.devices.clone();
    inner.within = Some(outer.clone());
    let first = take_now(&made, &inner).ok().unwrap();
    assert_eq!(first.entry.within, Some(id("outer")));
    assert_eq!(first.beside, [], "the outer one and those outside of it do not matter");
    let second = take_now(&made, &inner).ok().unwrap();
    assert_eq!([first.entry.devices, second.entry.devices].concat(), devices(&["a", "b"]));
    let outside = take_now(&made, &ask(1, Wait::No));
    assert!(matches!(outside, Err(NotTaken::NotNow { .. })));

    for (outer, why) in [
        (
            Entry { id: id("ended"), ..outer.clone() },
            "take devices out of lease ended, which has ended",
        ),
        (Entry { owner: 7, ..outer }, "which has ended"),
    ] {
        let Err(NotTaken::Failed(error)) =
            take_now(&made, &Ask { within: Some(outer), ..inner.clone() })
        else {
            panic!("it is no lease of this user")
        };
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let foreign = Entry { owner: 7, ..entry("foreign", 1, 1, &["d"]) };
    made.add(EntryKind::Lease, foreign.clone());
    let result = take_now(&made, &Ask { within: Some(foreign), ..inner });
    let Err(NotTaken::Failed(error)) = result else { panic!("it is another user's") };
    assert!(error.to_string().ends_with("belongs to another user"), "{error}");
}

#[test]
fn a_safe_gpu_at_work_is_waited_for_and_one_that_cannot_be_held_is_told() {
    let made = Made::default();
    let beside = |wait| Ask { beside_safe_gpu: true, ..ask(1, wait) };
    made.with(|world| world.safe_gpu = Some(ErrorKind::TimedOut));
    let result = take_now(&made, &beside(Wait::No));
    assert!(matches!(result, Err(NotTaken::NotNow { held_up: Some(HeldUp::SafeGpu), .. })));
    let result = take_now(&made, &beside(Wait::For(Duration::from_secs(3))));
    assert!(matches!(result, Err(NotTaken::TimedOut { held_up: Some(HeldUp::SafeGpu), .. })));
    let taken = take_while(&made, &beside(Wait::Ever), |waiting| {
        assert_eq!(waiting.held_up, Some(HeldUp::SafeGpu));
        if waiting.waited > Duration::from_secs(1) {
            made.with(|world| world.safe_gpu = None);
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(taken.ok().unwrap().held_back, Some(Ok(_))));
    made.with(|world| world.safe_gpu = Some(ErrorKind::Io));
    let taken = take_now(&made, &beside(Wait::No)).ok().unwrap();
    assert_eq!(taken.held_back.unwrap().err().unwrap().kind(), ErrorKind::Io);
}

#[test]
fn a_table_that_somebody_keeps_is_waited_for_no_longer_than_was_asked() {
    let after = |wait| {
        let made = Made::default();
        made.with(|world| world.is_table_kept = true);
        let mut told = 0;
        let result = take_while(&made, &ask(1, wait), |waiting| {
            assert_eq!(waiting.held_up, Some(HeldUp::Table));
            told += 1;
            ControlFlow::Continue(())
        });
        let result = result.err().unwrap_or_else(|| panic!("nobody may decide"));
        (result, made.with(|world| world.now.as_millis()), told)
    };
    let (result, now, _) = after(Wait::No);
    assert!(matches!(result, NotTaken::NotNow { held_up: Some(HeldUp::Table), .. }), "{result:?}");
    assert_eq!(now, 250, "as long as others' decisions take");
    let (result, now, told) = after(Wait::For(Duration::from_secs(5)));
    assert!(matches!(result, NotTaken::TimedOut { held_up: Some(HeldUp::Table), .. }));
    assert_eq!((now, told), (5000, 4));
    for wait in [Wait::For(Duration::from_secs(60)), Wait::Ever] {
        let (result, now, told) = after(wait);
        let NotTaken::Failed(error) = result else { panic!("{result:?}") };
        assert_eq!((error.kind(), now, told), (ErrorKind::TimedOut, 10_000, 9));
    }
}

#[test]
fn conflicts_without_end_end_with_the_time() {
    let made = Made::default();
    let meet = |made: &Made| made.with(|world| world.met = vec![entry("x", 1, 1, &["a"])]);
    meet(&made);
    let result = take_while(&made, &ask(1, Wait::For(Duration::from_secs(2))), |_| {
        made.end(&id("x"));
        meet(&made);
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(NotTaken::TimedOut { held_up: None, .. })));
    let now = made.with(|world| world.now);
    assert!(now >= Duration::from_secs(2) && now < Duration::from_secs(3), "{now:?}");
}

#[test]
fn a_user_with_a_flood_of_leases_gets_no_more_and_others_do() {
    let made = Made::default();
    for number in 0..256 {
        made.add(EntryKind::Lease, entry(&format!("x-{number}"), number % 100, 1, &["d"]));
    }
    let Err(NotTaken::Failed(error)) = take_now(&made, &ask(1, Wait::Ever)) else {
        panic!("one more would not be told apart")
    };
    assert!(error.to_string().ends_with("a user who has 256 leases already"), "{error}");
    assert_eq!(made.with(|world| world.entries.len()), 256);
    made.with(|world| world.entries.iter_mut().for_each(|(_, entry)| entry.owner = 7));
    made.add(EntryKind::Lease, Entry { owner: 7, ..entry("late", 300, 1, &["a"]) });
    assert_eq!(names(take_now(&made, &ask(1, Wait::Ever))), ["b"], "no lease is passed over");
}

#[test]
fn nobody_decides_by_an_old_look() {
    let made = Made::default();
    made.with(|world| world.table = Duration::from_secs(2));
    let mut looks = 0;
    let mut look = || {
        looks += 1;
        if looks == 2 {
            made.with(|world| world.table = Duration::ZERO);
        }
        Ok(())
    };
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let taken = take(&made, &made, &ask(1, Wait::No), &mut look, &choose, &mut watch);
    assert_eq!(names(taken), ["a"]);
    assert_eq!(looks, 2);
}

#[test]
fn a_failed_look_leaves_nothing() {
    let made = Made::default();
    let mut look = || Err(Error::new(MachineFault::NoLibrary, "load the driver's library"));
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());
    let result = take(&made, &made, &ask(1, Wait::Ever), &mut look, &choose, &mut watch);
    assert!(matches!(result, Err(NotTaken::Failed(_))));
    assert_eq!(made.with(|world| (world.entries.len(), world.tables)), (0, 0));
}
