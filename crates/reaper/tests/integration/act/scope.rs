//! A whole scope, and the holder for which it is ended.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process of the group that process 100 leads.
fn member(pid: u32) -> ProcessInfo {
    ProcessInfo { group: Ok(Pid(100)), ..process(pid, "worker") }
}

/// The plan for a group of two, whose leader has the device.
fn group_plan(guard: &Guard) -> Plan {
    let leader = member(100);
    let holders = vec![context(&leader, &[0])];
    let snapshots = [snapshot_of(vec![device(0, 9000, 16_280)], holders, vec![leader.clone()])];
    let shell = process(2, "bash");
    let everyone = [leader, member(101), shell];
    let request = Request { scope: Scope::Group(&everyone), ..Request::default() };
    let plan = plan(&snapshots, &diagnose(&snapshots), guard, &request);
    assert_eq!(plan.targets.len(), 2);
    plan
}

/// Ends the group of two.
fn end_group(host: &MockHost, backend: &MockGpuBackend, journal: &MockJournal) -> Report {
    let guard = Guard::new(host, vec![]).unwrap();
    carry_out(&group_plan(&guard), &guard, host, backend, journal)
}

/// Ends the group of two on a host where each is opened by PID.
fn group(primary_lets_go: bool) -> (Report, Vec<String>) {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_process().returning(|pid| Ok(process(pid.0, "bash")));
    host.expect_processes().returning(move || {
        let zombie = ProcessInfo { state: Ok(ProcessState::Zombie), ..member(103) };
        // Process 102 was started after the plan was made.
        let processes = vec![member(101), member(102), zombie, process(104, "other")];
        Ok(ProcessList { processes, unreadable: Unreadable::default() })
    });
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        handle.expect_info().returning(move || Ok(member(pid.0)));
        let minors: &[u32] = if primary_lets_go { &[] } else { &[0] };
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), minors).held));
        handle.expect_signal().returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let (journal, lines) = journal();
    let report = end_group(&host, &backend(1), &journal);
    let lines = lines.lock().unwrap().clone();
    (report, lines)
}

#[test]
fn scope_is_spared_if_its_target_is_spared() {
    let (report, lines) = group(true);
    let outcomes: Vec<&Outcome> = report.actions.iter().map(|action| &action.outcome).collect();
    assert_eq!(outcomes, [&Outcome::LetGo, &Outcome::Spared]);
    assert!(!lines.iter().any(|line| line.contains("SIG")), "{lines:?}");
}

#[test]
fn process_joining_scope_is_reported() {
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
fn scope_is_spared_if_its_target_cannot_be_opened() {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_process().returning(|pid| Ok(process(pid.0, "bash")));
    // No handle expects a signal: a single one fails the test.
    host.expect_open().returning(|pid| match pid.0 {
        100 => Err(Error::new(ProcessFault::Gone, "open process 100")),
        _ => Ok(Box::new(MockProcessHandle::new())),
    });
    let report = end_group(&host, &backend(0), &journal().0);
    let outcomes: Vec<&Outcome> = report.actions.iter().map(|action| &action.outcome).collect();
    assert_eq!(outcomes, [&Outcome::AlreadyGone, &Outcome::Spared]);
}

#[test]
fn member_outliving_its_leader_is_killed() {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_process().returning(|pid| Ok(process(pid.0, "bash")));
    host.expect_processes().returning(|| Ok(ProcessList::default()));
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        handle.expect_info().returning(move || Ok(member(pid.0)));
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
        let killed = Arc::new(AtomicU64::new(0));
        let dead = killed.clone();
        handle.expect_signal().returning(move |signal, _| {
            killed.fetch_add(u64::from(signal == Signal::Kill), Ordering::Relaxed);
            Ok(())
        });
        // The leader exits on SIGTERM, the other only on SIGKILL.
        handle
            .expect_has_exited()
            .returning(move || Ok(pid == Pid(100) || dead.load(Ordering::Relaxed) > 0));
        Ok(Box::new(handle))
    });
    let report = end_group(&host, &backend(1), &journal().0);
    let signals: Vec<&[Signal]> = report.actions.iter().map(|a| &a.signals[..]).collect();
    assert_eq!(signals, [&[Signal::Term][..], &[Signal::Term, Signal::Kill]]);
}

#[test]
fn scope_is_spared_if_its_holder_releases_device() {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_process().returning(|pid| Ok(process(pid.0, "bash")));
    host.expect_processes().returning(|| Ok(ProcessList::default()));
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        let asked = Arc::new(AtomicU64::new(0));
        let reported = asked.clone();
        handle.expect_info().returning(move || Ok(member(pid.0)));
        handle.expect_held().returning(move |_| {
            let files = if reported.load(Ordering::Relaxed) > 0 { vec![] } else { vec![0] };
            Ok(context(&process(100, ""), &files).held)
        });
        handle.expect_signal().times(1).returning(move |_, _| {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        handle.expect_has_exited().returning(|| Ok(false));
        Ok(Box::new(handle))
    });
    let report = end_group(&host, &backend(u64::MAX), &journal().0);
    let outcomes: Vec<&Outcome> = report.actions.iter().map(|action| &action.outcome).collect();
    assert_eq!(outcomes, [&Outcome::LetGo, &Outcome::Spared]);
}

#[test]
fn member_turned_login_or_display_is_spared() {
    let login: fn(&mut ProcessInfo) = |info| {
        (info.session, info.has_terminal) = (Ok(info.key.pid), Ok(true));
    };
    let display: fn(&mut ProcessInfo) = |info| info.name = "Xorg".into();
    for (change, expected) in
        [(login, Outcome::LoginSession), (display, Outcome::RoleForbids { role: Role::Display })]
    {
        let mut host = bare_host();
        host.expect_holders().returning(|_| Ok(HolderScan::default()));
        host.expect_process().returning(|pid| Ok(process(pid.0, "bash")));
        host.expect_processes().returning(|| Ok(ProcessList::default()));
        host.expect_open().returning(move |pid| {
            let mut handle = MockProcessHandle::new();
            let mut info = member(pid.0);
            if pid == Pid(101) {
                change(&mut info);
            } else {
                handle.expect_signal().times(1).returning(|_, _| Ok(()));
                handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
                handle.expect_has_exited().returning(|| Ok(true));
            }
            handle.expect_info().returning(move || Ok(info.clone()));
            Ok(Box::new(handle))
        });
        let report = end_group(&host, &backend(1), &journal().0);
        assert_eq!(report.actions[1].outcome, expected);
    }
}

/// Ends the group of two, where the second member's parent is hidden; `adopted` is its parent from
/// the second snapshot on.
fn end_with_hidden_parent(fault: ProcessFault, adopted: u32) -> Report {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_process().returning(move |pid| match pid.0 {
        2 => Err(Error::new(fault, "inspect process 2")),
        pid => Ok(process(pid, "bash")),
    });
    host.expect_processes().returning(|| Ok(ProcessList::default()));
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        let mut parents = vec![Pid(adopted), Pid(2)];
        handle.expect_info().returning(move || {
            let parent = if parents.len() > 1 { parents.pop() } else { parents.first().copied() };
            Ok(ProcessInfo { parent: Ok(parent.unwrap()), ..member(pid.0) })
        });
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
        handle.expect_signal().returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    end_group(&host, &backend(1), &journal().0)
}

#[test]
fn member_with_unreadable_parent_is_not_signalled() {
    for fault in [ProcessFault::NotPermitted, ProcessFault::Gone] {
        let report = end_with_hidden_parent(fault, 2);
        let Outcome::Failed { why } = &report.actions[1].outcome else { panic!("{report:?}") };
        assert_eq!(why.text, "read the parent of process 101");
        assert!(report.actions[1].signals.is_empty());
    }
}

#[test]
fn reparented_member_is_judged_by_new_parent() {
    for adopted in [1, 7] {
        let report = end_with_hidden_parent(ProcessFault::Gone, adopted);
        assert_eq!(report.actions[1].signals, [Signal::Term], "{report:?}");
    }
}

#[test]
fn hidden_init_is_not_a_login_service() {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    let hidden = || Error::new(ProcessFault::NotPermitted, "inspect process 1");
    host.expect_process().returning(move |_| Err(hidden()));
    host.expect_processes().returning(|| Ok(ProcessList::default()));
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        let orphan = ProcessInfo { parent: Ok(Pid(1)), ..member(pid.0) };
        handle.expect_info().returning(move || Ok(orphan.clone()));
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
        handle.expect_signal().returning(|_, _| Ok(()));
        handle.expect_has_exited().returning(|| Ok(true));
        Ok(Box::new(handle))
    });
    let report = end_group(&host, &backend(1), &journal().0);
    assert!(report.actions.iter().all(|action| action.signals == [Signal::Term]), "{report:?}");
}

#[test]
fn scope_is_spared_if_its_holder_exits_first() {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    host.expect_process().returning(|pid| Ok(process(pid.0, "bash")));
    host.expect_processes().returning(|| Ok(ProcessList::default()));
    host.expect_open().returning(move |pid| {
        let mut handle = MockProcessHandle::new();
        handle.expect_info().returning(move || Ok(member(pid.0)));
        handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[0]).held));
        if pid == Pid(100) {
            let gone = || Err(Error::new(ProcessFault::Gone, "signal process 100"));
            handle.expect_signal().times(1).returning(move |_, _| gone());
        }
        Ok(Box::new(handle))
    });
    let report = end_group(&host, &backend(0), &journal().0);
    let outcomes: Vec<&Outcome> = report.actions.iter().map(|action| &action.outcome).collect();
    assert_eq!(outcomes, [&Outcome::AlreadyGone, &Outcome::Spared]);
}
