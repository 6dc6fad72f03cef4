//! Who is never signalled.

use crate::stage::*;
use gpu_core::*;
use gpu_reaper::*;
use mockall::predicate::always;

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
fn user_who_is_unknown_then_and_now_is_never_signalled() {
    let unknown = || ProcessInfo { uid: Err(Absent::NotPermitted), ..process(100, "t2t-decoder") };
    let host = host(move |handle| {
        handle.expect_look().returning(move || Ok(unknown()));
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let report = carry_out(&plan_for(unknown()), &guard, &host, &backend(u64::MAX), &journal().0);
    assert_eq!(report.actions[0].outcome, Outcome::NotTheSame);
}
