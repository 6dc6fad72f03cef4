//! A snapshot: which processes it covers, and which of its data are doubtful.

use crate::fixture::*;
use gpu_core::*;
use std::collections::BTreeMap;

fn clock() -> MockClock {
    let mut clock = MockClock::new();
    clock.expect_wall().returning(|| Timestamp(42));
    clock
}

/// A backend with these devices.
fn backend(devices: Vec<DeviceState>) -> MockGpuBackend {
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(|| Origin::Live);
    backend.expect_inventory().returning(move |_| {
        let driver = Driver { version: Ok("550.1".into()), cuda: Ok("12.4".into()) };
        Inventory { driver: Ok(driver), devices: devices.clone() }
    });
    backend
}

/// A host with these processes and holders.
fn host(processes: Vec<ProcessInfo>, holders: Vec<Holder>, sees_host_pids: bool) -> MockHost {
    let mut host = host_of(processes, sees_host_pids);
    host.expect_driver_devices().returning(|| Ok(vec![info(5)]));
    host.expect_device_files().returning(|| Ok(vec![device_file(0)]));
    host.expect_holders().returning(move |files| {
        assert_eq!(files.len(), 1);
        let mut unreadable = Unreadable::default();
        unreadable.count(Absent::NotPermitted);
        let unread = vec![UnreadProcess {
            pid: Pid(77),
            name: Ok("sshd".into()),
            user: Ok("root".into()),
            reason: Absent::NotPermitted,
            open_files_read: false,
        }];
        Ok(HolderScan { holders: holders.clone(), unreadable, unread })
    });
    host
}

/// A host with these processes that panics on a request for files or holders.
fn host_of(processes: Vec<ProcessInfo>, sees_host_pids: bool) -> MockHost {
    let all: BTreeMap<Pid, ProcessInfo> =
        processes.into_iter().map(|info| (info.key.pid, info)).collect();
    let mut host = MockHost::new();
    host.expect_hostname().returning(|| Ok("host".into()));
    host.expect_sees_host_pids().returning(move || Ok(sees_host_pids));
    host.expect_is_root().returning(|| Ok(true));
    host.expect_processes_of().returning(move |pids, _| {
        let gone = || Error::new(ProcessFault::Gone, "inspect a process");
        pids.iter().map(|pid| all.get(pid).cloned().ok_or_else(gone)).collect()
    });
    host
}

fn device_listing(pids: &[u32]) -> DeviceState {
    let processes = pids.iter().map(|pid| listed(*pid, 1, None)).collect();
    DeviceState { processes: Ok(processes), ..state(0) }
}

fn pids(snapshot: &Snapshot) -> Vec<u32> {
    snapshot.processes.keys().map(|pid| pid.0).collect()
}

/// Process 70 has parent 60, group 61 and session 62; process 60 has parent 50, and that 1.
fn family() -> Vec<ProcessInfo> {
    let mut worker = process(70, 60);
    (worker.group, worker.session) = (Ok(Pid(61)), Ok(Pid(62)));
    vec![worker, process(60, 50), process(61, 50), process(62, 50), process(50, 1), process(1, 0)]
}

#[test]
fn snapshot_covers_users_and_their_nearest_relatives() {
    let held = [("/dev/nvidia0", Access::OPEN)];
    let host = host(family(), vec![holder(process(70, 60).key, &held)], true);
    let seen = observe(&backend(vec![device_listing(&[80])]), &host, &clock());
    assert_eq!(pids(&seen), [60, 61, 62, 70, 80]);
    assert_eq!(seen.process(Pid(80)), Err(Absent::NotFound), "it is listed and has ended");
    assert_eq!((seen.taken_at, seen.hostname.as_deref()), (Timestamp(42), Ok("host")));
    assert_eq!((seen.origin.clone(), seen.devices.len()), (Origin::Live, 1));
    assert_eq!(seen.driver.as_ref().unwrap().version, Ok("550.1".into()));
    assert_eq!((seen.files.len(), seen.holders().len(), seen.unreadable.total()), (1, 1, 1));
    assert_eq!(seen.unread.iter().map(|unread| unread.pid).collect::<Vec<_>>(), [Pid(77)]);
    assert_eq!(seen.is_root, Ok(true));
    assert_eq!(seen.unasked, [], "the driver answers");
}

#[test]
fn snapshot_of_users_covers_all_ancestors_and_no_holders() {
    let host = host(family(), vec![], true);
    let seen = observe_users(&backend(vec![device_listing(&[70])]), &host, &clock(), Groups::NONE);
    assert_eq!(pids(&seen), [1, 50, 60, 70]);
    assert!(seen.holders.is_err() && seen.files.is_empty());
}

#[test]
fn listed_pids_of_other_namespace_are_not_looked_up() {
    let host = host(family(), vec![holder(process(62, 50).key, &[])], false);
    let seen = observe(&backend(vec![device_listing(&[70])]), &host, &clock());
    assert_eq!(pids(&seen), [50, 62], "only the holder and its parent");
}

#[test]
fn holder_with_reused_pid_is_gone() {
    let old = ProcessKey { pid: Pid(70), start: Some(StartTime(3)) };
    let host = host(family(), vec![holder(old, &[])], true);
    let seen = observe(&backend(vec![state(0)]), &host, &clock());
    assert_eq!(seen.process(Pid(70)), Err(Absent::NotFound));
}

#[test]
fn kernel_module_names_devices_of_silent_driver() {
    let host = host(vec![], vec![], true);
    let seen = observe(&backend(vec![]), &host, &clock());
    assert_eq!(seen.unasked, [info(5)]);
}

#[test]
fn unreadable_holders_are_a_fault() {
    let mut host = MockHost::new();
    host.expect_hostname().returning(|| Err(Absent::Failed));
    host.expect_sees_host_pids().returning(|| Ok(true));
    host.expect_is_root().returning(|| Ok(true));
    host.expect_device_files().returning(|| Err(Error::new(ErrorKind::Io, "list the files")));
    host.expect_processes_of()
        .returning(|pids, _| pids.iter().map(|pid| Ok(process(pid.0, 0))).collect());
    let seen = observe(&backend(vec![device_listing(&[70])]), &host, &clock());
    assert_eq!(seen.holders.as_ref().unwrap_err().text, "list the files");
    assert_eq!((pids(&seen), seen.devices.len()), (vec![70], 1));
}

#[test]
fn known_processes_are_not_looked_up_again() {
    let host = host(family(), vec![], true);
    let mut seen = Snapshot::empty(Origin::Live, Timestamp(0));
    seen.processes.insert(Pid(60), Process::from(Err(Absent::NotPermitted)));
    look_up_processes(&host, &mut seen, &[Pid(60), Pid(61)]);
    assert_eq!(seen.process(Pid(60)), Err(Absent::NotPermitted));
    assert_eq!(seen.process(Pid(61)).map(|info| info.key.pid), Ok(Pid(61)));
    assert_eq!(pids(&seen), [60, 61], "and no relatives");
}

/// A host of the family that expects a request for this detail.
fn host_of_detail(expected: ProcessDetail) -> MockHost {
    let mut host = MockHost::new();
    host.expect_hostname().returning(|| Ok("host".into()));
    host.expect_sees_host_pids().returning(|| Ok(true));
    host.expect_is_root().returning(|| Ok(true));
    host.expect_device_files().returning(|| Ok(Vec::new()));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_processes_of().returning(move |pids, detail| {
        assert_eq!(detail, expected);
        let found = |pid: &Pid| family().into_iter().find(|info| info.key.pid == *pid);
        let gone = || Error::new(ProcessFault::Gone, "inspect a process");
        pids.iter().map(|pid| found(pid).ok_or_else(gone)).collect()
    });
    host
}

#[test]
fn processes_are_read_in_the_requested_detail() {
    for detail in [ProcessDetail::Outline, ProcessDetail::Whole] {
        for (holders, used, searched) in [
            (HolderSearch::IfUnexplained, 300, false),
            (HolderSearch::IfUnexplained, 9_000, true),
            (HolderSearch::Always, 300, true),
        ] {
            let observation = Observation { holders, processes: detail, ..Observation::default() };
            let devices = vec![device_using(Bytes::from_mib(used))];
            let host = host_of_detail(detail);
            let seen = observe_in_detail(&backend(devices), &host, &clock(), observation);
            assert_eq!((seen.holders.is_ok(), pids(&seen)), (searched, vec![60, 61, 62, 70]));
        }
    }
}

#[test]
fn only_the_same_process_completes_an_outline() {
    let mut seen = Snapshot::empty(Origin::Live, Timestamp(0));
    for info in family() {
        let mut outline = ProcessInfo { parent: Err(Absent::NotRecorded), ..info };
        if outline.key.pid == Pid(61) {
            outline.key.start = Some(StartTime(u64::MAX));
        }
        seen.processes.insert(outline.key.pid, Process::from(Ok(outline)));
    }
    let host = host_of_detail(ProcessDetail::Whole);
    complete_processes(&host, &mut seen, &[60, 61, 99].map(Pid));
    let is_whole = |pid: u32| seen.process(Pid(pid)).unwrap().parent.is_ok();
    assert!(is_whole(60));
    assert!(!is_whole(61), "its PID was reused");
    assert!(!is_whole(62), "it was not asked for");
    assert_eq!(seen.process(Pid(99)), Err(Absent::NotRecorded));
}

#[test]
fn identifiers_of_two_devices_are_dropped() {
    let take = |second: DeviceId| {
        let mut state_of_second = state(1);
        state_of_second.info.id = second;
        let host = host(vec![], vec![], true);
        let seen =
            take_inventory(&backend(vec![state(0), state_of_second]), &host, Groups::NONE).devices;
        let id = seen[0].id();
        (id.uuid.is_ok(), id.bus.is_ok(), id.node.is_ok())
    };
    let (own, other) = (device_id(0), device_id(1));
    assert_eq!(take(other.clone()), (true, true, true));
    assert_eq!(take(DeviceId { uuid: own.uuid.clone(), ..other.clone() }), (false, true, true));
    assert_eq!(take(DeviceId { bus: own.bus, ..other.clone() }), (true, false, true));
    assert_eq!(take(DeviceId { node: own.node, ..other }), (true, true, false));
}

#[test]
fn absent_identifiers_of_two_devices_keep_their_reason() {
    let absent = DeviceId {
        uuid: Err(Absent::TooOld),
        node: Err(Absent::TooOld),
        bus: Err(Absent::TooOld),
        ..device_id(0)
    };
    let with = |index| {
        let mut device = state(index);
        device.info.id = DeviceId { index, ..absent.clone() };
        device
    };
    let host = host(vec![], vec![], true);
    let seen = take_inventory(&backend(vec![with(0), with(1)]), &host, Groups::NONE).devices;
    assert_eq!(*seen[0].id(), absent);
}

/// A device on which process 70 has 300 MiB, and this much is in use.
fn device_using(used: Bytes) -> DeviceState {
    let mut sample = sample(0, 0);
    sample.memory.used = Ok(used);
    DeviceState { sample: Ok(sample), processes: Ok(vec![listed(70, 300, None)]), ..state(0) }
}

fn if_unexplained(devices: Vec<DeviceState>, host: &MockHost) -> Snapshot {
    let observation =
        Observation { holders: HolderSearch::IfUnexplained, ..Observation::default() };
    observe_in_detail(&backend(devices), host, &clock(), observation)
}

#[test]
fn driver_messages_are_read_only_if_requested() {
    let used = || device_using(Bytes::from_mib(300));
    // A host of `host_of` panics on a request for messages.
    let seen = if_unexplained(vec![used()], &host_of(family(), true));
    assert_eq!(seen.driver_messages.unwrap_err().kind, ErrorKind::NotRequested);
    let read = |messages: fn() -> Result<Vec<DriverMessage>>| {
        let mut host = host_of(family(), true);
        host.expect_driver_messages().returning(messages);
        let observation = Observation {
            holders: HolderSearch::IfUnexplained,
            driver_messages: true,
            ..Observation::default()
        };
        observe_in_detail(&backend(vec![used()]), &host, &clock(), observation).driver_messages
    };
    assert_eq!(read(|| Ok(vec![driver_message()])), Ok(vec![driver_message()]));
    let denied = || Err(Error::new(Absent::NotPermitted, "read the kernel log"));
    assert_eq!(read(denied).unwrap_err().kind, Absent::NotPermitted.into());
}

#[test]
fn holders_are_not_searched_if_lists_account_for_memory() {
    let most = Bytes::from_mib(300) + DRIVER_OVERHEAD;
    for used in [Bytes(0), Bytes::from_mib(300), most] {
        let host = host_of(family(), true);
        let seen = if_unexplained(vec![device_using(used), device_using(used)], &host);
        assert_eq!(seen.holders.as_ref().unwrap_err().kind, ErrorKind::NotRequested, "{used}");
        assert_eq!(pids(&seen), [60, 61, 62, 70]);
    }
}

#[test]
fn holders_are_searched_if_anything_is_unexplained() {
    let explained = || device_using(Bytes::from_mib(300));
    let changed = |change: fn(&mut DeviceState)| {
        let mut device = explained();
        change(&mut device);
        vec![explained(), device]
    };
    let fault = || Fault { kind: ErrorKind::TimedOut, text: String::new() };
    let mut unanswered = explained();
    unanswered.sample = Err(fault());
    let mut unlisted = explained();
    unlisted.processes = Err(fault());
    let cases = [
        (
            "more memory",
            changed(|device| {
                device.sample.as_mut().unwrap().memory.used = Ok(Bytes::from_mib(365))
            }),
        ),
        (
            "unknown memory",
            changed(|device| device.sample.as_mut().unwrap().memory.used = Err(Absent::Failed)),
        ),
        (
            "process of unknown size",
            changed(|device| {
                device.processes.as_mut().unwrap()[0].memory = Err(Absent::NotSupported)
            }),
        ),
        (
            "process that is gone",
            changed(|device| device.processes.as_mut().unwrap().push(listed(80, 0, None))),
        ),
        ("device without answer", vec![unanswered]),
        ("device without list", vec![unlisted]),
        ("no device", vec![]),
    ];
    let holder = || holder(process(70, 60).key, &[("/dev/nvidia0", Access::OPEN)]);
    for (what, devices) in cases {
        let host = host(family(), vec![holder()], true);
        assert_eq!(if_unexplained(devices, &host).holders().len(), 1, "{what}");
    }
    let elsewhere = host(family(), vec![holder()], false);
    assert_eq!(if_unexplained(vec![explained()], &elsewhere).holders().len(), 1, "other PIDs");
}

#[test]
fn clients_of_holders_complete_the_lists_and_count_once() {
    let client = |id: Option<u64>, mib, kind| Client {
        id: id.ok_or(Absent::NotSupported),
        memory: Ok(Bytes::from_mib(mib)),
        kind,
    };
    let with = |pid, clients: &[Client]| {
        let mut holder = holder(process(pid, 60).key, &[("/dev/nvidia0", Access::OPEN)]);
        holder.held[0].clients = clients.to_vec();
        holder
    };
    let (compute, graphics) = (DeviceProcessKind::Compute, DeviceProcessKind::Graphics);
    let holders = vec![
        with(50, &[client(Some(3), 0, DeviceProcessKind::Unknown)]),
        with(60, &[client(Some(1), 300, compute), client(Some(2), 20, graphics)]),
        // It has inherited a client of its parent, and has one of its own.
        with(70, &[client(Some(1), 300, compute), client(None, 5, compute)]),
    ];
    let unlisted = DeviceState {
        processes: Err(Fault { kind: ErrorKind::NotRequested, text: String::new() }),
        ..state(0)
    };
    let device_listing = |memory| DeviceState {
        processes: Ok(vec![DeviceProcess { memory, ..listed(70, 0, None) }]),
        ..state(0)
    };
    let mib = |number| Ok(Bytes::from_mib(number));
    for (device, expected) in [
        (unlisted.clone(), vec![(60, mib(320)), (70, mib(5))]),
        // The driver's list counts more of this process, or does not know its memory.
        (device_listing(mib(40)), vec![(70, mib(40)), (60, mib(320))]),
        (device_listing(Err(Absent::NotPermitted)), vec![(70, mib(5)), (60, mib(320))]),
    ] {
        let host = host(family(), holders.clone(), true);
        let seen = if_unexplained(vec![device], &host);
        let list = seen.devices[0].processes.as_ref().unwrap();
        let list: Vec<_> = list.iter().map(|process| (process.pid.0, process.memory)).collect();
        assert_eq!(list, expected);
    }
    let users = observe_users(
        &backend(vec![unlisted.clone()]),
        &host(family(), holders, true),
        &clock(),
        Groups::NONE,
    );
    assert_eq!(
        users.devices[0].processes.as_ref().unwrap()[0].kind,
        DeviceProcessKind::ComputeAndGraphics
    );
    let mut blind = host_of(family(), true);
    blind.expect_device_files().returning(|| Err(Error::new(ErrorKind::Io, "list /dev")));
    let seen = if_unexplained(vec![unlisted], &blind);
    assert_eq!(seen.devices[0].processes.as_ref().unwrap_err().kind, ErrorKind::Io);
}
