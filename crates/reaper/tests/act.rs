//! What is sent, and above all what is not: mocks fail on any call that is not expected.

mod scene;

use gpu_core::*;
use gpu_reaper::*;
use mockall::predicate::always;
use scene::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn clock() -> MockClock {
    let now = Arc::new(AtomicU64::new(0));
    let mut clock = MockClock::new();
    let (read, wall) = (now.clone(), now.clone());
    clock.expect_monotonic().returning(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    clock.expect_wall().returning(move || Timestamp(wall.load(Ordering::Relaxed)));
    clock.expect_sleep().returning(move |duration| {
        now.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    });
    clock
}

/// A device whose memory is 9,000 MiB until `freed` looks have passed, 25 MiB then.
fn backend(looks_until_freed: u64) -> MockGpuBackend {
    let looks = AtomicU64::new(0);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(|| Origin::Simulated("scene".into()));
    backend.expect_sample().returning(move |_| {
        let back = looks.fetch_add(1, Ordering::Relaxed) >= looks_until_freed;
        device(0, if back { 25 } else { 9000 }, 16_280).sample.map_err(|_| unreachable!())
    });
    backend
}

fn journal() -> (MockJournal, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut journal = MockJournal::new();
    let kept = lines.clone();
    journal.expect_append().returning(move |line| {
        kept.lock().unwrap().push(line.to_owned());
        Ok(())
    });
    (journal, lines)
}

fn host(handle: impl FnOnce(&mut MockProcessHandle) + Send + 'static) -> MockHost {
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    let handle = Mutex::new(Some(handle));
    host.expect_open().times(1).returning(move |_| {
        let mut opened = MockProcessHandle::new();
        handle.lock().unwrap().take().unwrap()(&mut opened);
        Ok(Box::new(opened))
    });
    host
}

fn ghost_plan() -> Plan {
    let decoder = process(100, "t2t-decoder");
    let look = look(vec![device(0, 9000, 16_280)], vec![context(&decoder, &[0])], vec![decoder]);
    let looks = [look];
    let mut nobody = MockHost::new();
    nobody.expect_own_line().returning(|| Ok(vec![]));
    let guard = Guard::new(&nobody, vec![]).unwrap();
    let plan = plan(&looks, &diagnose(&looks), &[], &guard, &Request::default());
    assert_eq!(plan.targets.len(), 1);
    plan
}

fn run(
    host: &MockHost,
    backend: &MockGpuBackend,
    journal: &MockJournal,
    protect: Vec<Protect>,
) -> Report {
    let clock = clock();
    let guard = Guard::new(host, protect).unwrap();
    let ports = Ports { backend, host, clock: &clock, journal };
    execute(&ghost_plan(), &guard, ports, &ActToken::the_user_asked(), &mut |_| {
        ControlFlow::Continue(())
    })
}

fn still_holding(handle: &mut MockProcessHandle) {
    handle.expect_look().returning(|| Ok(process(100, "t2t-decoder")));
    handle.expect_held().returning(|_| Ok(context(&process(100, "t2t-decoder"), &[0]).held));
}

#[test]
fn the_ladder_climbs_and_the_proof_is_a_later_look() {
    let host = host(|handle| {
        still_holding(handle);
        let killed = Arc::new(AtomicU64::new(0));
        let dead = killed.clone();
        handle.expect_signal().times(2).returning(move |signal, _| {
            killed.fetch_add(u64::from(signal == Signal::Kill), Ordering::Relaxed);
            Ok(())
        });
        handle.expect_has_exited().returning(move || Ok(dead.load(Ordering::Relaxed) > 0));
    });
    let (journal, lines) = journal();
    let report = run(&host, &backend(4), &journal, vec![]);
    assert_eq!(report.actions[0].signals, [Signal::Term, Signal::Kill]);
    assert_eq!(report.actions[0].outcome, Outcome::Ended { after_ms: 0 });
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(8975)));
    assert!(report.memory[0].seen_after > Duration::ZERO);
    assert!(report.is_complete());
    let lines = lines.lock().unwrap();
    let events: Vec<bool> = lines.iter().map(|line| line.contains(r#""event":"signal""#)).collect();
    assert_eq!(events, [true, true, false], "{lines:?}");
    assert!(lines[0].contains(r#""signal":"SIGTERM","pid":100,"start_ticks":1000"#), "{lines:?}");
}

#[test]
fn memory_that_stays_is_not_called_freed() {
    let host = host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
    });
    let report = run(&host, &backend(u64::MAX), &journal().0, vec![]);
    assert_eq!(report.memory[0].freed, Some(Bytes(0)));
    assert!(!report.memory[0].came_back && !report.is_complete());
}

#[test]
fn no_log_no_signal() {
    let host = host(still_holding);
    let mut journal = MockJournal::new();
    journal
        .expect_append()
        .times(1)
        .returning(|_| Err(Error::new(ErrorKind::Io, "append to the audit log")));
    let report = run(&host, &backend(0), &journal, vec![]);
    assert!(report.stopped.is_some() && !report.is_complete());
    assert_eq!(report.actions[0].outcome, Outcome::NotReached);
}

/// The handle has no `signal` expectation: one signal and the test fails.
fn spared(now: impl Fn() -> Result<ProcessInfo> + Send + 'static, holds: bool) -> Outcome {
    spared_holding(now, if holds { &[0] } else { &[] })
}

fn spared_holding(
    now: impl Fn() -> Result<ProcessInfo> + Send + 'static,
    minors: &'static [u32],
) -> Outcome {
    let host = host(move |handle| {
        handle.expect_look().returning(now);
        let held = context(&process(100, ""), minors).held;
        handle.expect_held().with(always()).returning(move |_| Ok(held.clone()));
    });
    let mut report = run(&host, &backend(0), &journal().0, vec![]);
    report.actions.remove(0).outcome
}

#[test]
fn a_reused_number_is_never_signalled() {
    let mut other = process(100, "t2t-decoder");
    other.key.start = Some(StartTime(77));
    assert_eq!(spared(move || Ok(other.clone()), true), Outcome::NotTheSame);
}

#[test]
fn a_changed_or_unknown_user_is_never_signalled() {
    for uid in [Ok(0), Err(Absent::NotPermitted)] {
        let mut other = process(100, "t2t-decoder");
        other.uid = uid;
        assert_eq!(spared(move || Ok(other.clone()), true), Outcome::NotTheSame);
    }
}

#[test]
fn who_let_go_is_never_signalled() {
    assert_eq!(spared(|| Ok(process(100, "t2t-decoder")), false), Outcome::LetGo);
}

#[test]
fn another_device_and_the_common_files_are_not_the_device() {
    // It has nvidia1, nvidiactl and nvidia-uvm; the plan was for nvidia0.
    assert_eq!(spared_holding(|| Ok(process(100, "t2t-decoder")), &[1]), Outcome::LetGo);
}

#[test]
fn what_is_true_before_the_line_must_be_true_after_it() {
    let looks = AtomicU64::new(0);
    let host = host(move |handle| {
        handle.expect_look().returning(|| Ok(process(100, "t2t-decoder")));
        handle.expect_held().returning(move |_| {
            let gone = looks.fetch_add(1, Ordering::Relaxed) > 0;
            Ok(if gone { vec![] } else { context(&process(100, ""), &[0]).held })
        });
    });
    let (journal, lines) = journal();
    let report = run(&host, &backend(0), &journal, vec![]);
    assert_eq!(report.actions[0].outcome, Outcome::LetGo);
    let lines = lines.lock().unwrap();
    assert!(lines[0].contains("SIGTERM") && lines[1].contains("let-go"), "{lines:?}");
}

#[test]
fn an_outcome_that_cannot_be_logged_stops_everything() {
    let host = host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
    });
    let mut journal = MockJournal::new();
    let lines = AtomicU64::new(0);
    journal.expect_append().returning(move |_| match lines.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Error::new(ErrorKind::Io, "append to the audit log")),
    });
    let report = run(&host, &backend(1), &journal, vec![]);
    assert!(report.stopped.is_some() && !report.is_complete());
}

#[test]
fn an_unanswered_question_is_no_end() {
    let host = host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(2).returning(|_, _| Ok(()));
        handle
            .expect_has_exited()
            .returning(|| Err(Error::new(ErrorKind::Io, "watch process 100")));
    });
    let report = run(&host, &backend(u64::MAX), &journal().0, vec![]);
    assert!(matches!(report.actions[0].outcome, Outcome::Survived { .. }), "{report:?}");
}

#[test]
fn the_grace_is_given_however_slow_the_log_is() {
    let (now, at) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (read, wall, slept, late) = (now.clone(), now.clone(), now.clone(), now.clone());
    let mut clock = MockClock::new();
    clock.expect_monotonic().returning(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    clock.expect_wall().returning(move || Timestamp(wall.load(Ordering::Relaxed)));
    clock.expect_sleep().returning(move |duration| {
        slept.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    });
    let mut journal = MockJournal::new();
    journal.expect_append().returning(move |_| {
        late.fetch_add(60_000, Ordering::Relaxed);
        Ok(())
    });
    let (sent, when) = (at.clone(), now.clone());
    let host = host(move |handle| {
        still_holding(handle);
        handle.expect_has_exited().returning(|| Ok(false));
        handle.expect_signal().returning(move |_, _| {
            sent.lock().unwrap().push(when.load(Ordering::Relaxed));
            Ok(())
        });
    });
    let backend = backend(u64::MAX);
    let guard = Guard::new(&host, vec![]).unwrap();
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::the_user_asked();
    execute(&ghost_plan(), &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let at = at.lock().unwrap();
    assert_eq!(at[1] - at[0], 60_000 + Request::GRACE.as_millis() as u64);
}

/// A plan for a group of two, and a host on which each is opened by its number.
fn group(primary_lets_go: bool) -> (Report, Vec<String>) {
    let member = |pid: u32| {
        let mut info = process(pid, "worker");
        info.group = Ok(Pid(100));
        info
    };
    let primary = member(100);
    let looks =
        [look(vec![device(0, 9000, 16_280)], vec![context(&primary, &[0])], vec![primary.clone()])];
    let everyone = [primary, member(101)];
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_processes().returning(move || {
        // Born after the plan was made.
        Ok(ProcessList { processes: vec![member(102)], unreadable: Unreadable::default() })
    });
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        handle.expect_look().returning(move || Ok(member(pid.0)));
        let minors: &[u32] = if primary_lets_go { &[] } else { &[0] };
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), minors).held));
        handle.expect_signal().returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let request = Request { scope: Scope::Group, ..Request::default() };
    let plan = plan(&looks, &diagnose(&looks), &everyone, &guard, &request);
    assert_eq!(plan.targets.len(), 2);
    let (clock, backend, (journal, lines)) = (clock(), backend(1), journal());
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::the_user_asked();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let lines = lines.lock().unwrap().clone();
    (report, lines)
}

#[test]
fn a_scope_is_spared_with_the_process_that_it_was_to_be_ended_for() {
    let (report, lines) = group(true);
    let outcomes: Vec<&Outcome> = report.actions.iter().map(|action| &action.outcome).collect();
    assert_eq!(outcomes, [&Outcome::LetGo, &Outcome::Spared]);
    assert!(!lines.iter().any(|line| line.contains("SIG")), "{lines:?}");
}

#[test]
fn who_is_born_into_a_scope_meanwhile_is_told() {
    let (report, _) = group(false);
    assert!(report.actions.iter().all(|action| action.signals == [Signal::Term]), "{report:?}");
    let why = Why::JoinedTheScope;
    assert_eq!(
        report.newcomers,
        Ok(vec![Newcomer { pid: Pid(102), name: Some("worker".into()), why }])
    );
    assert!(!report.is_complete());
}

#[test]
fn a_byte_of_somebody_elses_is_not_what_was_expected() {
    let host = host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
    });
    let looks = AtomicU64::new(0);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(|| Origin::Simulated("scene".into()));
    backend.expect_sample().returning(move |_| {
        let mib = if looks.fetch_add(1, Ordering::Relaxed) > 0 { 8999 } else { 9000 };
        device(0, mib, 16_280).sample.map_err(|_| unreachable!())
    });
    let report = run(&host, &backend, &journal().0, vec![]);
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(1)));
    assert!(!report.memory[0].came_back && !report.is_complete());
}

#[test]
fn who_cannot_be_checked_is_never_signalled() {
    let outcome =
        spared(|| Err(Error::new(ProcessFault::NotPermitted, "look at process 100")), true);
    assert!(matches!(outcome, Outcome::Failed { .. }));
    let gone = spared(|| Err(Error::new(ProcessFault::Gone, "look at process 100")), true);
    assert_eq!(gone, Outcome::AlreadyGone);
}

#[test]
fn who_is_protected_by_now_is_never_signalled() {
    let host = host(still_holding);
    let report = run(&host, &backend(0), &journal().0, vec![Protect::Pid(Pid(100))]);
    assert_eq!(report.actions[0].outcome, Outcome::Protected);
}

#[test]
fn a_survivor_is_named_with_its_state() {
    let host = host(|handle| {
        handle.expect_look().returning(|| {
            let mut info = process(100, "t2t-decoder");
            info.state = Ok(ProcessState::Uninterruptible);
            Ok(info)
        });
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
        handle.expect_signal().times(2).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(false));
    });
    let report = run(&host, &backend(u64::MAX), &journal().0, vec![]);
    let state = Ok(ProcessState::Uninterruptible);
    assert_eq!(report.actions[0].outcome, Outcome::Survived { state });
}

#[test]
fn a_plan_for_one_machine_is_not_carried_out_on_another() {
    // Neither host opens anything: a mock fails on a call that is not expected.
    for (devices, processes) in [
        (Origin::Simulated("scene".into()), Origin::Live),
        (Origin::Live, Origin::Live),
        (Origin::Pasted, Origin::Pasted),
    ] {
        let mut host = MockHost::new();
        host.expect_own_line().returning(|| Ok(vec![]));
        host.expect_origin().return_const(processes);
        let mut backend = MockGpuBackend::new();
        backend.expect_origin().return_const(devices);
        let report = run(&host, &backend, &journal().0, vec![]);
        assert!(report.stopped.is_some() && report.actions.is_empty());
    }
}

#[test]
fn what_a_supervisor_starts_again_is_told() {
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    let scans = AtomicU64::new(0);
    host.expect_holders().returning(move |_| {
        let again = scans.fetch_add(1, Ordering::Relaxed) > 0;
        let serving = process(if again { 200 } else { 100 }, "serve");
        Ok(HolderScan { holders: vec![context(&serving, &[0])], unreadable: Unreadable::default() })
    });
    host.expect_process().returning(|pid| Ok(process(pid.0, "serve")));
    host.expect_open().returning(|_| {
        let mut handle = MockProcessHandle::new();
        still_holding(&mut handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let report = run(&host, &backend(1), &journal().0, vec![]);
    assert!(report.memory[0].came_back);
    let why = Why::TookTheDevice;
    assert_eq!(
        report.newcomers,
        Ok(vec![Newcomer { pid: Pid(200), name: Some("serve".into()), why }])
    );
    assert!(!report.is_complete());
}

#[test]
fn who_asks_to_stop_stops_before_the_next_signal() {
    let host = host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(false));
    });
    let (clock, backend, (journal, lines)) = (clock(), backend(u64::MAX), journal());
    let guard = Guard::new(&host, vec![]).unwrap();
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let report =
        execute(
            &ghost_plan(),
            &guard,
            ports,
            &ActToken::the_user_asked(),
            &mut |event| match event {
                Event::WaitingForEnd(_, waited) if waited >= Duration::from_secs(1) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            },
        );
    assert_eq!(report.actions[0].signals, [Signal::Term]);
    assert_eq!(report.actions[0].outcome, Outcome::Unsettled);
    assert_eq!(report.stopped.unwrap().kind, ErrorKind::Interrupted);
    assert!(lines.lock().unwrap().last().unwrap().contains("unsettled"));
}

#[test]
fn a_scope_is_spared_when_what_it_is_for_cannot_be_opened() {
    let member = |pid: u32| {
        let mut info = process(pid, "worker");
        info.group = Ok(Pid(100));
        info
    };
    let primary = member(100);
    let looks =
        [look(vec![device(0, 9000, 16_280)], vec![context(&primary, &[0])], vec![primary.clone()])];
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    // No handle expects a signal: one, and the test fails.
    host.expect_open().returning(|pid| match pid.0 {
        100 => Err(Error::new(ProcessFault::Gone, "open process 100")),
        _ => Ok(Box::new(MockProcessHandle::new())),
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let request = Request { scope: Scope::Group, ..Request::default() };
    let plan = plan(&looks, &diagnose(&looks), &[primary, member(101)], &guard, &request);
    let (clock, backend, (journal, _)) = (clock(), backend(0), journal());
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::the_user_asked();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let outcomes: Vec<&Outcome> = report.actions.iter().map(|action| &action.outcome).collect();
    assert_eq!(outcomes, [&Outcome::AlreadyGone, &Outcome::Spared]);
}

#[test]
fn who_takes_another_device_is_no_newcomer() {
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    let scans = AtomicU64::new(0);
    host.expect_holders().returning(move |_| {
        let other = context(&process(300, "other"), &[1]);
        let new = scans.fetch_add(1, Ordering::Relaxed) > 0;
        let holders = if new { vec![other] } else { vec![] };
        Ok(HolderScan { holders, unreadable: Unreadable::default() })
    });
    host.expect_process().returning(|pid| Ok(process(pid.0, "other")));
    host.expect_open().returning(|_| {
        let mut handle = MockProcessHandle::new();
        still_holding(&mut handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let report = run(&host, &backend(1), &journal().0, vec![]);
    assert_eq!(report.newcomers, Ok(vec![]));
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn a_member_that_outlives_its_leader_is_killed_all_the_same() {
    let member = |pid: u32| {
        let mut info = process(pid, "worker");
        info.group = Ok(Pid(100));
        info
    };
    let primary = member(100);
    let looks =
        [look(vec![device(0, 9000, 16_280)], vec![context(&primary, &[0])], vec![primary.clone()])];
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_processes().returning(|| Ok(ProcessList::default()));
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        handle.expect_look().returning(move || Ok(member(pid.0)));
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
        let killed = Arc::new(AtomicU64::new(0));
        let dead = killed.clone();
        handle.expect_signal().returning(move |signal, _| {
            killed.fetch_add(u64::from(signal == Signal::Kill), Ordering::Relaxed);
            Ok(())
        });
        // The leader obeys SIGTERM, the other nothing but SIGKILL.
        handle
            .expect_has_exited()
            .returning(move || Ok(pid == Pid(100) || dead.load(Ordering::Relaxed) > 0));
        Ok(Box::new(handle))
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let request = Request { scope: Scope::Group, ..Request::default() };
    let plan = plan(&looks, &diagnose(&looks), &[primary, member(101)], &guard, &request);
    let (clock, backend, (journal, _)) = (clock(), backend(1), journal());
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::the_user_asked();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let signals: Vec<&[Signal]> = report.actions.iter().map(|a| &a.signals[..]).collect();
    assert_eq!(signals, [&[Signal::Term][..], &[Signal::Term, Signal::Kill]]);
}

#[test]
fn who_cannot_be_opened_is_told_and_written_down() {
    let mut host = MockHost::new();
    host.expect_own_line().returning(|| Ok(vec![]));
    host.expect_origin().returning(|| Origin::Simulated("scene".into()));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_open().returning(|pid| {
        Err(Error::new(ProcessFault::NotPermitted, format!("open process {pid}")))
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let (clock, backend, (journal, lines)) = (clock(), backend(u64::MAX), journal());
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let mut told = Vec::new();
    let token = ActToken::the_user_asked();
    let report = execute(&ghost_plan(), &guard, ports, &token, &mut |event| {
        if let Event::Settled(target, outcome) = event {
            told.push((target.key.pid, outcome.clone()));
        }
        ControlFlow::Continue(())
    });
    let [(pid, Outcome::Failed { why })] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*pid, why.kind), (Pid(100), ProcessFault::NotPermitted.into()));
    assert!(report.actions[0].signals.is_empty() && !report.is_complete());
    assert_eq!(lines.lock().unwrap().len(), 1);
}
