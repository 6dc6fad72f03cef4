//! A reset: which devices it affects, which processes block it, and the records in the audit log.

use crate::fixture::ports::*;
use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::reset::*;
use gpu_reaper::{Ports, Role};

const OWN: Pid = Pid(50);

fn alone() -> Linked {
    Linked { peers: vec![], whole: true, xgmi: false }
}

/// Links between devices: `-` for a PCIe bridge, `N` for NVLinks, `?` for unknown.
fn linked(rows: &[&str], devices: u32, index: u32) -> (Vec<u32>, bool) {
    let link = |cell: char| match cell {
        'X' => Link::Itself,
        'N' => Link::NvLink(4),
        '-' => Link::Phb,
        _ => Link::Unknown,
    };
    let links = rows.iter().map(|row| row.chars().map(link).collect()).collect();
    let devices: Vec<DeviceState> = (0..devices).map(|index| device(index, 0, 16_280)).collect();
    let linked = Linked::of(&Ok(Topology { links, ..Topology::default() }), &devices, index);
    (linked.peers, linked.whole)
}

#[test]
fn devices_with_nvlinks_are_reset_together() {
    assert_eq!(linked(&["X-", "-X"], 2, 0), (vec![], true));
    assert_eq!(linked(&["XN", "NX"], 2, 1), (vec![0], true));
    let chain = &["XN-", "NXN", "-NX"];
    assert_eq!(linked(chain, 3, 0), (vec![1, 2], true), "through another one");
    assert_eq!(linked(chain, 3, 2), (vec![0, 1], true));
    assert_eq!(linked(&["X-N", "-X-", "N-X"], 3, 0), (vec![2], true));
    assert_eq!(linked(&["X?", "?X"], 2, 0), (vec![], false), "the link is unknown");
    assert_eq!(linked(&["X"], 2, 0), (vec![], false), "a row is missing");
    assert_eq!(linked(&["XN", "NX"], 1, 0), (vec![1], false), "the other one is not seen");
}

#[test]
fn unknown_topology_leaves_open_what_is_reset_together() {
    let whole = |reason: Absent, devices: &[DeviceState]| {
        let linked = Linked::of(&Err(reason), devices, 0);
        assert_eq!(linked.peers, [0; 0]);
        linked.whole
    };
    let one = [device(0, 0, 16_280)];
    let two = [device(0, 0, 16_280), device(1, 0, 16_280)];
    let mut silent = two.clone();
    silent[1].sample = Err(Error::new(DeviceFault::Lost, "sample").fault());
    assert!(whole(Absent::NotSupported, &two), "such a machine has no links");
    assert!(!whole(Absent::Failed, &two));
    assert!(!whole(Absent::NotSupported, &silent));
    assert!(whole(Absent::Failed, &one), "there is no other device");
}

#[test]
fn users_of_any_reset_device_block_the_reset() {
    let user = process(100, "python");
    let monitor = process(67, "nvtop");
    let elsewhere = process(101, "python");
    let devices =
        vec![listing(device(0, 900, 16_280), 100, 800), device(1, 0, 16_280), device(2, 0, 16_280)];
    let holders = vec![
        holder(&monitor, &[("/dev/nvidia0", "F...."), ("/dev/nvidia1", "F....")]),
        context(&elsewhere, &[2]),
    ];
    let now = snapshot_of(devices, holders, vec![user, monitor, elsewhere]);
    let users = |linked: &Linked| {
        let blockers = Blockers::of(&now, &now.devices[0], linked, Some(OWN));
        assert_eq!(blockers.unknown, None);
        let users = blockers.users.into_iter();
        users.map(|user| (user.pid.0, user.devices, user.role, user.way)).collect::<Vec<_>>()
    };
    let user = (100, vec![0], Role::MemoryUser, Way::Reap(0, Pid(100)));
    let monitor = |devices| (67, devices, Role::Monitor, Way::EndMonitor(Pid(67)));
    assert_eq!(users(&alone()), [monitor(vec![0]), user.clone()]);
    let with_next = Linked { peers: vec![1], whole: true, xgmi: false };
    assert_eq!(users(&with_next), [monitor(vec![0, 1]), user]);
}

#[test]
fn memory_user_of_one_device_is_not_a_monitor_of_another() {
    let worker = process(100, "python");
    let held = holder(
        &worker,
        &[("/dev/nvidia0", "F...."), ("/dev/nvidia1", "F...m"), ("/dev/nvidia-uvm", "F....")],
    );
    let monitor = holder(&worker, &[("/dev/nvidia0", "F....")]);
    let devices = vec![device(0, 0, 16_280), device(1, 900, 16_280)];
    let now = snapshot_of(devices, vec![held], vec![worker]);
    let peers = Linked { peers: vec![1], whole: true, xgmi: false };
    let blockers = Blockers::of(&now, &now.devices[0], &peers, Some(OWN));
    assert_eq!(blockers.users[0].role, Role::MemoryUser);
    let watched = Snapshot { holders: Ok(vec![monitor]), ..now };
    let blockers = Blockers::of(&watched, &watched.devices[0], &peers, Some(OWN));
    assert_eq!(blockers.users[0].role, Role::Monitor);
}

#[test]
fn possibly_computing_process_is_left_to_its_owner() {
    let percent = |percent| Percent::new(percent).ok_or(Absent::NotSupported);
    // The share of the process on each of two devices, and that of both devices.
    for (shares, of_device, expected) in [
        ([percent(0), percent(0)], 0, Way::Reap(0, Pid(100))),
        ([percent(0), percent(0)], 98, Way::Reap(0, Pid(100))),
        ([percent(0), percent(1)], 0, Way::AskOwner(0)),
        ([percent(97), Err(Absent::NoAnswer)], 98, Way::AskOwner(0)),
        ([Err(Absent::NoAnswer); 2], 98, Way::AskOwner(0)),
        ([Err(Absent::NoAnswer); 2], 0, Way::Reap(0, Pid(100))),
    ] {
        let devices = [0, 1].map(|index| {
            let mut device = listing(device(index, 900, 16_280), 100, 800);
            device.sample.as_mut().unwrap().utilization = percent(of_device);
            device.processes.as_mut().unwrap()[0].utilization = shares[index as usize];
            device
        });
        let now = snapshot_of(devices.into(), vec![], vec![process(100, "python")]);
        let both = Linked { peers: vec![1], whole: true, xgmi: false };
        let blocker = Blockers::of(&now, &now.devices[0], &both, Some(OWN)).users.remove(0);
        assert_eq!(blocker.way, expected, "{shares:?} of {of_device} %");
        let known = shares.into_iter().filter_map(Reading::ok).max();
        assert_eq!(blocker.utilization, known.ok_or(Absent::NoAnswer));
    }
}

#[test]
fn own_and_ended_processes_do_not_block_the_reset() {
    let own = ProcessInfo { name: "gpuws".into(), ..process(50, "gpuws") };
    let child = ProcessInfo { parent: Ok(OWN), ..process(51, "gpuws") };
    let job = ProcessInfo { parent: Ok(OWN), ..process(52, "python") };
    let other = process(53, "gpuws");
    let all = vec![own, child, job, other];
    let holders = all.iter().map(|info| context(info, &[0])).collect();
    let listed = listing(device(0, 900, 16_280), 60, 800);
    let mut now = snapshot_of(vec![listed], holders, all);
    now.processes.insert(Pid(60), Process::from(Err(Absent::NotFound)));
    let pids = |now: &Snapshot| {
        let blockers = Blockers::of(now, &now.devices[0], &alone(), Some(OWN));
        blockers.users.iter().map(|user| user.pid.0).collect::<Vec<_>>()
    };
    assert_eq!(pids(&now), [52, 53]);
    now.processes.insert(Pid(60), Process::from(Err(Absent::NotPermitted)));
    assert_eq!(pids(&now), [52, 53, 60], "it may exist");
    now.processes.insert(Pid(60), Process::from(Err(Absent::NotFound)));
    now.sees_host_pids = Ok(false);
    assert_eq!(pids(&now), [52, 53, 60], "it may exist outside of this namespace");
}

#[test]
fn display_reaches_devices_through_other_files() {
    let blocked = |name: &str, path: &str| {
        let info = ProcessInfo { uid: Ok(0), ..process(100, name) };
        let now = snapshot_of(
            vec![device(0, 0, 16_280)],
            vec![holder(&info, &[(path, "F....")])],
            vec![info],
        );
        !Blockers::of(&now, &now.devices[0], &alone(), Some(OWN)).is_clear()
    };
    for path in ["/dev/nvidia-modeset", "/dev/dri/renderD128"] {
        assert!(blocked("Xorg", path), "{path}");
        assert!(!blocked("python", path), "{path}");
    }
    assert!(!blocked("Xorg", "/dev/nvidiactl"));
    assert!(blocked("python", "/dev/nvidia0"));
    assert!(!blocked("python", "/dev/nvidia1"));
}

#[test]
fn unseen_users_may_block_the_reset() {
    type Change = fn(&mut Snapshot, &mut Linked);
    let cases: [(Change, Option<Unknown>); 7] = [
        (|_, _| {}, None),
        (
            |now, _| now.holders = Err(Error::new(ErrorKind::Io, "walk").fault()),
            Some(Unknown::Holders),
        ),
        (
            |now, _| now.devices[0].info.id.node = Err(Absent::NotSupported),
            Some(Unknown::DeviceFile),
        ),
        (|now, _| drop(now.files.remove(0)), Some(Unknown::NoFile)),
        (|_, linked| linked.whole = false, Some(Unknown::Links)),
        (|now, _| now.unreadable.add(Absent::NotPermitted, 3), Some(Unknown::Unread(3))),
        (|now, _| now.sees_host_pids = Ok(false), Some(Unknown::OtherNamespaces)),
    ];
    for (change, expected) in cases {
        let devices = vec![device(0, 0, 16_280), device(1, 0, 16_280)];
        let (mut now, mut linked) = (snapshot_of(devices, vec![], vec![]), alone());
        change(&mut now, &mut linked);
        let blockers = Blockers::of(&now, &now.devices[0], &linked, Some(OWN));
        assert_eq!((blockers.unknown, blockers.users.len()), (expected, 0));
        assert_eq!(blockers.is_clear(), expected.is_none());
    }
}

/// Returns whether the driver may be called if a process has this file: on a real machine, on a
/// simulated one.
fn may_ask(path: Option<&str>, unknown: bool) -> (bool, bool) {
    let info = process(100, "nvtop");
    let holders = path.map(|path| holder(&info, &[(path, "F....")])).into_iter().collect();
    let devices = vec![device(0, 0, 16_280), device(1, 0, 16_280)];
    let mut now = snapshot_of(devices, holders, vec![info]);
    if unknown {
        now.unreadable.count(Absent::NotPermitted);
    }
    let linked = Linked { peers: vec![1], whole: true, xgmi: false };
    let blockers = Blockers::of(&now, &now.devices[0], &linked, Some(OWN));
    let check = Check { now: &now, device: &now.devices[0], linked, blockers };
    (check.may_ask(false), check.may_ask(true))
}

#[test]
fn driver_is_called_only_without_blockers() {
    assert_eq!(may_ask(None, false), (true, true));
    assert_eq!(may_ask(None, true), (false, false));
    assert_eq!(may_ask(Some("/dev/nvidia1"), false), (false, false));
    assert_eq!(may_ask(Some("/dev/nvidia0"), false), (false, true), "it certainly refuses");
    assert_eq!(may_ask(Some("/dev/nvidia0"), true), (false, true));
}

#[test]
fn reset_is_logged_before_and_after() {
    for (refusal, said) in [(None, "reset"), (Some(ErrorKind::Device(DeviceFault::Lost)), "failed")]
    {
        let mut now = snapshot_of(vec![device(0, 0, 16_280)], vec![], vec![]);
        now.devices[0].info.id.bus = Ok("00000000:04:00.0".parse().unwrap());
        let blockers = Blockers::of(&now, &now.devices[0], &alone(), Some(OWN));
        let check = Check { now: &now, device: &now.devices[0], linked: alone(), blockers };
        let (journal, lines) = journal();
        let mut backend = MockGpuBackend::new();
        let logged = lines.clone();
        backend.expect_reset().times(1).returning(move |id, _| {
            assert_eq!(logged.lock().unwrap().len(), 1, "the line comes first");
            refusal.map_or(Ok(()), |kind| Err(Error::new(kind, format!("reset {id}"))))
        });
        let gone = || Error::new(MachineFault::DriverNotLoaded, "ask");
        backend.expect_inventory().returning(move |_| Inventory::failed(&gone()));
        backend.expect_origin().returning(origin);
        let mut host = bare_host();
        host.expect_hostname().returning(|| Ok("host".into()));
        host.expect_driver_devices().returning(|| Ok(vec![]));
        host.expect_holders().returning(|_| Ok(HolderScan::default()));
        let clock = clock();
        let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
        let outcome = reset(&check, ports, &ActToken::user_confirmed()).unwrap();
        assert_eq!(outcome.answer.is_ok(), refusal.is_none());
        assert!(outcome.after.is_none(), "it is not seen any more");
        let lines = lines.lock().unwrap().clone();
        let [before, after] = &lines[..] else { panic!("{lines:?}") };
        for line in [before, after] {
            assert!(line.contains(r#""machine":"simulated machine scene""#), "{line}");
            assert!(
                line.contains(r#""gpu_uuid":"GPU-0","gpu_bus_id":"00000000:04:00.0""#),
                "{line}"
            );
        }
        assert!(before.contains(r#""event":"reset""#) && before.contains(r#""outcome":null"#));
        let expected = format!(r#""outcome":"{said}""#);
        assert!(after.contains(r#""event":"outcome""#) && after.contains(&expected), "{after}");
    }
}

#[test]
fn no_reset_without_audit_log() {
    let now = snapshot_of(vec![device(0, 0, 16_280)], vec![], vec![]);
    let blockers = Blockers::of(&now, &now.devices[0], &alone(), Some(OWN));
    let check = Check { now: &now, device: &now.devices[0], linked: alone(), blockers };
    let mut journal = MockJournal::new();
    journal.expect_append().returning(|_| Err(Error::new(ErrorKind::Io, "write journal")));
    let mut backend = MockGpuBackend::new();
    backend.expect_reset().times(0);
    let (host, clock) = (bare_host(), clock());
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    assert!(reset(&check, ports, &ActToken::user_confirmed()).is_err());
}
