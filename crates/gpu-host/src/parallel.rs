//! A parallel map over processes, on all cores.

use rustix::thread::sched_getaffinity;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// The batch size of a worker: small enough that all finish together, although some processes have
/// a thousand times as many descriptors as others.
const SHARE: usize = 4;

/// The maximum number of workers. The limit of the cgroup is not read, because that would take as
/// long as reading ten processes.
const MOST: usize = 8;

/// The number of processes for which a worker is started: its start costs as much as a few of them
/// (0.1 ms of CPU time).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// All descriptors of a process; some processes have thousands.
    Descriptors = 4,
    /// A few files of a process.
    Files = 32,
}

/// Calls `step` for each of `pids`, and returns what each worker has gathered.
///
/// The caller is one of the workers; if no thread can be started, there are fewer workers, not a
/// failure.
pub(crate) fn over<G: Send>(
    work: Work,
    pids: &[u32],
    start: impl Fn() -> G + Sync,
    step: impl Fn(&mut G, u32) + Sync,
) -> Vec<G> {
    let next = AtomicUsize::new(0);
    let gathered = Mutex::new(Vec::new());
    let run = || {
        let mut own = start();
        while let Some(share) = pids.get(next.fetch_add(SHARE, Ordering::Relaxed)..) {
            if share.is_empty() {
                break;
            }
            share.iter().take(SHARE).for_each(|pid| step(&mut own, *pid));
        }
        gathered.lock().unwrap_or_else(PoisonError::into_inner).push(own);
    };
    let cores = sched_getaffinity(None).map_or(1, |own| own.count()) as usize;
    let helpers = cores.min(MOST).min(pids.len().div_ceil(work as usize)).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            if Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    gathered.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Work, over};

    #[test]
    fn every_item_is_processed_once() {
        for count in [0, 1, 3, 4, 5, 1000] {
            let pids: Vec<u32> = (0..count).collect();
            let gathered = over(Work::Files, &pids, Vec::new, |own, pid| own.push(pid));
            let mut done: Vec<_> = gathered.into_iter().flatten().collect();
            done.sort_unstable();
            assert_eq!(done, pids);
        }
    }
}
