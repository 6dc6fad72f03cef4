//! Repeated snapshots: when holders are searched for again, and that no sleeping device is woken.

use crate::fixture::*;
use gpu_core::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A machine with one device that a test changes between snapshots.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Facts>>);

#[derive(Default)]
struct Facts {
    now: Duration,
    /// How long a search takes.
    search: Duration,
    searches: u32,
    /// Memory in use and the processes that the driver lists.
    used: u64,
    listed: Vec<u32>,
    /// The PIDs of holders and of processes that exist.
    holders: Vec<u32>,
    alive: Vec<u32>,
    /// The PIDs that other processes have now.
    reused: Vec<u32>,
    files: Vec<u32>,
    activity: bool,
    helpers: Vec<u32>,
    asleep: bool,
    keeps_awake: bool,
    queries: u32,
    queries_of_details: u32,
    /// The graphics clock in MHz.
    clock: u32,
    index: u32,
    hostname: String,
    /// The processes that were read whole, and again.
    read: (Vec<u32>, Vec<u32>),
}

impl World {
    /// A ghost: 9,000 MiB are used, 300 of them by process 70; process 71 holds the device. A
    /// search takes no time.
    fn ghost() -> Self {
        let world = World::default();
        world.change(|facts| {
            (facts.used, facts.listed) = (9_000, vec![70]);
            (facts.holders, facts.alive, facts.files) = (vec![71], vec![70, 71], vec![0]);
        });
        world
    }

    fn change<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    /// Takes a snapshot after this many seconds; returns the holders, and whether they were
    /// searched for.
    fn observe(&self, observer: &mut Observer, seconds: u64) -> (Vec<u32>, bool) {
        let before = self.change(|facts| {
            facts.now += Duration::from_secs(seconds);
            facts.searches
        });
        let seen = observer.observe(&self.backend(), &self.host(), &self.clock(), observation());
        let holders = seen.holders().iter().map(|holder| holder.process.pid.0).collect();
        (holders, self.change(|facts| facts.searches) > before)
    }

    fn clock(&self) -> MockClock {
        let mut clock = MockClock::new();
        clock.expect_wall().returning(|| Timestamp(42));
        let world = self.clone();
        clock.expect_monotonic().returning(move || world.change(|facts| facts.now));
        clock
    }

    fn backend(&self) -> MockGpuBackend {
        let mut backend = MockGpuBackend::new();
        backend.expect_origin().returning(|| Origin::Live);
        let world = self.clone();
        backend.expect_inventory().returning(move |groups| {
            world.change(|facts| {
                facts.queries += 1;
                facts.queries_of_details += u32::from(!groups.is_empty());
                let processes = facts.listed.iter().map(|pid| listed(*pid, 300, None)).collect();
                let sample = Ok(sample(facts.used, 0));
                let clocks = Clocks { graphics: Ok(facts.clock), ..Clocks::default() };
                let details = DeviceDetails {
                    modes: Some(Modes::default()),
                    clocks: Some(clocks),
                    ..DeviceDetails::default()
                };
                let details = Ok(details.only(groups));
                let processes = Ok(processes);
                let devices =
                    vec![DeviceState { sample, processes, details, ..state(facts.index) }];
                let driver = Driver { version: Ok("550.1".into()), cuda: Ok("12.4".into()) };
                Inventory { driver: Ok(driver), devices }
            })
        });
        let world = self.clone();
        let helpers =
            move || world.change(|facts| facts.helpers.iter().copied().map(Pid).collect());
        backend.expect_helpers().returning(helpers);
        let world = self.clone();
        backend
            .expect_keeps_devices_awake()
            .returning(move || world.change(|facts| facts.keeps_awake));
        backend
    }

    fn host(&self) -> MockHost {
        let mut host = MockHost::new();
        let world = self.clone();
        host.expect_hostname().returning(move || Ok(world.change(|facts| facts.hostname.clone())));
        host.expect_sees_host_pids().returning(|| Ok(true));
        host.expect_is_root().returning(|| Ok(true));
        let world = self.clone();
        host.expect_sleeping_devices()
            .returning(move || world.change(|facts| facts.asleep.then(|| vec![bus_only()])));
        let world = self.clone();
        host.expect_device_files().returning(move || {
            Ok(world.change(|facts| facts.files.iter().copied().map(device_file).collect()))
        });
        let world = self.clone();
        host.expect_file_activity().returning(move |_| {
            let world = world.clone();
            let mut activity = MockFileActivity::new();
            let noticed = move || world.change(|facts| std::mem::take(&mut facts.activity));
            activity.expect_noticed().returning(noticed);
            Some(Box::new(activity))
        });
        let world = self.clone();
        host.expect_holders().returning(move |_| {
            world.change(|facts| {
                facts.searches += 1;
                facts.now += facts.search;
                let held = [("/dev/nvidia0", Access::OPEN)];
                let holders = facts.holders.iter();
                let holders = holders.map(|pid| holder(process(*pid, 1).key, &held)).collect();
                Ok(HolderScan { holders, ..HolderScan::default() })
            })
        });
        let world = self.clone();
        host.expect_processes_of().returning(move |pids, _| {
            world.change(|facts| facts.read.0.extend(pids.iter().map(|pid| pid.0)));
            let read = world.read(pids.iter().map(|pid| Arc::new(process(pid.0, 0))).collect());
            read.into_iter().map(|answer| answer.map(Arc::unwrap_or_clone)).collect()
        });
        let world = self.clone();
        host.expect_processes_again().returning(move |known, _| {
            world.change(|facts| facts.read.1.extend(known.iter().map(|known| known.key.pid.0)));
            world.read(known)
        });
        host
    }

    /// Returns those of the processes that exist.
    fn read(&self, processes: Vec<Arc<ProcessInfo>>) -> Vec<Result<Arc<ProcessInfo>>> {
        let (alive, reused) = self.change(|facts| (facts.alive.clone(), facts.reused.clone()));
        let gone = || Error::new(ProcessFault::Gone, "inspect a process");
        let read = |mut info: Arc<ProcessInfo>| {
            if reused.contains(&info.key.pid.0) {
                Arc::make_mut(&mut info).key.start = Some(StartTime(999_999));
            }
            alive.contains(&info.key.pid.0).then_some(info)
        };
        processes.into_iter().map(|info| read(info).ok_or_else(gone)).collect()
    }
}

fn observation() -> Observation {
    Observation { holders: HolderSearch::IfUnexplained, ..Observation::default() }
}

/// The device as its PCI address alone identifies it.
fn bus_only() -> DeviceId {
    DeviceId { bus: device_id(0).bus, ..DeviceId::from_index(0) }
}

#[test]
fn holders_are_searched_again_only_after_a_while() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    assert_eq!(world.observe(&mut observer, 0), (vec![71], true));
    for _ in 0..9 {
        assert_eq!(world.observe(&mut observer, 1), (vec![71], false));
    }
    // No event shows that a process received the open file from another.
    world.change(|facts| (facts.holders.push(72), facts.alive.push(72)));
    assert_eq!(world.observe(&mut observer, 1), (vec![71, 72], true));
}

#[test]
fn slow_search_is_repeated_less_often() {
    for (millis, seconds) in [(1, 10), (150, 15), (599, 60), (60_000, 60)] {
        let (world, mut observer) = (World::ghost(), Observer::new());
        world.change(|facts| facts.search = Duration::from_millis(millis));
        assert!(world.observe(&mut observer, 0).1);
        assert!(!world.observe(&mut observer, seconds - 1).1, "{millis}");
        assert!(world.observe(&mut observer, 1).1, "{millis}");
        assert!(Duration::from_secs(seconds) <= Observer::LONGEST);
    }
}

#[test]
fn doubt_advances_next_search() {
    type Happens = fn(&mut Facts);
    let reasons: [(&str, Happens); 6] = [
        ("the device file was opened or closed", |facts| facts.activity = true),
        ("another process is listed", |facts| facts.listed = vec![70, 71]),
        ("a process is no longer listed", |facts| facts.listed = vec![]),
        ("more memory is unexplained", |facts| facts.used += 64),
        ("a listed process does not exist", |facts| facts.alive = vec![71]),
        ("a holder has ended", |facts| facts.alive = vec![70]),
    ];
    for (reason, happens) in reasons {
        let (world, mut observer) = (World::ghost(), Observer::new());
        world.change(|facts| facts.search = Duration::from_millis(150));
        assert!(world.observe(&mut observer, 0).1);
        assert!(!world.observe(&mut observer, 1).1);
        world.change(happens);
        // At most a twentieth of the time, so after three seconds.
        assert!(!world.observe(&mut observer, 1).1, "{reason}");
        assert!(world.observe(&mut observer, 1).1, "{reason}");
        assert!(!world.observe(&mut observer, 3).1, "{reason}: what has changed is known");
    }
    let (world, mut observer) = (World::ghost(), Observer::new());
    assert!(world.observe(&mut observer, 0).1);
    world.change(|facts| facts.used += 63);
    assert!(!world.observe(&mut observer, 1).1, "less than a CUDA context");
    world.change(|facts| facts.files.push(1));
    assert!(world.observe(&mut observer, 1).1, "other files");
}

#[test]
fn reason_to_doubt_never_puts_the_search_off() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    // A twentieth of the time would be more than the longest routine.
    world.change(|facts| facts.search = Duration::from_secs(5));
    assert!(world.observe(&mut observer, 0).1);
    world.change(|facts| facts.activity = true);
    assert!(!world.observe(&mut observer, Observer::LONGEST.as_secs() - 1).1);
    assert!(world.observe(&mut observer, 1).1);
}

#[test]
fn ended_holder_is_dropped_before_next_search() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    world.change(|facts| facts.search = Duration::from_secs(1));
    assert_eq!(world.observe(&mut observer, 0), (vec![71], true));
    world.change(|facts| (facts.alive = vec![70], facts.holders = vec![]));
    assert_eq!(world.observe(&mut observer, 1), (vec![], false));
}

#[test]
fn process_with_a_reused_pid_is_not_shown_as_a_holder() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    assert_eq!(world.observe(&mut observer, 0), (vec![71], true));
    world.change(|facts| (facts.reused, facts.holders) = (vec![71], vec![]));
    assert_eq!(world.observe(&mut observer, 1), (vec![], false));
    assert_eq!(world.observe(&mut observer, 1), (vec![], true), "a reason to search");
}

#[test]
fn explained_memory_needs_no_search() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    world.change(|facts| facts.used = 300);
    assert_eq!(world.observe(&mut observer, 0), (vec![], false));
    world.change(|facts| facts.used = 9_000);
    assert_eq!(world.observe(&mut observer, 1), (vec![71], true));
}

#[test]
fn single_snapshot_ignores_cache_of_observer() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    assert_eq!(world.observe(&mut observer, 0), (vec![71], true));
    world.change(|facts| (facts.holders.push(72), facts.alive.push(72)));
    assert_eq!(world.observe(&mut observer, 1), (vec![71], false));
    // A plan and the checks before a signal take such a snapshot, or query the host.
    let fresh = observe(&world.backend(), &world.host(), &world.clock());
    assert_eq!(fresh.holders().len(), 2);
    let files = world.host().device_files().unwrap();
    assert_eq!(world.host().holders(&files).unwrap().holders.len(), 2);
}

#[test]
fn own_helper_is_not_shown_as_a_holder() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    world.change(|facts| (facts.holders.push(72), facts.alive.push(72), facts.helpers.push(72)));
    assert_eq!(world.observe(&mut observer, 0), (vec![71], true));
}

#[test]
fn sleeping_devices_are_not_queried() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    world.change(|facts| facts.asleep = true);
    let take = |observer: &mut Observer| {
        observer.observe(&world.backend(), &world.host(), &world.clock(), observation())
    };
    let seen = take(&mut observer);
    assert_eq!(world.change(|facts| (facts.queries, facts.searches)), (0, 0));
    assert_eq!(seen.devices[0].id(), &bus_only());
    assert_eq!(seen.devices[0].memory_used(), Err(Absent::Asleep));
    assert_eq!(seen.devices[0].info.name, Err(Absent::Asleep));
    assert_eq!(seen.driver.unwrap_err().kind, Absent::Asleep.into());

    world.change(|facts| facts.asleep = false);
    assert_eq!(take(&mut observer).devices[0].memory_used(), Ok(Bytes::from_mib(9_000)));
    world.change(|facts| facts.asleep = true);
    let seen = take(&mut observer);
    assert_eq!(world.change(|facts| facts.queries), 1);
    assert_eq!(seen.devices[0].info, info(0), "as it was known before");
    assert_eq!(seen.devices[0].memory_used(), Err(Absent::Asleep));
    assert_eq!(seen.driver.unwrap().version, Ok("550.1".into()));
    // A backend that keeps them awake is queried.
    world.change(|facts| facts.keeps_awake = true);
    assert_eq!(take(&mut observer).devices[0].memory_used(), Ok(Bytes::from_mib(9_000)));
}

#[test]
fn known_processes_are_read_whole_again_only_after_a_while() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    let read = |world: &World| world.change(|facts| std::mem::take(&mut facts.read));
    world.observe(&mut observer, 0);
    assert_eq!(read(&world), (vec![70, 71], vec![]));
    for _ in 0..29 {
        world.observe(&mut observer, 1);
        assert_eq!(read(&world), (vec![], vec![70, 71]));
    }
    world.change(|facts| (facts.holders.push(72), facts.alive.push(72)));
    world.observe(&mut observer, 1);
    assert_eq!(read(&world), (vec![70, 71, 72], vec![]));
    world.observe(&mut observer, 1);
    assert_eq!(read(&world), (vec![], vec![70, 71, 72]));
    // One that has ended is read whole if its PID is reused.
    world.change(|facts| facts.alive = vec![70, 72]);
    world.observe(&mut observer, 1);
    world.change(|facts| facts.alive = vec![70, 71, 72]);
    read(&world);
    world.observe(&mut observer, 1);
    assert!(read(&world).0.contains(&71));
}

#[test]
fn hostname_is_read_again_only_after_a_while() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    let mut take = |seconds, name: &str| {
        world.change(|facts| {
            facts.now += Duration::from_secs(seconds);
            facts.hostname = name.to_owned();
        });
        observer.observe(&world.backend(), &world.host(), &world.clock(), observation()).hostname
    };
    assert_eq!(take(0, "old"), Ok("old".to_owned()));
    assert_eq!(take(29, "new"), Ok("old".to_owned()));
    assert_eq!(take(1, "new"), Ok("new".to_owned()));
}

#[test]
fn change_to_one_snapshot_does_not_affect_the_next() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    let mut take =
        || observer.observe(&world.backend(), &world.host(), &world.clock(), observation());
    let (mut first, second) = (take(), take());
    let name = second.process(Pid(70)).unwrap().name.clone();
    first.processes.get_mut(&Pid(70)).unwrap().info_mut().unwrap().name = "changed".to_owned();
    assert_eq!(second.process(Pid(70)).unwrap().name, name);
    assert_eq!(take().process(Pid(70)).unwrap().name, name);
}

#[test]
fn rare_details_are_queried_every_ten_seconds_or_for_new_device() {
    let (world, mut observer) = (World::ghost(), Observer::new().with_rare_details());
    let mut take = |seconds| {
        world.change(|facts| facts.now += Duration::from_secs(seconds));
        let observation = Observation { groups: Groups::all(), ..observation() };
        let (backend, host, clock) = (world.backend(), world.host(), world.clock());
        let seen = observer.observe(&backend, &host, &clock, observation);
        assert!(seen.devices[0].details.is_ok());
        world.change(|facts| (facts.queries, facts.queries_of_details))
    };
    assert_eq!(take(0), (1, 1));
    assert_eq!(take(1), (2, 1));
    assert_eq!(take(8), (3, 1));
    assert_eq!(take(1), (4, 2));
    world.change(|facts| facts.index = 1);
    assert_eq!(take(1), (6, 3), "the first answer shows another device");
    assert_eq!(take(1), (7, 3));
}

#[test]
fn groups_that_are_read_always_join_the_rare_details() {
    let (world, mut observer) = (World::ghost(), Observer::new().with_rare_details());
    let mut take = |always| {
        world.change(|facts| facts.now += Duration::from_secs(1));
        observer.read_always(always);
        let groups = Groups::from_iter([Group::Modes]);
        let observation = Observation { groups, ..observation() };
        let (backend, host, clock) = (world.backend(), world.host(), world.clock());
        let seen = observer.observe(&backend, &host, &clock, observation);
        let details = seen.devices[0].details.clone().unwrap();
        (details.modes.is_some(), details.clocks.map(|clocks| clocks.graphics))
    };
    let clocks = Groups::from_iter([Group::Clocks]);
    let clock = |mhz| world.change(|facts| facts.clock = mhz);
    assert_eq!(take(Groups::NONE), (true, None));
    clock(210);
    assert_eq!(take(clocks), (true, Some(Ok(210))));
    clock(1410);
    assert_eq!(take(clocks), (true, Some(Ok(1410))));
    assert_eq!(take(Groups::NONE), (true, None), "no old value stays");
}

#[test]
fn process_is_read_whole_once_if_another_is_gone() {
    let (world, mut observer) = (World::ghost(), Observer::new());
    // All memory is explained, but another listed process does not exist.
    world.change(|facts| {
        (facts.used, facts.listed) = (600, vec![69, 70]);
        facts.files.clear();
    });
    for _ in 0..3 {
        world.observe(&mut observer, 1);
    }
    let whole = world.change(|facts| facts.read.0.clone());
    assert_eq!(whole.iter().filter(|pid| **pid == 70).count(), 1, "{whole:?}");
}
