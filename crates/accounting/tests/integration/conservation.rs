//! Every amount is booked once, for any sequence of snapshots.

use gpu_accounting::{Accounts, Amounts, Day, Energy, Owner};
use gpu_core::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// A process on a device: its PID, its memory in MiB, its utilization.
type Listed = (u32, Option<u64>, Option<u64>);

/// A device: its processes, used memory, utilization, power draw and energy counter; `None` if it
/// does not answer.
#[derive(Clone, Debug)]
struct Shown {
    listed: Option<Vec<Listed>>,
    unlisted: u64,
    busy: Option<u64>,
    draw: Option<u64>,
    counter: Option<u64>,
}

fn percent() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 2 => Just(Some(0)), 4 => (0..=100_u64).prop_map(Some)]
}

fn shown() -> impl Strategy<Value = Shown> {
    let listed = (1..9_u32, prop::option::of(0..50_000_u64), percent());
    let listed = prop::option::weighted(0.9, prop::collection::vec(listed, 0..5));
    let unlisted = prop_oneof![Just(0), 0..20_000_u64];
    let power = (prop::option::of(0..700_000_u64), prop::option::of(0..10_000_000_u64));
    (listed, unlisted, percent(), power).prop_map(|(listed, unlisted, busy, (draw, counter))| {
        Shown { listed, unlisted, busy, draw, counter }
    })
}

fn device(index: usize, shown: &Shown) -> DeviceState {
    let index = u32::try_from(index).unwrap();
    let share = |share: Option<u64>| share.and_then(Percent::new).ok_or(Absent::NotSupported);
    let mut sample = DeviceSample::absent(Absent::NotSupported);
    let memory: u64 = shown.listed.iter().flatten().filter_map(|(_, mib, _)| *mib).sum();
    sample.memory.used = Ok(Bytes::from_mib(memory + shown.unlisted));
    sample.memory.total = Ok(Bytes::from_mib(400_000));
    sample.utilization = share(shown.busy);
    sample.power_draw = shown.draw.map(Milliwatts).ok_or(Absent::NotSupported);
    let listed = shown.listed.iter().flatten().map(|(pid, mib, own)| DeviceProcess {
        pid: Pid(*pid),
        kind: DeviceProcessKind::Compute,
        memory: mib.map(Bytes::from_mib).ok_or(Absent::NotPermitted),
        utilization: share(*own),
        name: Err(Absent::NotRecorded),
        gpu_instance: None,
        compute_instance: None,
    });
    let mut power = Power::absent(Absent::NotSupported);
    power.energy = shown.counter.ok_or(Absent::NotSupported);
    let fault = Fault { kind: ErrorKind::TimedOut, text: "list".into() };
    DeviceState {
        info: DeviceInfo::unknown(DeviceId::from_index(index)),
        sample: Ok(sample),
        processes: if shown.listed.is_some() { Ok(listed.collect()) } else { Err(fault) },
        partitions: Ok(Vec::new()),
        details: Ok(DeviceDetails { power: Some(power), ..DeviceDetails::default() }),
    }
}

fn snapshot(at: u64, devices: &[Shown]) -> Snapshot {
    let mut snapshot = Snapshot::empty(Origin::Live, Timestamp(at));
    snapshot.devices =
        devices.iter().enumerate().map(|(index, shown)| device(index, shown)).collect();
    // Of the eight PIDs, two have no process, two have no user, and the others belong to three
    // users.
    for pid in 1..=6 {
        let mut info = ProcessInfo::from_name(Pid(pid), format!("program{}", pid % 4));
        info.key.start = Some(StartTime(1));
        info.uid = Ok(1_000 + pid % 3);
        if pid > 2 {
            info.user = Ok(format!("user{}", pid % 3));
        }
        snapshot.processes.insert(info.key.pid, Process::from(Ok(info)));
    }
    snapshot
}

fn sum<'a>(rows: impl Iterator<Item = &'a Amounts>) -> (Duration, Duration, Duration, Energy) {
    let mut sum = (Duration::ZERO, Duration::ZERO, Duration::ZERO, Energy::default());
    for row in rows {
        sum = (sum.0 + row.held, sum.1 + row.used, sum.2 + row.idle, sum.3);
        sum.3 += row.energy;
    }
    sum
}

fn day(at: u64) -> Day {
    Day { year: 2026, month: 11, day: i8::try_from(1 + at / 86_400_000 % 28).unwrap() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_users_jobs_gpus_and_days_add_up_to_the_totals(
        snapshots in prop::collection::vec(
            (prop_oneof![0..5_000_u64, Just(1_000), 0..400_000_u64], any::<bool>(),
             prop::collection::vec(shown(), 1..4)),
            1..12,
        ),
    ) {
        let mut accounts = Accounts::new(Duration::from_secs(300));
        let mut at = 86_390_000_u64;
        let (mut watched, mut gaps, mut set_back) = (0, 0, 0);
        for (index, (after, back, devices)) in snapshots.iter().enumerate() {
            // Sometimes the clock is set back.
            let back = *back && *after < 50;
            at = if back { at - after } else { at + after };
            accounts.add(&snapshot(at, devices), &[], day(at));
            match index {
                0 => {}
                _ if back && *after > 0 => set_back += 1,
                _ if *after > 300_000 => gaps += after,
                _ if back => {}
                _ => watched += after,
            }
        }
        prop_assert_eq!(accounts.watched().as_millis(), u128::from(watched));
        prop_assert_eq!(accounts.gaps().time.as_millis(), u128::from(gaps));
        prop_assert_eq!(accounts.gaps().set_back, set_back);
        let total = sum(std::iter::once(accounts.total()));
        let mut users = sum(accounts.users().map(|(_, amounts)| amounts));
        let mut jobs = sum(accounts.jobs().map(|(_, _, amounts)| amounts));
        users.3 += accounts.unattributed();
        jobs.3 += accounts.unattributed();
        prop_assert_eq!(users, total);
        prop_assert_eq!(jobs, total);
        prop_assert_eq!(sum(accounts.gpus().iter().map(|gpu| &gpu.amounts)), total);
        prop_assert_eq!(sum(accounts.days().map(|(_, amounts)| amounts)), total);
        for gpu in accounts.gpus() {
            prop_assert!(gpu.amounts.held <= gpu.observed && gpu.observed <= accounts.watched());
            prop_assert!(gpu.amounts.used <= gpu.observed);
            prop_assert!(gpu.unmeasured <= gpu.amounts.held);
        }
        for (_, amounts) in accounts.users() {
            prop_assert!(amounts.idle <= amounts.held && amounts.peak <= total_peak(&accounts));
        }
        // The amounts of a user's jobs add up to the user's.
        let mut by_owner: BTreeMap<&Owner, Duration> = BTreeMap::new();
        for (owner, _, amounts) in accounts.jobs() {
            *by_owner.entry(owner).or_default() += amounts.held;
        }
        for (owner, amounts) in accounts.users() {
            prop_assert_eq!(by_owner[owner], amounts.held);
        }
        // The chart shows the same totals.
        let parts = accounts.series().buckets().iter().flat_map(|bucket| bucket.parts.values());
        prop_assert_eq!(parts.map(|part| part.used).sum::<Duration>(), total.1);
    }
}

fn total_peak(accounts: &Accounts) -> Bytes {
    accounts.total().peak
}
