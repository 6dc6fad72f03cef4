//! The end of a tree: whom the plan names, and that nobody outside of the tree is signalled.

mod scene;

use gpu_core::*;
use gpu_reaper::*;
use scene::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ORIGIN: fn() -> Origin = || Origin::Simulated("scene".into());

fn child(pid: u32, parent: u32) -> ProcessInfo {
    ProcessInfo { parent: Ok(Pid(parent)), ..process(pid, &format!("p{pid}")) }
}

/// A machine with these processes, of which each ends by its first signal.
fn host(processes: Vec<ProcessInfo>, signalled: &Arc<Mutex<Vec<u32>>>) -> MockHost {
    let all: BTreeMap<Pid, ProcessInfo> =
        processes.into_iter().map(|info| (info.key.pid, info)).collect();
    let mut host = MockHost::new();
    let find = move |pid: Pid| {
        all.get(&pid).cloned().ok_or_else(|| Error::new(ProcessFault::Gone, "look at a process"))
    };
    let opened = find.clone();
    host.expect_origin().returning(ORIGIN);
    host.expect_own_line().returning(|| Ok(vec![process(50, "gpuws").key]));
    host.expect_device_files().returning(|| Ok(vec![]));
    host.expect_process().returning(find);
    let signalled = signalled.clone();
    host.expect_open().returning(move |pid| {
        let info = opened(pid)?;
        let sent = signalled.clone();
        let gone = signalled.clone();
        let mut handle = MockProcessHandle::new();
        handle.expect_look().returning(move || Ok(info.clone()));
        handle.expect_signal().returning(move |_, _| {
            sent.lock().unwrap().push(pid.0);
            Ok(())
        });
        handle.expect_has_exited().returning(move || Ok(gone.lock().unwrap().contains(&pid.0)));
        Ok(Box::new(handle))
    });
    host
}

/// Ends these members of the tree of process 50, and returns who was signalled.
fn end(members: &[ProcessInfo], seen: Vec<ProcessInfo>) -> (Report, Vec<u32>, Duration) {
    let signalled = Arc::new(Mutex::new(Vec::new()));
    let host = host(seen, &signalled);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(ORIGIN);
    let mut journal = MockJournal::new();
    journal.expect_append().returning(|line| {
        assert!(line.contains(r#""membership":{"descends":{"pid":50,"#), "{line}");
        Ok(())
    });
    let now = Arc::new(AtomicU64::new(0));
    let (read, passed) = (now.clone(), now.clone());
    let mut clock = MockClock::new();
    clock.expect_monotonic().returning(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    clock.expect_wall().returning(|| Timestamp(0));
    clock.expect_sleep().returning(move |duration| {
        passed.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    });
    let guard = Guard::new(&host, vec![]).unwrap();
    let root = process(50, "gpuws").key;
    let plan = plan_tree(root, members, "test", ORIGIN(), &guard, Duration::from_secs(10));
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let token = ActToken::the_user_asked();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    let signalled = signalled.lock().unwrap().clone();
    (report, signalled, Duration::from_millis(now.load(Ordering::Relaxed)))
}

#[test]
fn a_tree_is_ended_without_waiting_for_anybody_who_might_start_it_again() {
    let tree = [child(51, 50), child(52, 51)];
    let seen = [&tree[..], &[process(50, "gpuws")]].concat();
    let (report, signalled, waited) = end(&tree, seen);
    assert_eq!(signalled, [51, 52]);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(waited, Duration::ZERO);
}

#[test]
fn a_display_server_of_the_job_is_the_jobs_own() {
    let server = ProcessInfo { name: "Xorg".into(), ..child(51, 50) };
    let seen = vec![server.clone(), process(50, "gpuws")];
    let (_, signalled, _) = end(&[server], seen);
    assert_eq!(signalled, [51]);
}

#[test]
fn who_does_not_descend_from_the_root_is_never_signalled() {
    let reused = ProcessInfo {
        key: ProcessKey { pid: Pid(50), start: Some(StartTime(7)) },
        ..process(50, "gpuws")
    };
    for (case, seen) in [
        ("a child of somebody else", vec![child(51, 2), process(2, "bash"), process(50, "gpuws")]),
        ("a child of a root that is another by now", vec![child(51, 50), reused]),
        ("a child of one who is gone", vec![child(51, 60), process(50, "gpuws")]),
        ("a line that goes round", vec![child(51, 52), child(52, 51), process(50, "gpuws")]),
    ] {
        let (report, signalled, _) = end(&[child(51, 50)], seen);
        assert_eq!(signalled, [0u32; 0], "{case}");
        assert_eq!(report.actions[0].outcome, Outcome::LetGo, "{case}");
    }
}

#[test]
fn the_root_itself_and_those_above_it_are_refused() {
    let (report, signalled, _) = end(&[process(50, "gpuws")], vec![process(50, "gpuws")]);
    assert_eq!((report.actions.len(), signalled.len()), (0, 0));
}
