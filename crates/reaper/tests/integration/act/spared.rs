//! Processes that are never signalled.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use mockall::predicate::always;

/// The handle has no `signal` expectation: a single signal fails the test.
fn spared(now: impl Fn() -> Result<ProcessInfo> + Send + 'static, holds: bool) -> Outcome {
    spared_holding(now, if holds { &[0] } else { &[] })
}

fn spared_holding(
    now: impl Fn() -> Result<ProcessInfo> + Send + 'static,
    minors: &'static [u32],
) -> Outcome {
    let host = host(move |handle| {
        handle.expect_info().returning(now);
        let held = context(&process(100, ""), minors).held;
        handle.expect_held().with(always()).returning(move |_| Ok(held.clone()));
    });
    let mut report = run(&host, &backend(0), &journal().0, vec![]);
    report.actions.remove(0).outcome
}

#[test]
fn reused_pid_is_never_signalled() {
    let mut other = process(100, "t2t-decoder");
    other.key.start = Some(StartTime(77));
    assert_eq!(spared(move || Ok(other.clone()), true), Outcome::NotTheSame);
}

#[test]
fn changed_or_unknown_user_is_never_signalled() {
    for uid in [Ok(0), Err(Absent::NotPermitted)] {
        let mut other = process(100, "t2t-decoder");
        other.uid = uid;
        assert_eq!(spared(move || Ok(other.clone()), true), Outcome::NotTheSame);
    }
}

#[test]
fn process_after_releasing_device_is_never_signalled() {
    assert_eq!(spared(|| Ok(process(100, "t2t-decoder")), false), Outcome::LetGo);
}

#[test]
fn holding_other_device_does_not_count() {
    // It has nvidia1, nvidiactl and nvidia-uvm; the plan was for nvidia0.
    assert_eq!(spared_holding(|| Ok(process(100, "t2t-decoder")), &[1]), Outcome::LetGo);
}

#[test]
fn uncheckable_process_is_never_signalled() {
    let outcome =
        spared(|| Err(Error::new(ProcessFault::NotPermitted, "inspect process 100")), true);
    assert!(matches!(outcome, Outcome::Failed { .. }));
    let gone = spared(|| Err(Error::new(ProcessFault::Gone, "inspect process 100")), true);
    assert_eq!(gone, Outcome::AlreadyGone);
}

#[test]
fn newly_protected_process_is_never_signalled() {
    let host = host(still_holding);
    let report = run(&host, &backend(0), &journal().0, vec![Protect::Pid(Pid(100))]);
    assert_eq!(report.actions[0].outcome, Outcome::Protected);
}

#[test]
fn plan_is_not_executed_on_another_machine() {
    // Neither host opens anything: a mock fails on an unexpected call.
    for (devices, processes) in [
        (Origin::Simulated("scene".into()), Origin::Live),
        (Origin::Live, Origin::Live),
        (Origin::Pasted, Origin::Pasted),
    ] {
        let mut host = MockHost::new();
        host.expect_own_ancestry().returning(|| Ok(vec![]));
        host.expect_origin().return_const(processes);
        let mut backend = MockGpuBackend::new();
        backend.expect_origin().return_const(devices);
        let report = run(&host, &backend, &journal().0, vec![]);
        assert!(report.stopped.is_some() && report.actions.is_empty());
    }
}

#[test]
fn process_of_unknown_user_is_never_signalled() {
    let unknown = || ProcessInfo { uid: Err(Absent::NotPermitted), ..process(100, "t2t-decoder") };
    let host = host(move |handle| {
        handle.expect_info().returning(move || Ok(unknown()));
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let report = carry_out(&plan_for(unknown()), &guard, &host, &backend(u64::MAX), &journal().0);
    assert_eq!(report.actions[0].outcome, Outcome::NotTheSame);
}
