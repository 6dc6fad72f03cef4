//! The threads of a pool: their shared state, and how they sleep and wake.
//!
//! Threads sleep between runs. Work wakes one sleeper at a time: a producer wakes one only if no
//! thread is searching, and a searcher that finds work wakes the next. So a chain never wakes a
//! thread, and a wide graph wakes all threads.

use crate::lock::lock;
use crate::split::Chunks;
use crossbeam_deque::{Steal, Stealer, Worker};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

/// The number of searches before a thread sleeps, and how many of them keep the core.
const SEARCHES: u32 = 48;
const BUSY_SEARCHES: u32 = 16;
/// Adds one searching thread; the bits below count sleepers.
const SEARCHING: usize = 1 << 16;

/// A run that threads can join.
pub(crate) trait Job<'env>: Send + Sync {
    /// Runs nodes until there are none left to take.
    fn work(&self, slot: &Slot<'_, 'env>);

    /// Returns whether there are sources that no thread has taken.
    fn has_sources(&self) -> bool;

    /// Returns whether the job is done or has stopped.
    fn is_over(&self) -> bool;
}

/// The slot of a thread in a run.
pub(crate) struct Slot<'a, 'env> {
    pub(crate) index: usize,
    pub(crate) ready: &'a Worker<u32>,
    pub(crate) shared: &'a Shared<'env>,
}

#[derive(Default)]
struct State<'env> {
    job: Option<Arc<dyn Job<'env> + 'env>>,
    /// The number of threads in the run, without the one that started it.
    active: usize,
    is_closing: bool,
}

/// How a thread sleeps and wakes, and what other threads can steal from it.
struct Parker {
    stealer: Stealer<u32>,
    thread: OnceLock<Thread>,
    is_woken: AtomicBool,
}

/// The shared state of a pool's threads. Thread 0 is the one that starts a run.
pub(crate) struct Shared<'env> {
    state: Mutex<State<'env>>,
    left: Condvar,
    parkers: Vec<Parker>,
    sleepers: Mutex<Vec<usize>>,
    /// The number of sleepers, plus the number of searching threads times [`SEARCHING`].
    idle: AtomicUsize,
    /// Loops over chunks that want help, and the number of these loops.
    splits: Mutex<Vec<Arc<dyn Chunks + 'env>>>,
    open_splits: AtomicUsize,
    /// The thread that started the current run, kept so that it can be woken.
    starter: Mutex<Option<Thread>>,
}

impl<'env> Shared<'env> {
    pub(crate) fn new(ready: &[Worker<u32>]) -> Self {
        let parker = |worker: &Worker<u32>| Parker {
            stealer: worker.stealer(),
            thread: OnceLock::new(),
            is_woken: AtomicBool::new(false),
        };
        Self {
            state: Mutex::default(),
            left: Condvar::new(),
            parkers: ready.iter().map(parker).collect(),
            sleepers: Mutex::default(),
            idle: AtomicUsize::new(0),
            splits: Mutex::default(),
            open_splits: AtomicUsize::new(0),
            starter: Mutex::default(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.parkers.len()
    }

    /// The loop of a pool thread.
    pub(crate) fn work_loop(&self, index: usize, ready: &Worker<u32>) {
        let slot = Slot { index, ready, shared: self };
        let _ = self.parkers[index].thread.set(std::thread::current());
        loop {
            self.sleep(index, |shared| shared.has_work());
            let job = {
                let mut state = lock(&self.state);
                if state.is_closing {
                    return;
                }
                let job = state.job.clone();
                state.active += usize::from(job.is_some());
                job
            };
            let Some(job) = job else { continue };
            job.work(&slot);
            drop(job);
            let mut state = lock(&self.state);
            state.active -= 1;
            if state.active == 0 {
                self.left.notify_all();
            }
        }
    }

    /// Makes the threads end.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closing = true;
        for parker in &self.parkers {
            parker.wake();
        }
    }

    /// Runs a job on the calling thread, helped by the others, until `is_over`. Afterwards no
    /// thread works on the job.
    pub(crate) fn run(
        &self,
        job: Arc<dyn Job<'env> + 'env>,
        ready: &Worker<u32>,
        is_over: impl Fn() -> bool,
    ) {
        *lock(&self.starter) = Some(std::thread::current());
        lock(&self.state).job = Some(Arc::clone(&job));
        let slot = Slot { index: 0, ready, shared: self };
        loop {
            job.work(&slot);
            if is_over() {
                break;
            }
            self.sleep(0, |shared| is_over() || shared.has_work());
        }
        drop(job);
        let mut state = lock(&self.state);
        state.job = None;
        while state.active > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        *lock(&self.starter) = None;
    }

    fn has_work(&self) -> bool {
        let state = lock(&self.state);
        // Ready nodes of a finished job are discarded later.
        let has_job = state
            .job
            .as_ref()
            .is_some_and(|job| !job.is_over() && (job.has_sources() || self.has_ready()));
        state.is_closing || has_job
    }

    fn has_ready(&self) -> bool {
        self.open_splits.load(Ordering::Acquire) > 0
            || self.parkers.iter().any(|parker| !parker.stealer.is_empty())
    }

    fn sleep(&self, index: usize, has_work: impl Fn(&Self) -> bool) {
        let parker = &self.parkers[index];
        lock(&self.sleepers).push(index);
        self.idle.fetch_add(1, Ordering::SeqCst);
        // A producer publishes work and then checks for sleepers; this thread announces its sleep
        // and then checks for work. At least one of them sees the other.
        fence(Ordering::SeqCst);
        if has_work(self) {
            self.unpark(index);
        }
        while !parker.is_woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
        self.unpark(index);
        parker.is_woken.store(false, Ordering::Relaxed);
    }

    /// Removes a sleeper from the list and wakes it.
    fn unpark(&self, index: usize) {
        let mut sleepers = lock(&self.sleepers);
        if let Some(at) = sleepers.iter().position(|sleeper| *sleeper == index) {
            sleepers.swap_remove(at);
            self.idle.fetch_sub(1, Ordering::SeqCst);
            drop(sleepers);
            self.wake(index);
        }
    }

    fn wake(&self, index: usize) {
        match index {
            0 => {
                self.parkers[0].is_woken.store(true, Ordering::Release);
                if let Some(thread) = &*lock(&self.starter) {
                    thread.unpark();
                }
            }
            index => self.parkers[index].wake(),
        }
    }

    /// Wakes the thread that started the run.
    pub(crate) fn wake_starter(&self) {
        self.unpark(0);
    }

    /// Wakes a sleeper for work that was just published, unless a thread is already searching for
    /// work.
    pub(crate) fn announce(&self) {
        fence(Ordering::SeqCst);
        let idle = self.idle.load(Ordering::Relaxed);
        if idle != 0 && idle < SEARCHING {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let sleeper = {
            let mut sleepers = lock(&self.sleepers);
            let sleeper = sleepers.pop();
            if sleeper.is_some() {
                self.idle.fetch_sub(1, Ordering::SeqCst);
            }
            sleeper
        };
        if let Some(index) = sleeper {
            self.wake(index);
        }
    }

    /// Offers chunks to the other threads.
    pub(crate) fn offer(&self, chunks: &Arc<dyn Chunks + 'env>, helpers: usize) {
        lock(&self.splits).push(Arc::clone(chunks));
        self.open_splits.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for _ in 0..helpers.min(self.threads().saturating_sub(1)) {
            self.wake_one();
        }
    }

    /// Withdraws an offer.
    pub(crate) fn withdraw(&self, chunks: &Arc<dyn Chunks + 'env>) {
        let mut splits = lock(&self.splits);
        let before = splits.len();
        splits.retain(|other| !Arc::ptr_eq(other, chunks));
        self.open_splits.fetch_sub(before - splits.len(), Ordering::SeqCst);
    }

    /// Searches for a ready node of another thread, and helps with chunks on the way.
    pub(crate) fn search(&self, slot: &Slot<'_, 'env>, is_over: impl Fn() -> bool) -> Option<u32> {
        self.idle.fetch_add(SEARCHING, Ordering::SeqCst);
        let mut found = None;
        for round in 0..SEARCHES {
            if is_over() {
                break;
            }
            found = self.steal(slot);
            if found.is_some() {
                break;
            }
            if self.open_splits.load(Ordering::Acquire) > 0 {
                // A helping thread is not searching: other threads may be needed for work that
                // becomes ready in the meantime.
                self.idle.fetch_sub(SEARCHING, Ordering::SeqCst);
                self.announce();
                self.help();
                self.idle.fetch_add(SEARCHING, Ordering::SeqCst);
                continue;
            }
            if round < BUSY_SEARCHES { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        self.idle.fetch_sub(SEARCHING, Ordering::SeqCst);
        if found.is_some() && self.has_ready() {
            self.announce();
        }
        found
    }

    fn steal(&self, slot: &Slot<'_, 'env>) -> Option<u32> {
        let count = self.parkers.len();
        for other in (slot.index + 1..count).chain(0..slot.index) {
            loop {
                match self.parkers[other].stealer.steal_batch_and_pop(slot.ready) {
                    Steal::Success(node) => return Some(node),
                    Steal::Empty => break,
                    Steal::Retry => std::hint::spin_loop(),
                }
            }
        }
        None
    }

    fn help(&self) {
        let chunks = lock(&self.splits).last().cloned();
        if let Some(chunks) = chunks {
            chunks.work();
            self.withdraw(&chunks);
        }
    }
}

impl Parker {
    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(AtomicUsize);

    impl Chunks for Counted {
        fn work(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shared(threads: usize) -> Shared<'static> {
        let ready: Vec<Worker<u32>> = (0..threads).map(|_| Worker::new_lifo()).collect();
        Shared::new(&ready)
    }

    #[test]
    fn withdrawn_offer_leaves_the_others() {
        let shared = shared(2);
        let (one, other) = (Arc::new(Counted(0.into())), Arc::new(Counted(0.into())));
        let as_chunks = |of: &Arc<Counted>| Arc::clone(of) as Arc<dyn Chunks>;
        shared.offer(&as_chunks(&one), 1);
        shared.offer(&as_chunks(&other), 1);
        shared.withdraw(&as_chunks(&other));
        assert!(shared.has_ready());
        // Who helps works on the offer that is left, and withdraws it.
        shared.help();
        assert_eq!((one.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (1, 0));
        assert!(!shared.has_ready());
    }

    #[test]
    fn node_in_the_queue_of_any_thread_is_ready() {
        let ready = [Worker::new_lifo(), Worker::new_lifo()];
        let shared = Shared::new(&ready);
        ready[1].push(7);
        assert!(shared.has_ready());
        let slot = Slot { index: 0, ready: &ready[0], shared: &shared };
        assert_eq!((shared.steal(&slot), shared.has_ready()), (Some(7), false));
    }

    #[test]
    fn work_wakes_one_sleeper_unless_a_thread_searches() {
        let shared = shared(4);
        *lock(&shared.sleepers) = vec![1, 2, 3];
        shared.idle.store(3 + SEARCHING, Ordering::Relaxed);
        shared.announce();
        assert_eq!(*lock(&shared.sleepers), [1, 2, 3]);
        shared.idle.store(3, Ordering::Relaxed);
        shared.announce();
        assert_eq!(*lock(&shared.sleepers), [1, 2]);
        assert!(shared.parkers[3].is_woken.load(Ordering::Relaxed));
        // An offer for more threads than there are others wakes those.
        shared.offer(&(Arc::new(Counted(0.into())) as Arc<dyn Chunks>), 9);
        assert_eq!((lock(&shared.sleepers).len(), shared.idle.load(Ordering::Relaxed)), (0, 0));
    }
}
