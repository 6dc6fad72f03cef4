//! A device, a process that holds it, and a plan to end that process.

pub(crate) use crate::fixture::ports::*;
pub(crate) use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device whose memory is 9,000 MiB for this many reads, then 25 MiB. Each read samples it twice.
pub(crate) fn backend(queries_until_freed: u64) -> MockGpuBackend {
    let queries_until_freed = queries_until_freed.min(u64::MAX / 2);
    let queries = AtomicU64::new(0);
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    backend.expect_devices().returning(|| Ok(vec![device(0, 0, 0).info]));
    backend.expect_processes().returning(|_| Ok(vec![]));
    backend.expect_sample().returning(move |_| {
        let back = queries.fetch_add(1, Ordering::Relaxed) >= 2 * queries_until_freed;
        device(0, if back { 25 } else { 9000 }, 16_280).sample.map_err(|_| unreachable!())
    });
    backend
}

pub(crate) fn host(handle: impl FnOnce(&mut MockProcessHandle) + Send + 'static) -> MockHost {
    let mut host = bare_host();
    host.expect_holders().returning(|_| Ok(HolderScan::default()));
    let handle = Mutex::new(Some(handle));
    host.expect_open().times(1).returning(move |_| {
        let mut opened = MockProcessHandle::new();
        handle.lock().unwrap().take().unwrap()(&mut opened);
        Ok(Box::new(opened))
    });
    host
}

pub(crate) fn ghost_plan() -> Plan {
    plan_for(process(100, "t2t-decoder"))
}

/// Returns the plan to end a process that holds the device without being listed.
pub(crate) fn plan_for(decoder: ProcessInfo) -> Plan {
    let snapshot =
        snapshot_of(vec![device(0, 9000, 16_280)], vec![context(&decoder, &[0])], vec![decoder]);
    let snapshots = [snapshot];
    let guard = Guard::new(&bare_host(), vec![]).unwrap();
    let plan = plan(&snapshots, &diagnose(&snapshots), &guard, &Request::default());
    assert_eq!(plan.targets.len(), 1);
    plan
}

pub(crate) fn run(
    host: &MockHost,
    backend: &MockGpuBackend,
    journal: &MockJournal,
    protect: Vec<Protect>,
) -> Report {
    carry_out(&ghost_plan(), &Guard::new(host, protect).unwrap(), host, backend, journal)
}

/// Carries out a plan completely.
pub(crate) fn carry_out(
    plan: &Plan,
    guard: &Guard,
    host: &MockHost,
    backend: &MockGpuBackend,
    journal: &MockJournal,
) -> Report {
    let clock = clock();
    let ports = Ports { backend, host, clock: &clock, journal };
    let token = ActToken::user_confirmed();
    execute(plan, guard, ports, &token, &mut |_| ControlFlow::Continue(()))
}

pub(crate) fn still_holding(handle: &mut MockProcessHandle) {
    handle.expect_info().returning(|| Ok(process(100, "t2t-decoder")));
    handle.expect_held().returning(|_| Ok(context(&process(100, "t2t-decoder"), &[0]).held));
}

/// The same process, which ends on the first signal.
pub(crate) fn obedient(handle: &mut MockProcessHandle) {
    still_holding(handle);
    handle.expect_signal().times(1).returning(|_, _| Ok(()));
    handle.expect_has_exited().returning(|| Ok(true));
}
