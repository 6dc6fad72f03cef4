//! Which users and jobs amounts are booked to.

use gpu_accounting::{Accounts, Day, Energy, Owner, Work};
use gpu_core::*;
use std::time::Duration;

const DAY: Day = Day { year: 2026, month: 11, day: 24 };

/// A device of 80 GiB at 300 W: PIDs with memory in MiB and utilization, and unlisted memory.
fn device(
    index: u32,
    busy: Option<u64>,
    listed: &[(u32, u64, Option<u64>)],
    more: u64,
) -> DeviceState {
    let share = |share: Option<u64>| share.and_then(Percent::new).ok_or(Absent::NotSupported);
    let mut sample = DeviceSample::absent(Absent::NotSupported);
    let memory: u64 = listed.iter().map(|(_, mib, _)| mib).sum();
    sample.memory.used = Ok(Bytes::from_mib(memory + more));
    sample.memory.total = Ok(Bytes::from_mib(81_920));
    sample.utilization = share(busy);
    sample.power_draw = Ok(Milliwatts(300_000));
    let listed = listed.iter().map(|(pid, mib, own)| DeviceProcess {
        pid: Pid(*pid),
        kind: DeviceProcessKind::Compute,
        memory: Ok(Bytes::from_mib(*mib)),
        utilization: share(*own),
        name: Err(Absent::NotRecorded),
        gpu_instance: None,
        compute_instance: None,
    });
    DeviceState {
        info: DeviceInfo::unknown(DeviceId::from_index(index)),
        sample: Ok(sample),
        processes: Ok(listed.collect()),
        partitions: Ok(Vec::new()),
        details: Ok(DeviceDetails::default()),
    }
}

fn snapshot(second: u64, devices: Vec<DeviceState>) -> Snapshot {
    let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(second * 1_000));
    snapshot.devices = devices;
    for (pid, user) in [(1, "alice"), (2, "bob"), (3, "alice")] {
        let mut info = ProcessInfo::from_name(Pid(pid), "train");
        info.key.start = Some(StartTime(u64::from(pid)));
        info.user = Ok(user.to_owned());
        snapshot.processes.insert(Pid(pid), Process::from(Ok(info)));
    }
    snapshot
}

/// Returns the accounts of ten identical seconds.
fn accounts(devices: &[DeviceState]) -> Accounts {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    (0..=10).for_each(|second| accounts.add(&snapshot(second, devices.to_vec()), &[], DAY));
    accounts
}

/// Returns held, used and idle seconds, energy in joules and peak memory in MiB, by user.
fn rows(accounts: &Accounts) -> Vec<(String, f64, f64, f64, f64, u64)> {
    let users = accounts.users().map(|(owner, amounts)| {
        let [held, used, idle] =
            [amounts.held, amounts.used, amounts.idle].map(|time| time.as_secs_f64());
        (owner.to_string(), held, used, idle, amounts.energy.joules(), amounts.peak.mib())
    });
    users.collect()
}

fn row(
    name: &str,
    held: f64,
    used: f64,
    idle: f64,
    joules: f64,
    mib: u64,
) -> (String, f64, f64, f64, f64, u64) {
    (name.to_owned(), held, used, idle, joules, mib)
}

#[test]
fn gpu_time_is_booked_to_its_user_once() {
    let accounts =
        accounts(&[device(0, Some(90), &[(1, 1_000, Some(40)), (3, 3_000, Some(40))], 4)]);
    assert_eq!(rows(&accounts), [row("alice", 10.0, 8.0, 0.0, 2_400.0, 4_000)]);
    assert_eq!(accounts.unattributed(), Energy(600_000_000));
    assert_eq!(accounts.gpus()[0].amounts.energy.joules(), 3_000.0);
    assert_eq!(Energy(7_200_000_000_000).kilowatt_hours(), 2.0);
}

#[test]
fn shared_gpu_is_held_by_memory_and_used_by_compute() {
    let shared = device(0, Some(80), &[(1, 6_000, Some(0)), (2, 2_000, Some(80))], 4);
    let rows = rows(&accounts(&[shared]));
    assert_eq!(rows[0], row("alice", 7.5, 0.0, 7.5, 0.0, 6_000));
    assert_eq!(rows[1], row("bob", 2.5, 8.0, 0.0, 2_400.0, 2_000));
}

#[test]
fn scales_down_shares_above_100_percent() {
    let rows = rows(&accounts(&[device(0, Some(100), &[(1, 1, Some(100)), (2, 1, Some(60))], 4)]));
    assert_eq!((rows[0].2, rows[1].2), (6.25, 3.75));
}

#[test]
fn divides_gpu_utilization_without_process_values() {
    let rows = rows(&accounts(&[device(0, Some(40), &[(1, 3_000, None), (2, 1_000, None)], 4)]));
    assert_eq!(rows[0], row("alice", 7.5, 3.0, 0.0, 900.0, 3_000));
    assert_eq!(rows[1], row("bob", 2.5, 1.0, 0.0, 300.0, 1_000));
}

#[test]
fn unlisted_memory_gets_a_row_and_remaining_compute() {
    let accounts = accounts(&[device(0, Some(70), &[(1, 1_000, Some(30))], 3_000)]);
    let rows = rows(&accounts);
    assert_eq!(rows[0], row("alice", 2.5, 3.0, 0.0, 900.0, 1_000));
    assert_eq!(rows[1], row("unlisted", 7.5, 4.0, 0.0, 1_200.0, 3_000));
    // The driver's own memory is not booked.
    let rest = idle_device();
    assert_eq!(rest.users().count(), 0);
    assert_eq!((rest.total().held, rest.total().peak), (Duration::ZERO, Bytes(0)));
}

fn idle_device() -> Accounts {
    accounts(&[device(0, Some(0), &[], 60)])
}

#[test]
fn peak_is_simultaneous_over_all_gpus() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    for (second, first, second_gpu) in [(0, 1_000, 5_000), (1, 4_000, 1_000), (2, 100, 100)] {
        let devices = vec![
            device(0, Some(0), &[(1, first, Some(0))], 4),
            device(1, Some(0), &[(3, second_gpu, Some(0))], 4),
        ];
        accounts.add(&snapshot(second, devices), &[], DAY);
    }
    assert_eq!(rows(&accounts)[0].5, 6_000, "not 9,000");
    assert_eq!(
        accounts.gpus().iter().map(|gpu| gpu.amounts.peak.mib()).collect::<Vec<_>>(),
        [4_000, 5_000]
    );
}

#[test]
fn gap_is_not_booked_but_listed() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    let busy = || vec![device(0, Some(50), &[(1, 1_000, Some(50))], 4)];
    // An interval of exactly the longest time is no gap.
    for second in [0, 60, 360, 4_000, 4_060, 4_050, 4_110] {
        accounts.add(&snapshot(second, busy()), &[], DAY);
    }
    assert_eq!(accounts.total().held, Duration::from_secs(480));
    let gaps = accounts.gaps();
    assert_eq!((gaps.count, gaps.time, gaps.set_back), (1, Duration::from_secs(3_640), 1));
    assert_eq!(gaps.longest[0].from, Timestamp(360_000));
    assert_eq!(accounts.span(), Some((Timestamp(0), Timestamp(4_110_000))));
    assert_eq!(accounts.snapshot_count(), 7);
}

#[test]
fn longest_gaps_are_kept() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    let mut second = 0;
    accounts.add(&snapshot(second, Vec::new()), &[], DAY);
    for length in 1_001..=1_025 {
        second += length;
        accounts.add(&snapshot(second, Vec::new()), &[], DAY);
    }
    let lengths: Vec<u64> =
        accounts.gaps().longest.iter().map(|gap| gap.time().as_secs()).collect();
    assert_eq!((accounts.gaps().count, lengths), (25, (1_006..=1_025).collect()));
}

#[test]
fn held_time_without_any_utilization_is_unmeasured() {
    let unmeasured = |busy, own: [Option<u64>; 2]| {
        let listed = [(1, 1_000, own[0]), (2, 1_000, own[1])];
        accounts(&[device(0, busy, &listed, 4)]).gpus()[0].unmeasured.as_secs()
    };
    assert_eq!(unmeasured(None, [None, None]), 10);
    assert_eq!(unmeasured(None, [Some(5), None]), 10);
    assert_eq!(unmeasured(None, [Some(5), Some(0)]), 0, "the shares of all are known");
    assert_eq!(unmeasured(Some(5), [None, None]), 0, "that of the GPU is known");
    assert_eq!(accounts(&[device(0, None, &[], 4)]).gpus()[0].unmeasured, Duration::ZERO);
}

#[test]
fn interval_across_midnight_belongs_to_its_first_day() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    let busy = || vec![device(0, Some(50), &[(1, 1_000, Some(50))], 4)];
    for (second, day) in [(0, 24), (60, 25), (90, 25)] {
        accounts.add(&snapshot(second, busy()), &[], Day { day, ..DAY });
    }
    let days: Vec<_> =
        accounts.days().map(|(day, of)| (day.to_string(), of.held.as_secs())).collect();
    assert_eq!(days, [("2026-11-24".to_owned(), 60), ("2026-11-25".to_owned(), 30)]);
}

#[test]
fn graphics_process_does_not_hold_gpu() {
    let mut screen = device(0, Some(3), &[(1, 400, None)], 4);
    screen.processes.as_mut().unwrap()[0].kind = DeviceProcessKind::Graphics;
    let accounts = accounts(&[screen]);
    assert_eq!(accounts.total().held, Duration::ZERO);
    assert_eq!(accounts.gpus()[0].observed, Duration::from_secs(10));
}

#[test]
fn energy_counter_is_used_unless_it_restarts() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    for (second, counter) in [(0, 1_000_000), (10, 1_002_000), (20, 50), (30, 1_050)] {
        let mut busy = device(0, Some(100), &[(1, 1_000, Some(100))], 4);
        let mut power = Power::absent(Absent::NotSupported);
        power.energy = Ok(counter);
        busy.details = Ok(DeviceDetails { power: Some(power), ..DeviceDetails::default() });
        accounts.add(&snapshot(second, vec![busy]), &[], DAY);
    }
    // 2 J, then ten seconds at 300 W, then 1 J.
    assert_eq!(accounts.total().energy.joules(), 3_003.0);
}

#[test]
fn energy_counter_that_advances_too_far_is_not_used() {
    // At most 5 kW for ten seconds and 1 J; beyond that ten seconds at 300 W.
    for (millijoules, joules) in [(50_001_000, 50_001.0), (50_001_001, 3_000.0)] {
        let mut accounts = Accounts::new(Duration::from_secs(300));
        for (second, counter) in [(0, 7), (10, 7 + millijoules)] {
            let mut busy = device(0, Some(100), &[(1, 1_000, Some(100))], 4);
            let mut power = Power::absent(Absent::NotSupported);
            power.energy = Ok(counter);
            busy.details = Ok(DeviceDetails { power: Some(power), ..DeviceDetails::default() });
            accounts.add(&snapshot(second, vec![busy]), &[], DAY);
        }
        assert_eq!(accounts.total().energy.joules(), joules, "{millijoules}");
    }
}

#[test]
fn reused_pid_is_booked_to_new_owner() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    for second in 0..=10 {
        let mut now = snapshot(second, vec![device(0, Some(0), &[(1, 1_000, Some(0))], 4)]);
        if second > 5 {
            let info = now.processes.get_mut(&Pid(1)).unwrap().info_mut().unwrap();
            (info.key.start, info.user) = (Some(StartTime(900)), Ok("carol".into()));
        }
        accounts.add(&now, &[], DAY);
    }
    let held: Vec<_> = rows(&accounts).into_iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(held, [("alice".to_owned(), 5.0), ("carol".to_owned(), 5.0)]);
}

#[test]
fn too_many_jobs_share_a_row() {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    for second in 0..10_100_u64 {
        let mut now = snapshot(second, vec![device(0, Some(0), &[(1, 1_000, Some(0))], 4)]);
        let info = now.processes.get_mut(&Pid(1)).unwrap().info_mut().unwrap();
        (info.key.start, info.name) = (Some(StartTime(second)), format!("job{second}"));
        accounts.add(&now, &[], DAY);
    }
    let (owner, work, others) = accounts.jobs().last().unwrap();
    assert_eq!((owner, work), (&Owner::User("alice".into()), &Work::Others));
    assert_eq!(others.held, Duration::from_secs(100));
    assert_eq!(accounts.jobs().count(), 10_001);
}

#[test]
fn leased_gpu_without_memory_is_held_and_idle() {
    let leased = |owner, index: u32| LeaseEntry {
        id: LeaseId::parse("4711-1").expect("a valid ID"),
        ticket: 1,
        owner,
        root: ProcessKey { pid: Pid(9), start: None },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid(format!("GPU-{index}"))],
        parts_of: Vec::new(),
        merged: None,
        command: "python wait.py".to_owned(),
        since: Timestamp(0),
    };
    let mut accounts = Accounts::new(Duration::from_secs(300));
    for second in 0..=10 {
        let mut devices = vec![
            device(0, Some(0), &[(1, 1_000, Some(0))], 4),
            device(1, Some(0), &[], 4),
            device(2, Some(0), &[], 4),
            device(3, Some(0), &[], 4),
        ];
        for device in &mut devices {
            device.info.id.uuid = Ok(DeviceUuid(format!("GPU-{}", device.info.id.index)));
        }
        let mut now = snapshot(second, devices);
        for (pid, uid) in [(1, 1_000), (2, 1_001)] {
            let info = now.processes.get_mut(&Pid(pid)).unwrap().info_mut().unwrap();
            info.uid = Ok(uid);
        }
        // Bob's lease of GPU 0 does not count for memory that alice holds.
        let mut merged = MergedLeases::of_count(2);
        merged.add("GPU-3", &mut 1);
        let merged = LeaseEntry {
            devices: Vec::new(),
            merged: Some(std::sync::Arc::new(merged)),
            command: "2 more leases of this user".to_owned(),
            ..leased(1_003, 3)
        };
        let leases = [leased(1_001, 0), leased(1_000, 1), leased(1_002, 2), merged];
        accounts.add(&now, &leases, DAY);
    }
    let rows = rows(&accounts);
    assert_eq!(rows[0], row("alice", 20.0, 0.0, 20.0, 0.0, 1_000));
    assert_eq!(rows[1], row("uid 1002", 10.0, 0.0, 10.0, 0.0, 0));
    assert_eq!(rows[2], row("uid 1003", 10.0, 0.0, 10.0, 0.0, 0), "of leases that were merged");
    assert_eq!(rows.len(), 3);
    assert_eq!(accounts.jobs().last().unwrap().1, &Work::Unknown);
    assert_eq!(accounts.jobs().nth(1).unwrap().1, &Work::Command("python wait.py".into()));
}
