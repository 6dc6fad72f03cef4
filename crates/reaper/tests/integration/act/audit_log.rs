//! Every signal is logged before it is sent.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn no_signal_without_audit_log() {
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

#[test]
fn target_is_rechecked_after_audit_line() {
    let queries = AtomicU64::new(0);
    let host = host(move |handle| {
        handle.expect_info().returning(|| Ok(process(100, "t2t-decoder")));
        handle.expect_held().returning(move |_| {
            let gone = queries.fetch_add(1, Ordering::Relaxed) > 0;
            Ok(if gone { vec![] } else { context(&process(100, ""), &[0]).held })
        });
    });
    let (journal, lines) = journal();
    let report = run(&host, &backend(0), &journal, vec![]);
    assert_eq!(report.actions[0].outcome, Outcome::LetGo);
    let lines = lines.lock().unwrap();
    assert!(lines[0].contains(r#""machine":"simulated machine scene""#), "{lines:?}");
    assert!(lines[0].contains("SIGTERM") && lines[1].contains("let-go"), "{lines:?}");
}

#[test]
fn unloggable_outcome_stops_the_act() {
    let host = host(obedient);
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
fn unopenable_target_is_reported_and_logged() {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_open().returning(|pid| {
        Err(Error::new(ProcessFault::NotPermitted, format!("open process {pid}")))
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let (clock, backend, (journal, lines)) = (clock(), backend(u64::MAX), journal());
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let mut reported = Vec::new();
    let token = ActToken::user_confirmed();
    let report = execute(&ghost_plan(), &guard, ports, &token, &mut |event| {
        if let Event::Settled(target, outcome) = event {
            reported.push((target.key.pid, outcome.clone()));
        }
        ControlFlow::Continue(())
    });
    let [(pid, Outcome::Failed { why })] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((*pid, why.kind), (Pid(100), ProcessFault::NotPermitted.into()));
    assert!(report.actions[0].signals.is_empty() && !report.is_complete());
    assert_eq!(lines.lock().unwrap().len(), 1);
}
