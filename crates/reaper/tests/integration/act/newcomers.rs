//! Processes that take the device after a target ended.

use crate::act::setup::*;
use gpu_core::*;
use gpu_reaper::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a process; `holders` are those of the first snapshot and, if given, of a later one.
fn report(holders: impl Fn(bool) -> Vec<Holder> + Send + Sync + 'static) -> Report {
    let mut host = bare_host();
    let later = AtomicBool::new(false);
    host.expect_holders().returning(move |_| {
        let holders = holders(later.swap(true, Ordering::Relaxed));
        Ok(HolderScan { holders, ..HolderScan::default() })
    });
    host.expect_process().returning(|pid| Ok(process(pid.0, "serve")));
    host.expect_open().returning(|_| {
        let mut handle = MockProcessHandle::new();
        obedient(&mut handle);
        Ok(Box::new(handle))
    });
    run(&host, &backend(1), &journal().0, vec![])
}

#[test]
fn respawned_process_is_reported() {
    let report = report(|later| {
        let serving = process(if later { 200 } else { 100 }, "serve");
        vec![context(&serving, &[0])]
    });
    assert!(report.memory[0].came_back);
    let why = Why::TookTheDevice;
    assert_eq!(
        report.newcomers,
        Ok(vec![Newcomer { pid: Pid(200), name: Some("serve".into()), why }])
    );
    assert!(!report.is_complete());
}

#[test]
fn process_on_other_device_is_not_a_newcomer() {
    let other = context(&process(300, "other"), &[1]);
    let report = report(move |later| if later { vec![other.clone()] } else { vec![] });
    assert_eq!(report.newcomers, Ok(vec![]));
    assert!(report.is_complete(), "{report:?}");
}

#[test]
fn newcomer_is_found_by_device_file_without_driver() {
    let decoder = process(100, "t2t-decoder");
    let mut now = snapshot_of(vec![], vec![context(&decoder, &[2, 3])], vec![decoder]);
    now.driver = Err(Error::new(MachineFault::DriverNotLoaded, "initialise NVML").fault());
    let snapshots = [now];
    let guard = Guard::new(&bare_host(), vec![]).unwrap();
    let ask = |devices| {
        let request = Request { pids: vec![Pid(100)], devices, ..Request::default() };
        plan(&snapshots, &diagnose(&snapshots), &guard, &request)
    };
    let plan = ask(vec![]);
    assert_eq!(
        plan.targets[0].membership,
        Membership::Holds(vec!["/dev/nvidia2".into(), "/dev/nvidia3".into()])
    );
    assert_eq!((ask(vec![DeviceId::from_index(2)]).targets.len(), plan.expected.len()), (0, 0));

    // The new processes by the device that they use, and how many are unreadable.
    let newcomers = |new: &[(u32, u32)], unreadable: [u32; 2]| {
        let new: Vec<Holder> =
            new.iter().map(|(pid, minor)| context(&process(*pid, "serve"), &[*minor])).collect();
        let mut host = bare_host();
        let later = AtomicBool::new(false);
        host.expect_holders().returning(move |_| {
            let after = later.swap(true, Ordering::Relaxed);
            let old = vec![context(&process(100, "t2t-decoder"), &[2, 3])];
            let mut unread = Unreadable::default();
            unread.add(Absent::NotPermitted, unreadable[usize::from(after)]);
            let holders = if after { new.clone() } else { old };
            Ok(HolderScan { holders, unreadable: unread, ..HolderScan::default() })
        });
        host.expect_process().returning(|pid| Ok(process(pid.0, "serve")));
        host.expect_open().returning(|_| {
            let mut handle = MockProcessHandle::new();
            handle.expect_info().returning(|| Ok(process(100, "t2t-decoder")));
            handle.expect_held().returning(|_| Ok(context(&process(100, ""), &[2, 3]).held));
            handle.expect_signal().returning(|_, _| Ok(()));
            handle.expect_has_exited().returning(|| Ok(true));
            Ok(Box::new(handle))
        });
        let report = carry_out(&plan, &guard, &host, &backend(1), &journal().0);
        report.newcomers.map(|new| new.iter().map(|new| new.pid.0).collect::<Vec<_>>())
    };
    assert_eq!(newcomers(&[(200, 2), (201, 0), (202, 3)], [0, 0]), Ok(vec![200, 202]));
    assert_eq!(newcomers(&[(200, 3)], [0, 1]), Ok(vec![200]), "the newcomer is visible");
    assert_eq!(newcomers(&[], [0, 1]), Err(Absent::NotPermitted), "a new one is unreadable");
    assert_eq!(newcomers(&[], [1, 1]), Ok(vec![]));
    assert_eq!(newcomers(&[], [2, 1]), Ok(vec![]));
}
