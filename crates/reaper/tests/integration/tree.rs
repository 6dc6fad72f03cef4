//! The end of a tree: the targets of the plan, and that no process outside the tree is signalled.

use crate::fixture::ports::*;
use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn child(pid: u32, parent: u32) -> ProcessInfo {
    ProcessInfo { parent: Ok(Pid(parent)), ..process(pid, &format!("p{pid}")) }
}

/// A machine with these processes, each of which ends on its first signal.
fn host(processes: Vec<ProcessInfo>, signalled: &Arc<Mutex<Vec<u32>>>) -> MockHost {
    let all: BTreeMap<Pid, ProcessInfo> =
        processes.into_iter().map(|info| (info.key.pid, info)).collect();
    let mut host = MockHost::new();
    let find = move |pid: Pid| {
        all.get(&pid).cloned().ok_or_else(|| Error::new(ProcessFault::Gone, "inspect a process"))
    };
    let opened = find.clone();
    host.expect_origin().returning(origin);
    host.expect_own_ancestry().returning(|| Ok(vec![process(50, "gpuws").key]));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_process().returning(find);
    let signalled = signalled.clone();
    host.expect_open().returning(move |pid| {
        let info = opened(pid)?;
        let sent = signalled.clone();
        let gone = signalled.clone();
        let mut handle = MockProcessHandle::new();
        handle.expect_info().returning(move || Ok(info.clone()));
        handle.expect_signal().returning(move |_, _| {
            sent.lock().unwrap().push(pid.0);
            Ok(())
        });
        handle.expect_has_exited().returning(move || Ok(gone.lock().unwrap().contains(&pid.0)));
        Ok(Box::new(handle))
    });
    host
}

/// Ends these members of the tree of process 50, and returns the signalled ones.
fn end(members: &[ProcessInfo], seen: Vec<ProcessInfo>) -> (Report, Vec<u32>, Duration) {
    let signalled = Arc::new(Mutex::new(Vec::new()));
    let host = host(seen, &signalled);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let mut journal = MockJournal::new();
    journal.expect_append().returning(|line| {
        assert!(line.contains(r#""membership":{"descends":{"pid":50,"#), "{line}");
        Ok(())
    });
    let clock = clock();
    let guard = Guard::new(&host, vec![]).unwrap();
    let root = process(50, "gpuws").key;
    let plan = plan_tree(root, members, "test", origin(), &guard, Duration::from_secs(10));
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::user_confirmed();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let signalled = signalled.lock().unwrap().clone();
    (report, signalled, clock.monotonic())
}

#[test]
fn tree_is_ended_without_waiting_for_respawns() {
    let tree = [child(51, 50), child(52, 51)];
    let seen = [&tree[..], &[process(50, "gpuws")]].concat();
    let (report, signalled, waited) = end(&tree, seen);
    assert_eq!(signalled, [51, 52]);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(waited, Duration::ZERO);
}

#[test]
fn grace_period_is_taken_from_the_order() {
    let guard = Guard::new(&bare_host(), vec![]).unwrap();
    let root = process(50, "gpuws").key;
    let grace = Duration::from_secs(7);
    assert_eq!(plan_tree(root, &[child(51, 50)], "test", origin(), &guard, grace).grace, grace);
}

#[test]
fn display_server_in_job_is_ended_with_it() {
    let server = ProcessInfo { name: "Xorg".into(), ..child(51, 50) };
    let seen = vec![server.clone(), process(50, "gpuws")];
    let (_, signalled, _) = end(&[server], seen);
    assert_eq!(signalled, [51]);
}

#[test]
fn non_descendant_is_never_signalled() {
    let reused = ProcessInfo {
        key: ProcessKey { pid: Pid(50), start: Some(StartTime(7)) },
        ..process(50, "gpuws")
    };
    for (case, seen) in [
        ("a child of somebody else", vec![child(51, 2), process(2, "bash"), process(50, "gpuws")]),
        ("a child of a root that is another by now", vec![child(51, 50), reused]),
        ("a child of a process that is gone", vec![child(51, 60), process(50, "gpuws")]),
        ("a line that goes round", vec![child(51, 52), child(52, 51), process(50, "gpuws")]),
    ] {
        let (report, signalled, _) = end(&[child(51, 50)], seen);
        assert_eq!(signalled, [0u32; 0], "{case}");
        assert_eq!(report.actions[0].outcome, Outcome::LetGo, "{case}");
    }
}

#[test]
fn root_and_its_ancestors_are_refused() {
    let (report, signalled, _) = end(&[process(50, "gpuws")], vec![process(50, "gpuws")]);
    assert_eq!((report.actions.len(), signalled.len()), (0, 0));
}

/// A tree whose scans return these lists in turn, and then none. Its top can be killed if
/// configured.
#[derive(Default)]
struct Falls {
    scans: Mutex<std::vec::IntoIter<Vec<ProcessInfo>>>,
    count: AtomicU64,
    killed_tree: Option<KilledTree>,
}

impl ProcessTree for Falls {
    fn members(&self) -> Result<Vec<ProcessInfo>> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(self.scans.lock().unwrap().next().unwrap_or_default())
    }

    fn kill_tree(&self, _: Duration, _: &ActToken) -> Result<KilledTree> {
        self.killed_tree.clone().ok_or_else(|| Error::new(ErrorKind::Unsupported, "fell a tree"))
    }
}

/// Sweeps the tree of process 50, whose scans return these lists in turn, and then none.
fn swept(
    scans: Vec<Vec<ProcessInfo>>,
    seen: Vec<ProcessInfo>,
    killed_tree: Option<KilledTree>,
    journal: &MockJournal,
) -> (Swept, Vec<u32>, usize) {
    let signalled = Arc::new(Mutex::new(Vec::new()));
    let host = host(seen, &signalled);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let clock = clock();
    let guard = Guard::new(&host, vec![]).unwrap();
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal };
    let falls = Falls { scans: Mutex::new(scans.into_iter()), killed_tree, ..Falls::default() };
    let root = process(50, "gpuws").key;
    let token = ActToken::user_confirmed();
    let swept = sweep(root, "test", &guard, ports, &token, &falls);
    let signalled = signalled.lock().unwrap().clone();
    (swept, signalled, falls.count.load(Ordering::Relaxed) as usize)
}

fn full() -> MockJournal {
    let mut journal = MockJournal::new();
    journal.expect_append().returning(|_| Err(Error::new(ErrorKind::Io, "write journal")));
    journal
}

#[test]
fn sweep_repeats_until_several_empty_scans() {
    let chain: Vec<_> = (60..70).map(|pid| child(pid, 50)).collect();
    let mut scans: Vec<Vec<_>> = chain.iter().map(|info| vec![info.clone()]).collect();
    // Between two of them a scan finds none.
    scans.insert(4, Vec::new());
    scans.insert(5, Vec::new());
    let seen = [&chain[..], &[process(50, "gpuws")]].concat();
    let (journal, lines) = journal();
    let (swept, signalled, scans) = swept(scans, seen, None, &journal);
    assert_eq!(signalled, (60..70).collect::<Vec<u32>>());
    assert_eq!(scans, 12 + 3);
    assert!(swept.stopped.is_none() && swept.unwritten.is_none(), "{swept:?}");
    assert!(swept.actions.iter().all(|action| action.outcome.is_gone()), "{swept:?}");
    let lines = lines.lock().unwrap();
    let signals = lines.iter().filter(|line| line.contains(r#""signal":"SIGKILL""#)).count();
    assert_eq!((signals, lines.len()), (10, 20));
}

#[test]
fn killed_tree_is_rescanned_and_logged() {
    let killed = (60..63).map(|pid| (child(pid, 50), Duration::from_millis(7))).collect();
    let (journal, lines) = journal();
    let killed_tree = KilledTree { killed, none_left: true };
    let (swept, signalled, scans) = swept(vec![], vec![], Some(killed_tree), &journal);
    assert_eq!((signalled.len(), scans), (0, 1));
    assert!(swept.stopped.is_none(), "{swept:?}");
    let ended = Outcome::Ended { after_ms: 7 };
    assert!(swept.actions.iter().all(|action| action.outcome == ended), "{swept:?}");
    assert_eq!((swept.actions.len(), lines.lock().unwrap().len()), (3, 6));
}

#[test]
fn sweep_kills_only_tree_members() {
    let server = ProcessInfo { parent: Ok(Pid(2)), ..process(51, "server") };
    let seen = vec![server, process(2, "bash"), process(50, "gpuws")];
    let (swept, signalled, _) = swept(vec![vec![child(51, 50)]], seen, None, &full());
    assert!(signalled.is_empty() && swept.actions.is_empty(), "{swept:?}");
}

#[test]
fn endless_sweep_is_abandoned() {
    let worker = child(51, 50);
    let seen = vec![worker.clone(), process(50, "gpuws")];
    let (swept, signalled, _) = swept(vec![vec![worker]; 10_000], seen, None, &full());
    assert_eq!(signalled, [51], "once");
    assert!(swept.stopped.is_some() && swept.unwritten.is_some(), "{swept:?}");
}

#[test]
fn unwritable_audit_log_does_not_stop_sweep() {
    let worker = child(51, 50);
    let signalled = Arc::new(Mutex::new(Vec::new()));
    let host = host(vec![worker.clone(), process(50, "gpuws")], &signalled);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let (clock, journal) = (clock(), full());
    let guard = Guard::new(&host, vec![]).unwrap();
    let root = process(50, "gpuws").key;
    let plan = plan_tree(root, &[worker], "test", origin(), &guard, Duration::from_secs(10));
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::user_confirmed();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    assert_eq!(*signalled.lock().unwrap(), [51]);
    assert!(report.stopped.is_none() && report.actions[0].outcome.is_gone(), "{report:?}");
    assert_eq!(report.unwritten.map(|fault| fault.text), Some("write journal".into()));
}
