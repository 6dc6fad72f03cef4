//! Each target is checked again before each signal: SIGTERM goes to the planned process, and its
//! state after SIGTERM determines whether SIGKILL follows.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A process that runs an executable of root, by inode.
fn running(path: &str, ino: u64) -> ProcessInfo {
    let program = Executable {
        path: path.into(),
        file: FileId::Inode { dev: 1, ino },
        owner: 0,
        writable_by_others: false,
        seen_by_caller: Ok(true),
    };
    ProcessInfo { executable: Ok(Box::new(program)), ..process(100, "python3") }
}

fn python() -> ProcessInfo {
    running("/usr/bin/python3", 1)
}

fn using() -> Vec<HeldFile> {
    context(&process(100, ""), &[0]).held
}

/// The device is only open.
fn monitoring() -> Vec<HeldFile> {
    holder(&process(100, ""), &[("/dev/nvidia0", "F....")]).held
}

/// Ends `planned`, which becomes `then` with these files after SIGTERM.
fn ended_by(
    backend: &MockGpuBackend,
    planned: ProcessInfo,
    then: ProcessInfo,
    files: impl Fn() -> Vec<HeldFile> + Clone + Send + Sync + 'static,
) -> Action {
    let now = planned.clone();
    let mut host = host(move |handle| {
        let asked = Arc::new(AtomicBool::new(false));
        let (info_asked, held, signal) = (asked.clone(), asked.clone(), asked);
        handle.expect_info().returning(move || {
            Ok(if info_asked.load(Ordering::Relaxed) { then.clone() } else { now.clone() })
        });
        let files = files.clone();
        handle
            .expect_held()
            .returning(move |_| Ok(if held.load(Ordering::Relaxed) { files() } else { using() }));
        handle.expect_signal().returning(move |_, _| {
            signal.store(true, Ordering::Relaxed);
            Ok(())
        });
        handle.expect_has_exited().returning(|| Ok(false));
    });
    host.expect_process().returning(|pid| Ok(process(pid.0, "python")));
    let guard = Guard::new(&host, vec![]).unwrap();
    let mut report = carry_out(&plan_for(planned), &guard, &host, backend, &journal().0);
    report.actions.remove(0)
}

fn becoming(then: ProcessInfo, files: fn() -> Vec<HeldFile>) -> Action {
    ended_by(&backend(u64::MAX), python(), then, files)
}

/// Asserts that it got SIGTERM and no SIGKILL.
#[track_caller]
fn assert_spared(action: &Action, outcome: &Outcome) {
    assert_eq!(action.signals, [Signal::Term], "{action:?}");
    assert_eq!(&action.outcome, outcome);
}

#[track_caller]
fn assert_killed(action: &Action) {
    assert_eq!(action.signals, [Signal::Term, Signal::Kill], "{action:?}");
}

#[test]
fn process_turned_monitor_is_not_killed() {
    let monitor = Outcome::RoleForbids { role: Role::Monitor };
    assert_spared(&becoming(python(), monitoring), &monitor);
}

/// A driver that lists the process.
fn listing_driver() -> MockGpuBackend {
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    backend.expect_devices().returning(|| Ok(vec![device(0, 0, 0).info]));
    backend
        .expect_sample()
        .returning(|_| device(0, 9000, 16_280).sample.map_err(|_| unreachable!()));
    backend
        .expect_processes()
        .returning(|_| Ok(listing(device(0, 0, 0), 100, 8975).processes.unwrap()));
    backend
}

#[test]
fn process_still_listed_by_driver_is_not_a_monitor() {
    assert_killed(&ended_by(&listing_driver(), python(), python(), monitoring));
}

#[test]
fn process_closing_device_during_driver_call_is_not_killed() {
    let was_read = Arc::new(AtomicBool::new(false));
    let files =
        move || if was_read.swap(true, Ordering::Relaxed) { Vec::new() } else { monitoring() };
    assert_spared(&ended_by(&listing_driver(), python(), python(), files), &Outcome::LetGo);
}

#[test]
fn process_is_not_killed_if_process_list_is_unreadable() {
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    backend.expect_devices().returning(|| Ok(vec![device(0, 0, 0).info]));
    backend
        .expect_sample()
        .returning(|_| device(0, 9000, 16_280).sample.map_err(|_| unreachable!()));
    backend
        .expect_processes()
        .returning(|_| Err(Error::new(DeviceFault::Lost, "list the processes of GPU 0")));
    let action = ended_by(&backend, python(), python(), monitoring);
    assert_eq!(action.signals, [Signal::Term]);
    assert!(matches!(action.outcome, Outcome::Failed { .. }), "{action:?}");
}

#[test]
fn process_with_changed_executable_is_not_killed() {
    let daemon = running("/usr/bin/nvidia-persistenced", 2);
    assert_spared(&becoming(daemon, using), &Outcome::AnotherProgram);
    let unknown = process(100, "python3");
    let known = ended_by(&backend(u64::MAX), unknown, python(), using);
    assert_spared(&known, &Outcome::AnotherProgram);
}

#[test]
fn process_with_hidden_executable_is_not_killed() {
    let hidden = ProcessInfo { executable: Err(Absent::NotPermitted), ..python() };
    let action = becoming(hidden, using);
    assert_eq!(action.signals, [Signal::Term]);
    let Outcome::Failed { why } = &action.outcome else { panic!("{action:?}") };
    assert_eq!(why.kind, ProcessFault::NotPermitted.into());
}

#[test]
fn process_with_ended_main_thread_is_killed() {
    let zombie = ProcessInfo { executable: Err(Absent::NotFound), ..python() };
    assert_killed(&becoming(zombie, using));
}

#[test]
fn renamed_process_is_still_killed() {
    for name in ["Xorg", "nvidia-persiste", "nvidia-cuda-mps"] {
        let renamed = ProcessInfo { name: name.into(), ..python() };
        assert_killed(&becoming(renamed, using));
        let root = |name: &str| ProcessInfo { uid: Ok(0), name: name.into(), ..python() };
        assert_killed(&ended_by(&backend(u64::MAX), root("python3"), root(name), using));
    }
}

#[test]
fn root_service_name_is_spared_if_executable_is_unknown() {
    let root = |name: &str| ProcessInfo { uid: Ok(0), ..process(100, name) };
    let action = ended_by(&backend(u64::MAX), root("python3"), root("Xorg"), using);
    assert_spared(&action, &Outcome::RoleForbids { role: Role::Display });
}

#[test]
fn process_with_changed_user_is_not_killed() {
    let root = ProcessInfo { uid: Ok(0), ..python() };
    assert_spared(&becoming(root, using), &Outcome::NotTheSame);
}

#[test]
fn process_ending_between_signals_was_ended_by_the_first() {
    let host = host(|handle| {
        let asked = Arc::new(AtomicBool::new(false));
        let (info_asked, signal) = (asked.clone(), asked);
        handle.expect_info().returning(move || {
            if info_asked.load(Ordering::Relaxed) {
                Err(Error::new(ProcessFault::Gone, "inspect process 100"))
            } else {
                Ok(process(100, "t2t-decoder"))
            }
        });
        handle.expect_held().returning(|_| Ok(using()));
        handle.expect_signal().times(1).returning(move |_, _| {
            signal.store(true, Ordering::Relaxed);
            Ok(())
        });
        handle.expect_has_exited().returning(|| Ok(false));
    });
    let report = run(&host, &backend(1), &journal().0, vec![]);
    assert_eq!(report.actions[0].signals, [Signal::Term]);
    assert!(report.actions[0].outcome.is_gone(), "{report:?}");
    assert_ne!(report.actions[0].outcome, Outcome::AlreadyGone);
}
