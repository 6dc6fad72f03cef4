//! `gpu_claim::take` itself, under every schedule of a few threads with few preemptions.
//!
//! The model restates the protocol. Here, the program's own steps run over in-memory locks, with
//! one step per call. After each step, the scheduler chooses the next thread: the same one or, a
//! limited number of times, another. A sleeping thread yields to the next one. All choices are
//! tried, one run after another, as in M. Musuvathi and S. Qadeer, "Iterative context bounding for
//! systematic testing of multithreaded programs", PLDI 2007: most faults need few preemptions.

use crate::rule::chosen;
use gpu_claim::{ClaimRequest, TakeError, Taken, Wait, Waiting, take};
use gpu_core::{
    Claim, Clock, DeviceUuid, EntryKind, Error, ErrorKind, LeaseEntry, LeaseGuard, LeaseId,
    LeaseStore, Pid, ProcessKey, QueuePlace, Result, SafeGpuGuard, SafeGpuHolder, Timestamp,
    Waiter,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Busy,
    Ready,
    Asleep,
    Over,
}

/// A living entry.
struct Published {
    key: usize,
    kind: EntryKind,
    entry: LeaseEntry,
}

struct World {
    threads: Vec<Thread>,
    turn: Option<usize>,
    now: Duration,
    entries: Vec<Published>,
    made: usize,
    /// The description of each step.
    steps: Vec<String>,
    violated: Option<String>,
    /// For each choice, the index of the chosen thread and the number of runnable threads; beyond
    /// the end, the first thread is chosen.
    path: Vec<(usize, usize)>,
    /// The number of choices made.
    chosen: usize,
    /// The number of remaining preemptions.
    preemptions: usize,
    last: usize,
}

struct Scheduler {
    world: Mutex<World>,
    moved: Condvar,
}

impl Scheduler {
    fn new(threads: usize, path: Vec<(usize, usize)>, preemptions: usize) -> Self {
        let world = World {
            threads: vec![Thread::Busy; threads],
            turn: None,
            now: Duration::ZERO,
            entries: Vec::new(),
            made: 0,
            steps: Vec::new(),
            violated: None,
            path,
            chosen: 0,
            preemptions,
            last: 0,
        };
        Scheduler { world: Mutex::new(world), moved: Condvar::new() }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no thread panics")
    }

    /// Waits for its turn and executes a step.
    fn step<T>(&self, me: usize, at: Thread, what: &str, act: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world();
        world.threads[me] = at;
        world.choose();
        if world.turn.is_some_and(|turn| turn != me) {
            self.moved.notify_all();
        }
        while world.turn != Some(me) {
            world = self.moved.wait(world).expect("no thread panics");
        }
        world.turn = None;
        world.steps.push(format!("{me} {what}"));
        act(&mut world)
    }

    fn over(&self, me: usize) {
        let mut world = self.world();
        world.threads[me] = Thread::Over;
        world.choose();
        self.moved.notify_all();
    }
}

impl World {
    /// Chooses the next thread, if none is running.
    fn choose(&mut self) {
        if self.turn.is_some() || self.threads.contains(&Thread::Busy) {
            return;
        }
        let count = self.threads.len();
        let after = (1..=count).map(|by| (self.last + by) % count);
        let mut able: Vec<usize> = after.filter(|one| self.threads[*one] != Thread::Over).collect();
        if able.is_empty() {
            return;
        }
        if self.threads[self.last] == Thread::Ready {
            // The same thread comes first, then any other if preemptions remain.
            able.rotate_right(1);
            able.truncate(if self.preemptions == 0 { 1 } else { count });
        } else {
            able.truncate(1);
        }
        if self.path.len() == self.chosen {
            self.path.push((0, able.len()));
        }
        let choice = self.path[self.chosen].0;
        self.preemptions -= usize::from(choice > 0);
        self.chosen += 1;
        self.last = able[choice];
        self.threads[self.last] = Thread::Busy;
        self.turn = Some(self.last);
    }
}

/// The locks and the clock of one thread.
#[derive(Clone)]
struct Port {
    scheduler: Arc<Scheduler>,
    me: usize,
    owner: u32,
}

struct Holding {
    port: Port,
    key: usize,
    /// Whether the lease is kept until the end of the run.
    left: bool,
}

impl Clock for Port {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        self.scheduler.world().now
    }

    fn sleep(&self, duration: Duration) {
        self.scheduler.step(self.me, Thread::Asleep, "wakes up", |world| world.now += duration);
    }
}

impl LeaseStore for Port {
    fn entries(&self, kind: EntryKind) -> Result<Vec<LeaseEntry>> {
        let what = format!("reads {kind:?}s");
        Ok(self.scheduler.step(self.me, Thread::Ready, &what, |world| {
            let of_kind = world.entries.iter().filter(|published| published.kind == kind);
            of_kind.map(|published| published.entry.clone()).collect()
        }))
    }

    fn queue(&self) -> Result<Vec<QueuePlace>> {
        Ok(Vec::new())
    }

    fn waiter(&self, _: &QueuePlace) -> Result<Option<Waiter>> {
        Ok(None)
    }

    fn publish(&self, kind: EntryKind, entry: &LeaseEntry) -> Result<Box<dyn LeaseGuard>> {
        let what = format!("publishes {} as {kind:?} on {:?}", entry.id, entry.devices);
        let key = self.scheduler.step(self.me, Thread::Ready, &what, |world| {
            world.made += 1;
            let (key, entry) = (world.made, entry.clone());
            world.entries.push(Published { key, kind, entry });
            key
        });
        Ok(Box::new(Holding { port: self.clone(), key, left: false }))
    }

    fn owner(&self) -> u32 {
        self.owner
    }

    fn new_id(&self) -> Result<LeaseId> {
        LeaseId::parse(&format!("n-{}", self.me))
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "name a lease"))
    }

    fn ticket(&self) -> Result<u64> {
        Ok(self.me as u64)
    }

    fn wait(&self, _: Duration) -> Result<bool> {
        Ok(false)
    }

    fn wait_for(&self, _: &QueuePlace, _: Duration) -> Result<bool> {
        Ok(false)
    }

    fn last_leased(&self) -> BTreeMap<DeviceUuid, Timestamp> {
        BTreeMap::new()
    }

    fn hold_back_safe_gpu(&self, _: Duration) -> Result<Box<dyn SafeGpuGuard>> {
        Err(Error::new(ErrorKind::Unsupported, "hold back safe-gpu"))
    }

    fn safe_gpu_holder(&self) -> Option<SafeGpuHolder> {
        None
    }
}

impl LeaseGuard for Holding {
    fn confirm(&mut self) -> Result<()> {
        self.port.scheduler.step(self.port.me, Thread::Ready, "confirms", |world| {
            if let Some(own) = world.entries.iter_mut().find(|other| other.key == self.key) {
                own.kind = EntryKind::Lease;
            }
            if let Some(violated) = double_grant(&world.entries) {
                world.violated = Some(violated);
            }
        });
        Ok(())
    }

    fn inherit(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn renew(&self) -> Result<bool> {
        Ok(true)
    }

    fn leave(mut self: Box<Self>) {
        self.left = true;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        self.port.scheduler.step(self.port.me, Thread::Ready, "releases the lock", |world| {
            world.entries.retain(|other| other.key != self.key);
        });
    }
}

/// Finds two leases on one device of which neither is within the other.
fn double_grant(entries: &[Published]) -> Option<String> {
    let leases = || {
        let leases = entries.iter().filter(|other| other.kind == EntryKind::Lease);
        leases.map(|lease| &lease.entry)
    };
    let is_beside = |a: &LeaseEntry, b: &LeaseEntry| {
        let is_within =
            |a: &LeaseEntry, b: &LeaseEntry| a.within.iter().any(|outer| outer.id == b.id);
        a.id != b.id && !is_within(a, b) && !is_within(b, a)
    };
    let shares =
        |a: &LeaseEntry, b: &LeaseEntry| a.devices.iter().any(|device| b.devices.contains(device));
    let mut pairs = leases().flat_map(|a| leases().map(move |b| (a, b)));
    let pair = pairs.find(|(a, b)| is_beside(a, b) && shares(a, b));
    pair.map(|(a, b)| format!("{} and {} have a device at once", a.id, b.id))
}

/// The body of a thread; returns whether its claim was granted.
type Part = Box<dyn FnOnce(&Port) -> bool + Send>;

/// Claims `count` whole devices among these, without waiting.
fn claim(port: &Port, count: u32, among: u8, within: Option<LeaseEntry>) -> Option<Taken<()>> {
    let ask = ClaimRequest {
        claim: Claim::whole(count),
        root: ProcessKey { pid: Pid(1), start: None },
        within,
        parts_of: Vec::new(),
        command: String::new(),
        wait: Wait::No,
        pace: Duration::from_secs(1),
        holds_back_safe_gpu: false,
    };
    let choose = |(): &(), claim: &Claim, others: &[LeaseEntry]| chosen(claim, among, others);
    let watch = &mut |_: &Waiting<'_>| ControlFlow::Continue(());
    match take(port, port, &ask, &mut || Ok(()), &choose, watch) {
        Ok(taken) => Some(taken),
        // Others have the devices, or the outer lease has ended.
        Err(TakeError::NotNow(_) | TakeError::Failed(_)) => None,
        Err(other) => panic!("{other:?}"),
    }
}

/// Returns a claim that keeps its devices until the end of the run.
fn keeper(count: u32, among: u8) -> Part {
    Box::new(move |port| {
        let taken = claim(port, count, among, None);
        taken.is_some_and(|taken| {
            taken.held.leave();
            true
        })
    })
}

/// Runs one thread per part under one schedule; returns the number of granted claims.
fn run(parts: Vec<(u32, Part)>, path: Vec<(usize, usize)>, preemptions: usize) -> (usize, World) {
    let scheduler = Arc::new(Scheduler::new(parts.len(), path, preemptions));
    let served = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(me, (owner, part))| {
                let port = Port { scheduler: Arc::clone(&scheduler), me, owner };
                scope.spawn(move || {
                    let served = part(&port);
                    port.scheduler.over(me);
                    usize::from(served)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let scheduler = Arc::into_inner(scheduler).expect("all threads have ended");
    (served, scheduler.world.into_inner().expect("no thread panics"))
}

/// Tries all schedules; under each, at least `at_least` claims must be granted.
fn try_all(name: &str, parts: &dyn Fn() -> Vec<(u32, Part)>, preemptions: usize, at_least: usize) {
    let (mut path, mut runs) = (Vec::new(), 0);
    loop {
        let (served, world) = run(parts(), path, preemptions);
        let steps = world.steps.join("\n");
        assert_eq!(world.violated, None, "{steps}");
        assert!(served >= at_least, "{served} served:\n{steps}");
        runs += 1;
        path = world.path;
        // The last choice with an alternative takes it.
        while path.last().is_some_and(|(choice, of)| choice + 1 == *of) {
            path.pop();
        }
        let Some((choice, _)) = path.last_mut() else { break };
        *choice += 1;
    }
    println!("{name}, {preemptions} preemptions: {runs} schedules");
}

#[test]
fn take_grants_no_device_twice_under_any_schedule() {
    let pair = || vec![(1, keeper(2, 0b11)), (2, keeper(2, 0b11))];
    try_all("two claims on both devices", &pair, 5, 1);
    let three = || vec![(1, keeper(1, 0b11)), (2, keeper(1, 0b11)), (2, keeper(2, 0b11))];
    try_all("three claims on one or both devices", &three, 3, 1);
}

/// A claim is granted the device and ends. Its job claims the device within that lease, in
/// competition with another user's claim.
#[test]
fn take_sees_nested_lease_of_ending_lease() {
    let parts = || -> Vec<(u32, Part)> {
        let outer: Arc<Mutex<Option<LeaseEntry>>> = Arc::default();
        let (given, got) = (Arc::clone(&outer), outer);
        let supervisor: Part = Box::new(move |port| {
            let Some(taken) = claim(port, 1, 0b01, None) else { return false };
            *given.lock().expect("no thread panics") = Some(taken.entry.clone());
            // The job starts.
            port.sleep(Duration::ZERO);
            true
        });
        let job: Part = Box::new(move |port| {
            port.sleep(Duration::ZERO);
            let Some(outer) = got.lock().expect("no thread panics").clone() else { return false };
            let taken = claim(port, 1, 0b01, Some(outer));
            taken.is_some_and(|taken| {
                taken.held.leave();
                true
            })
        });
        vec![(1, supervisor), (2, keeper(1, 0b01)), (1, job)]
    };
    try_all("a claim within a lease that ends", &parts, 4, 0);
}
