//! 'Freed' counts only the memory that the targets freed.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use mockall::predicate::eq;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of a device: used memory, and the memory of each listed process.
type Shown = (u64, &'static [(u32, u64)]);

/// A device in the state `before` until the target gets its signal, and then `after`.
fn showing(signalled: &Arc<AtomicBool>, before: Shown, after: Shown) -> MockGpuBackend {
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let shown = move |signalled: &AtomicBool| {
        if signalled.load(Ordering::Relaxed) { after } else { before }
    };
    let asked = signalled.clone();
    backend
        .expect_sample()
        .returning(move |_| device(0, shown(&asked).0, 16_280).sample.map_err(|_| unreachable!()));
    let asked = signalled.clone();
    backend.expect_processes().returning(move |_| {
        let list = shown(&asked).1.iter();
        let listed = list.fold(device(0, 0, 0), |device, (pid, mib)| listing(device, *pid, *mib));
        Ok(listed.processes.unwrap())
    });
    backend
}

/// Ends process 100, which exits on the signal; `scan` returns the holders, before and after that.
fn end(
    plan: &Plan,
    before: Shown,
    after: Shown,
    scan: impl Fn(bool) -> HolderScan + Send + Sync + 'static,
) -> Report {
    let signalled = Arc::new(AtomicBool::new(false));
    let backend = showing(&signalled, before, after);
    let mut host = bare_host();
    host.expect_process().returning(|pid| Ok(process(pid.0, "python")));
    end_on(plan, host, &backend, &signalled, scan)
}

/// Ends process 100 on a device that is notified of its exit through `signalled`.
fn end_on(
    plan: &Plan,
    mut host: MockHost,
    backend: &MockGpuBackend,
    signalled: &Arc<AtomicBool>,
    scan: impl Fn(bool) -> HolderScan + Send + Sync + 'static,
) -> Report {
    let (asked, signalled) = (signalled.clone(), signalled.clone());
    host.expect_holders().returning(move |_| Ok(scan(asked.load(Ordering::Relaxed))));
    host.expect_open().with(eq(Pid(100))).returning(move |_| {
        let mut handle = MockProcessHandle::new();
        still_holding(&mut handle);
        let signal = signalled.clone();
        handle.expect_signal().times(1).returning(move |_, _| {
            signal.store(true, Ordering::Relaxed);
            Ok(())
        });
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    carry_out(plan, &guard, &host, backend, &journal().0)
}

fn no_holder(_: bool) -> HolderScan {
    HolderScan::default()
}

#[test]
fn memory_of_other_listed_process_is_not_attributed_to_target() {
    // The target leaks its 9,000 MiB; process 200 ends meanwhile and frees as much.
    let report = end(&ghost_plan(), (15_000, &[(200, 6000)]), (9000, &[]), no_holder);
    let freed = &report.memory[0];
    assert_eq!((freed.freed, freed.by_others), (Some(Bytes(0)), Some(Bytes::from_mib(6000))));
    assert!(!freed.came_back && !report.is_complete(), "{report:?}");
}

#[test]
fn memory_of_target_and_other_is_counted_separately() {
    let report = end(&ghost_plan(), (15_000, &[(200, 6000)]), (25, &[]), no_holder);
    let freed = &report.memory[0];
    assert_eq!(freed.freed, Some(Bytes::from_mib(8975)));
    assert_eq!(freed.by_others, Some(Bytes::from_mib(6000)));
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn new_process_does_not_hide_freed_memory() {
    let after = (6025, &[(201, 6000)][..]);
    let report = end(&ghost_plan(), (15_000, &[(200, 6000)]), after, no_holder);
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(8975)));
    assert!(report.memory[0].came_back, "{report:?}");
}

#[test]
fn process_ending_during_listing_is_not_attributed_to_target() {
    // It is in the first sample and in neither the list nor the second sample.
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let samples = AtomicU64::new(0);
    backend.expect_sample().returning(move |_| {
        let mib = if samples.fetch_add(1, Ordering::Relaxed) == 0 { 15_000 } else { 9000 };
        device(0, mib, 16_280).sample.map_err(|_| unreachable!())
    });
    backend.expect_processes().returning(|_| Ok(vec![]));
    let report = run(&host(obedient), &backend, &journal().0, vec![]);
    assert_eq!(report.memory[0].freed, Some(Bytes(0)));
}

#[test]
fn process_handing_over_during_listing_hides_no_leak() {
    // The target leaks its 9,000 MiB. Process 300 frees as much, while 200 hands its memory over to
    // 201: for a moment, both have some.
    let signalled = Arc::new(AtomicBool::new(false));
    let moment = Arc::new(AtomicU64::new(0));
    let asked = signalled.clone();
    let listed = move || -> &'static [u32] {
        match asked.load(Ordering::Relaxed).then(|| moment.fetch_add(1, Ordering::Relaxed)) {
            None => &[200, 300],
            Some(0) => &[200],
            Some(1) => &[200, 201],
            Some(_) => &[201],
        }
    };
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let users = listed.clone();
    backend.expect_sample().returning(move |_| {
        let mib = 9000 * (1 + users().len() as u64);
        device(0, mib, 81_920).sample.map_err(|_| unreachable!())
    });
    backend.expect_processes().returning(move |_| {
        let list = listed().iter();
        let listed = list.fold(device(0, 0, 0), |device, pid| listing(device, *pid, 9000));
        Ok(listed.processes.unwrap())
    });
    let report = end_on(&ghost_plan(), bare_host(), &backend, &signalled, no_holder);
    assert_eq!(report.memory[0].freed, Some(Bytes(0)));
    assert!(!report.is_complete(), "{report:?}");
}

#[test]
fn process_reusing_pid_of_ended_target_is_another() {
    // Process 105 has ended before its turn, and another one has reused its PID and has 6,000 MiB.
    let mut plan = one_of_two();
    let key = ProcessKey { pid: Pid(105), start: Some(StartTime(1)) };
    plan.targets.push(Target { key, on_account_of: Pid(105), ..plan.targets[0].clone() });
    let signalled = Arc::new(AtomicBool::new(false));
    let backend = showing(&signalled, (15_000, &[(105, 6000)]), (9000, &[]));
    let mut host = bare_host();
    host.expect_process().with(eq(Pid(105))).returning(|pid| Ok(process(pid.0, "python")));
    host.expect_open()
        .with(eq(Pid(105)))
        .returning(|_| Err(Error::new(ProcessFault::Gone, "open process 105")));
    let report = end_on(&plan, host, &backend, &signalled, no_holder);
    let freed = &report.memory[0];
    assert_eq!((freed.freed, freed.by_others), (Some(Bytes(0)), Some(Bytes::from_mib(6000))));
    assert!(!report.is_complete(), "{report:?}");
}

/// Two ghosts, one of which is to be ended.
fn one_of_two() -> Plan {
    let (first, second) = (process(100, "t2t-decoder"), process(105, "python"));
    let holders = vec![context(&first, &[0]), context(&second, &[0])];
    let snapshots = [snapshot_of(vec![device(0, 15_000, 16_280)], holders, vec![first, second])];
    let request = Request { pids: vec![Pid(100)], ..Request::default() };
    let guard = Guard::new(&bare_host(), vec![]).unwrap();
    let plan = plan(&snapshots, &diagnose(&snapshots), &guard, &request);
    assert_eq!(plan.expected[0].memory, None);
    plan
}

#[test]
fn memory_possibly_of_unlisted_process_is_not_reported_freed() {
    let other = |there: bool| {
        let holders = if there { vec![context(&process(105, "python"), &[0])] } else { vec![] };
        HolderScan { holders, ..HolderScan::default() }
    };
    let lives = end(&one_of_two(), (15_000, &[]), (9000, &[]), move |_| other(true));
    assert_eq!(lives.memory[0].doubt, None);
    assert!(lives.is_complete(), "{lives:?}");
    let ended = end(&one_of_two(), (15_000, &[]), (9000, &[]), move |after| other(!after));
    assert_eq!(ended.memory[0].doubt, Some(Doubt::LetGo(Pid(105))));
    assert!(!ended.memory[0].came_back && !ended.is_complete(), "{ended:?}");
}

fn unreadable(count: u32) -> HolderScan {
    let mut unreadable = Unreadable::default();
    unreadable.add(Absent::NotPermitted, count);
    HolderScan { unreadable, ..HolderScan::default() }
}

#[test]
fn memory_possibly_of_unreadable_process_is_not_reported_freed() {
    let ends = |after: bool| unreadable(if after { 1 } else { 2 });
    let report = end(&one_of_two(), (15_000, &[]), (9000, &[]), ends);
    assert_eq!(report.memory[0].doubt, Some(Doubt::Unseen));
    assert!(!report.is_complete());
    let stays = end(&one_of_two(), (15_000, &[]), (9000, &[]), |_| unreadable(2));
    assert!(stays.is_complete(), "{stays:?}");
}

#[test]
fn memory_retaken_by_unreadable_process_is_not_free() {
    // The process that took it is unreadable, and the driver lists none.
    let signalled = Arc::new(AtomicBool::new(false));
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    backend.expect_processes().returning(|_| Ok(vec![]));
    let (samples, asked) = (AtomicU64::new(0), signalled.clone());
    backend.expect_sample().returning(move |_| {
        let after = asked.load(Ordering::Relaxed);
        let back = after && samples.fetch_add(1, Ordering::Relaxed) < 2;
        device(0, if back { 25 } else { 9000 }, 16_280).sample.map_err(|_| unreachable!())
    });
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(unreadable(1)));
    host.expect_open().returning(move |_| {
        let mut handle = MockProcessHandle::new();
        still_holding(&mut handle);
        let signal = signalled.clone();
        handle.expect_signal().returning(move |_, _| {
            signal.store(true, Ordering::Relaxed);
            Ok(())
        });
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let report = run(&host, &backend, &journal().0, vec![]);
    assert!(report.memory[0].came_back, "{report:?}");
    assert_eq!(report.newcomers, Err(Absent::NotPermitted));
    assert!(!report.is_complete());
}

#[test]
fn memory_is_not_reported_freed_without_per_process_figures() {
    let mut host = MockHost::new();
    host.expect_own_ancestry().returning(|| Ok(vec![]));
    host.expect_origin().returning(origin);
    host.expect_device_files().returning(|| Ok(vec![]));
    // In a container the driver's PIDs are meaningless.
    host.expect_sees_host_pids().returning(|| Ok(false));
    host.expect_is_root().returning(|| Ok(true));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_open().returning(|_| {
        let mut handle = MockProcessHandle::new();
        obedient(&mut handle);
        Ok(Box::new(handle))
    });
    let report = run(&host, &backend(1), &journal().0, vec![]);
    assert_eq!(report.memory[0].doubt, Some(Doubt::NotListed));
    assert!(!report.is_complete(), "{report:?}");
}

/// Ends process 100 on a device whose process list is unreadable.
fn end_unlisted(scan: impl Fn(bool) -> HolderScan + Send + Sync + 'static) -> Report {
    let signalled = Arc::new(AtomicBool::new(false));
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let asked = signalled.clone();
    backend.expect_sample().returning(move |_| {
        let mib = if asked.load(Ordering::Relaxed) { 25 } else { 9000 };
        device(0, mib, 16_280).sample.map_err(|_| unreachable!())
    });
    let refused = || Error::new(Absent::NotSupported, "list the processes of GPU 0");
    backend.expect_processes().returning(move |_| Err(refused()));
    end_on(&ghost_plan(), bare_host(), &backend, &signalled, scan)
}

#[test]
fn unlisted_memory_of_sole_holder_is_attributed_to_target() {
    let alone = end_unlisted(|after| {
        let holders = if after { vec![] } else { vec![context(&process(100, "python"), &[0])] };
        HolderScan { holders, ..HolderScan::default() }
    });
    assert_eq!(alone.memory[0].doubt, None);
    assert!(alone.is_complete(), "{alone:?}");
    let other = end_unlisted(|_| {
        let holders = vec![context(&process(105, "python"), &[0])];
        HolderScan { holders, ..HolderScan::default() }
    });
    assert_eq!(other.memory[0].doubt, Some(Doubt::NotListed));
    let unread = end_unlisted(|_| unreadable(1));
    assert_eq!(unread.memory[0].doubt, Some(Doubt::NotListed));
}

/// The plan to end process 100, which the driver lists with 4,000 MiB.
fn listed_plan() -> Plan {
    let info = process(100, "t2t-decoder");
    let device = listing(device(0, 4_010, 16_280), 100, 4_000);
    let snapshots = [snapshot_of(vec![device], vec![context(&info, &[0])], vec![info])];
    let request = Request { pids: vec![Pid(100)], ..Request::default() };
    let guard = Guard::new(&bare_host(), vec![]).unwrap();
    let plan = plan(&snapshots, &diagnose(&snapshots), &guard, &request);
    assert_eq!(plan.expected[0].memory, Some(Bytes::from_mib(4_000)));
    plan
}

#[test]
fn ended_unreadable_process_had_no_listed_memory() {
    let ends = |after: bool| unreadable(if after { 1 } else { 2 });
    let report = end(&listed_plan(), (4_010, &[(100, 4_000)]), (10, &[]), ends);
    assert_eq!((report.memory[0].doubt, report.memory[0].by_others), (None, None));
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn small_shortfall_of_freed_memory_is_tolerated() {
    let came_back = |plan: &Plan, before, after| {
        end(plan, (before, &[]), (after, &[]), no_holder).memory[0].came_back
    };
    // Of listed memory, a twentieth.
    assert!(came_back(&listed_plan(), 4_010, 210));
    assert!(!came_back(&listed_plan(), 4_010, 211));
    // Of unexplained memory, the overhead of the driver (145.4 MiB), but no more than half.
    assert!(came_back(&ghost_plan(), 9_000, 145));
    assert!(!came_back(&ghost_plan(), 9_000, 146));
    let info = process(100, "t2t-decoder");
    let snapshots =
        [snapshot_of(vec![device(0, 200, 16_280)], vec![context(&info, &[0])], vec![info])];
    let guard = Guard::new(&bare_host(), vec![]).unwrap();
    let small = plan(&snapshots, &diagnose(&snapshots), &guard, &Request::default());
    assert!(came_back(&small, 200, 100));
    assert!(!came_back(&small, 200, 101));
}

#[test]
fn unchanged_memory_raises_no_doubt() {
    let ends = |after: bool| unreadable(if after { 1 } else { 2 });
    let report = end(&one_of_two(), (15_000, &[]), (15_000, &[]), ends);
    assert_eq!((report.memory[0].freed, report.memory[0].doubt), (Some(Bytes(0)), None));
    assert!(!report.memory[0].came_back);
}

#[test]
fn ended_unreadable_process_may_have_had_unexplained_memory() {
    let ends = |after: bool| unreadable(if after { 1 } else { 2 });
    let report = end(&ghost_plan(), (9_000, &[]), (25, &[]), ends);
    assert_eq!(report.memory[0].doubt, Some(Doubt::Unseen));
}

#[test]
fn memory_is_back_only_if_every_target_has_ended() {
    // Process 105 cannot be opened for another reason than its end.
    let mut plan = ghost_plan();
    let key = ProcessKey { pid: Pid(105), start: Some(StartTime(1050)) };
    plan.targets.push(Target { key, on_account_of: Pid(105), ..plan.targets[0].clone() });
    plan.expected[0].targets.push(Pid(105));
    let signalled = Arc::new(AtomicBool::new(false));
    let backend = showing(&signalled, (9_000, &[]), (25, &[]));
    let mut host = bare_host();
    host.expect_process().returning(|pid| Ok(process(pid.0, "python")));
    host.expect_open()
        .with(eq(Pid(105)))
        .returning(|_| Err(Error::new(ErrorKind::Unsupported, "open process 105")));
    let report = end_on(&plan, host, &backend, &signalled, no_holder);
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(8_975)));
    assert!(!report.memory[0].came_back, "{report:?}");
}
