//! A sweep of a tree with processes that do not end.

use crate::fixture::ports::*;
use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROOT: u32 = 50;

fn worker(state: ProcessState) -> ProcessInfo {
    ProcessInfo { parent: Ok(Pid(ROOT)), state: Ok(state), ..process(51, "worker") }
}

/// A tree whose scans find these processes this many times, and then none.
struct Stays(Vec<ProcessInfo>, AtomicU64, Option<KilledTree>);

impl ProcessTree for Stays {
    fn members(&self) -> Result<Vec<ProcessInfo>> {
        let left = self.1.load(Ordering::Relaxed);
        self.1.store(left.saturating_sub(1), Ordering::Relaxed);
        Ok(if left > 0 { self.0.clone() } else { Vec::new() })
    }

    fn kill_tree(&self, _: Duration, _: &ActToken) -> Result<KilledTree> {
        self.2.clone().ok_or_else(|| Error::new(ErrorKind::Unsupported, "fell a tree"))
    }
}

/// Sweeps a tree of this process, which the scans find this often; the kernel refuses its signal for
/// the given reason. Returns the result, the elapsed time and the number of signals.
fn swept(info: ProcessInfo, scans: u64, refusal: Option<ErrorKind>) -> (Swept, Duration, usize) {
    swept_after(None, info, scans, refusal)
}

/// Sweeps the tree after its top was killed, if the kernel lists children.
fn swept_after(
    felled: Option<KilledTree>,
    info: ProcessInfo,
    scans: u64,
    refusal: Option<ErrorKind>,
) -> (Swept, Duration, usize) {
    let sent = Arc::new(Mutex::new(0));
    let mut host = bare_host();
    host.expect_process().returning(|pid| match pid.0 {
        ROOT => Ok(process(ROOT, "gpuws")),
        _ => Err(Error::new(ProcessFault::Gone, "inspect a process")),
    });
    let (opened, count) = (info.clone(), sent.clone());
    host.expect_open().returning(move |_| {
        let mut handle = MockProcessHandle::new();
        let (info, count) = (opened.clone(), count.clone());
        handle.expect_info().returning(move || Ok(info.clone()));
        handle.expect_signal().returning(move |_, _| {
            *count.lock().unwrap() += 1;
            refusal.map_or(Ok(()), |kind| Err(Error::new(kind, "send SIGKILL")))
        });
        handle.expect_has_exited().returning(|| Ok(false));
        Ok(Box::new(handle))
    });
    let mut backend = MockGpuBackend::new();
    backend.expect_origin().returning(origin);
    let (clock, (journal, _)) = (clock(), journal());
    let guard = Guard::new(&host, vec![]).unwrap();
    let ports = Ports { backend: &backend, host: &host, clock: &clock, journal: &journal };
    let tree = Stays(vec![info], AtomicU64::new(scans), felled);
    let root = process(ROOT, "gpuws").key;
    let swept = sweep(root, "test", &guard, ports, &ActToken::user_confirmed(), &tree);
    let sent = *sent.lock().unwrap();
    (swept, clock.monotonic(), sent)
}

fn stopped(swept: &Swept) -> &str {
    swept.stopped.as_ref().map_or("", |fault| &fault.text)
}

#[test]
fn unkillable_process_is_waited_for_briefly() {
    let (result, time, sent) = swept(worker(ProcessState::Uninterruptible), u64::MAX, None);
    let why = "end process 51 (worker), which is frozen or in uninterruptible sleep";
    assert_eq!((stopped(&result), sent), (why, 1));
    assert_eq!(time.as_secs(), 1);
    let survived = Outcome::Survived { state: Ok(ProcessState::Uninterruptible) };
    assert_eq!(result.actions[0].outcome, survived);
}

#[test]
fn killable_process_is_waited_for_longer() {
    let (result, time, sent) = swept(worker(ProcessState::Sleeping), u64::MAX, None);
    assert_eq!(stopped(&result), "end process 51 (worker), which has not exited after SIGKILL");
    assert!(time.as_secs() >= 9 && sent == 1, "{time:?}, {sent} signals");
}

#[test]
fn unsignallable_process_is_signalled_once() {
    let refusal = Some(ProcessFault::NotPermitted.into());
    let (result, time, _) = swept(worker(ProcessState::Sleeping), u64::MAX, refusal);
    let why = "end process 51 (worker): no permission to signal it";
    assert_eq!((stopped(&result), result.actions.len()), (why, 0));
    assert_eq!(time.as_secs(), 1);
}

#[test]
fn process_is_signalled_again_after_other_failure() {
    let (result, _, sent) = swept(worker(ProcessState::Sleeping), 3, Some(ErrorKind::Io));
    assert!(result.stopped.is_none() && sent == 3, "{sent} {result:?}");
}

#[test]
fn process_ending_within_a_second_is_not_a_failure() {
    for state in [ProcessState::Uninterruptible, ProcessState::Sleeping] {
        let (result, time, _) = swept(worker(state), 50, None);
        assert_eq!(stopped(&result), "");
        assert!(time < Duration::from_secs(1), "{time:?}");
    }
}

#[test]
fn unkillable_states_are_distinguished() {
    let stuck = |state, threads| {
        let info = ProcessInfo { state: Ok(state), live_threads: threads, ..process(1, "x") };
        is_stuck(&info)
    };
    assert!(stuck(ProcessState::Uninterruptible, Ok(1)));
    assert!(stuck(ProcessState::Zombie, Ok(1)));
    assert!(!stuck(ProcessState::Zombie, Ok(0)));
    assert!(!stuck(ProcessState::Zombie, Err(Absent::NotPermitted)));
    assert!(!stuck(ProcessState::Stopped, Ok(1)));
    assert!(!stuck(ProcessState::Running, Ok(1)));
}

#[test]
fn non_child_is_killed_even_if_no_child_is_left() {
    let felled = Some(KilledTree { none_left: true, ..KilledTree::default() });
    let (result, _, sent) = swept_after(felled, worker(ProcessState::Sleeping), 1, None);
    assert_eq!((stopped(&result), sent), ("", 1));
}
