//! The steps of an execution, and the verification after the last.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn sigkill_follows_sigterm_and_result_is_verified() {
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
fn without_a_grace_period_sigkill_is_the_first_signal() {
    let host = host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
    });
    let plan = Plan { grace: Duration::ZERO, ..ghost_plan() };
    let guard = Guard::new(&host, vec![]).unwrap();
    let report = carry_out(&plan, &guard, &host, &backend(4), &journal().0);
    assert_eq!(report.actions[0].signals, [Signal::Kill]);
}

#[test]
fn remaining_memory_is_not_reported_freed() {
    let host = host(obedient);
    let report = run(&host, &backend(u64::MAX), &journal().0, vec![]);
    assert_eq!(report.memory[0].freed, Some(Bytes(0)));
    assert!(!report.memory[0].came_back && !report.is_complete());
}

#[test]
fn memory_freed_by_others_does_not_complete_the_plan() {
    let host = host(obedient);
    let queries = AtomicU64::new(0);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    backend.expect_processes().returning(|_| Ok(vec![]));
    backend.expect_sample().returning(move |_| {
        let mib = if queries.fetch_add(1, Ordering::Relaxed) > 1 { 8999 } else { 9000 };
        device(0, mib, 16_280).sample.map_err(|_| unreachable!())
    });
    let report = run(&host, &backend, &journal().0, vec![]);
    assert_eq!(report.memory[0].freed, Some(Bytes::from_mib(1)));
    assert!(!report.memory[0].came_back && !report.is_complete());
}

#[test]
fn failed_exit_check_does_not_count_as_exit() {
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
fn survivor_is_reported_with_its_state() {
    let host = host(|handle| {
        handle.expect_info().returning(|| {
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
fn grace_period_is_kept_with_slow_audit_log() {
    let (now, at) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (clock, late) = (clock_at(&now), now.clone());
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
    let token = ActToken::user_confirmed();
    execute(&ghost_plan(), &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let at = at.lock().unwrap();
    assert_eq!(at[1] - at[0], 60_000 + Request::GRACE.as_millis() as u64);
}

/// Carries out the plan for the ghost until a matching event, and returns the report and the audit
/// lines.
fn stopped_at(host: &MockHost, mut is_it: impl FnMut(Event<'_>) -> bool) -> (Report, Vec<String>) {
    let (clock, backend, (journal, lines)) = (clock(), backend(u64::MAX), journal());
    let guard = Guard::new(host, vec![]).unwrap();
    let ports = Ports { backend: &backend, host, clock: &clock, journal: &journal };
    let token = ActToken::user_confirmed();
    let report = execute(&ghost_plan(), &guard, ports, &token, &mut |event| {
        if is_it(event) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(report.stopped.as_ref().unwrap().kind, ErrorKind::Interrupted);
    let lines = lines.lock().unwrap().clone();
    (report, lines)
}

/// A host whose process ignores the one signal that it gets.
fn with_deaf_process() -> MockHost {
    host(|handle| {
        still_holding(handle);
        handle.expect_signal().times(1).returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(false));
    })
}

/// Returns a function that is true for the nth event about this signal.
fn nth_question(signal: Signal, nth: u32) -> impl FnMut(Event<'_>) -> bool {
    let mut asked = 0;
    move |event| {
        let is_about = matches!(event, Event::Signalling(_, of) if of == signal);
        asked += u32::from(is_about);
        is_about && asked == nth
    }
}

#[test]
fn interrupt_stops_before_next_signal() {
    let (report, lines) = stopped_at(
        &with_deaf_process(),
        |event| matches!(event, Event::WaitingForEnd(_, waited) if waited >= Duration::from_secs(1)),
    );
    assert_eq!(report.actions[0].signals, [Signal::Term]);
    assert_eq!(report.actions[0].outcome, Outcome::Unsettled);
    assert!(lines.last().unwrap().contains("unsettled"));
}

#[test]
fn interrupt_before_first_signal_prevents_it() {
    for (nth, logged) in [(1, &[][..]), (2, &["SIGTERM", "not-reached"])] {
        let (report, lines) = stopped_at(&host(still_holding), nth_question(Signal::Term, nth));
        assert!(report.actions[0].signals.is_empty());
        assert_eq!(report.actions[0].outcome, Outcome::NotReached);
        assert_eq!(lines.len(), logged.len(), "{lines:?}");
        assert!(lines.iter().zip(logged).all(|(line, word)| line.contains(word)), "{lines:?}");
    }
}

#[test]
fn interrupt_before_kill_leaves_target_unsettled() {
    let (report, lines) = stopped_at(&with_deaf_process(), nth_question(Signal::Kill, 2));
    assert_eq!(report.actions[0].signals, [Signal::Term]);
    assert_eq!(report.actions[0].outcome, Outcome::Unsettled);
    let words = ["SIGTERM", "SIGKILL", "unsettled"];
    assert_eq!(lines.len(), words.len(), "{lines:?}");
    assert!(lines.iter().zip(words).all(|(line, word)| line.contains(word)), "{lines:?}");
}
