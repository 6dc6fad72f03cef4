//! Threads that run graphs, kept between runs.

use crate::context::Context;
use crate::error::RunError;
use crate::graph::{NodeIx, TaskGraph};
use crate::run::{Options, Report, Run};
use crate::shared::Shared;
use crossbeam_deque::Worker;
use std::ops::Deref;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;

/// Threads that run graphs: the caller of [`Pool::run`] and the threads that the pool keeps.
///
/// These threads sleep between runs, and during a run until there is work for them. Kernels may
/// borrow data that outlives the pool: only `'static` data with [`Pool::new`], but also data of the
/// caller with [`Pool::scope`]. Dropping the pool ends its threads and waits for them.
pub struct Pool<'env> {
    shared: Arc<Shared<'env>>,
    ready: Mutex<Worker<u32>>,
    handles: Vec<JoinHandle<()>>,
}

impl Pool<'static> {
    /// Creates a pool with this number of threads (at least 1), including the caller of
    /// [`Pool::run`].
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let (mut pool, others) = Self::prepare(threads);
        for (index, ready) in others {
            let shared = Arc::clone(&pool.shared);
            let name = format!("executor-{index}");
            let body = move || shared.work_loop(index, &ready);
            // On an error, dropping the pool ends the threads created so far.
            pool.handles.push(std::thread::Builder::new().name(name).spawn(body)?);
        }
        Ok(pool)
    }
}

impl<'env> Pool<'env> {
    /// Calls a function with a pool whose kernels may borrow anything that outlives this call.
    ///
    /// The threads are created once and kept for all runs within the function, so that a run costs
    /// as little as with [`Pool::new`].
    ///
    /// # Panics
    /// If the system cannot create a thread.
    pub fn scope<R>(threads: usize, body: impl FnOnce(&Pool<'env>) -> R) -> R {
        std::thread::scope(|scope| {
            let (pool, others) = Self::prepare(threads);
            for (index, ready) in others {
                let shared = Arc::clone(&pool.shared);
                scope.spawn(move || shared.work_loop(index, &ready));
            }
            body(&pool)
        })
    }

    fn prepare(threads: usize) -> (Self, Vec<(usize, Worker<u32>)>) {
        let mut ready: Vec<Worker<u32>> = (0..threads.max(1)).map(|_| Worker::new_lifo()).collect();
        let shared = Arc::new(Shared::new(&ready));
        let others = ready.split_off(1).into_iter().enumerate();
        let others = others.map(|(at, ready)| (at + 1, ready)).collect();
        let first = ready.pop().unwrap_or_else(Worker::new_lifo);
        (Self { shared, ready: Mutex::new(first), handles: Vec::new() }, others)
    }

    /// Returns the number of threads, including the caller of [`Pool::run`].
    pub fn threads(&self) -> usize {
        self.shared.threads()
    }

    /// Runs a graph: each node once, after all its inputs. Returns when no kernel is running.
    ///
    /// The graph and the kernel may be references, if they outlive the pool, or an `Arc` and a
    /// closure that owns its data. After a node, its first ready successor runs on the same thread;
    /// other threads may take the rest.
    ///
    /// # Errors
    /// The first error or panic of a kernel, with its node; [`RunError::Canceled`]; and
    /// [`RunError::Busy`] if the pool is running another graph, for example when a kernel calls its
    /// own pool. No node starts once an error is known.
    pub fn run<G, K, E>(
        &self,
        graph: G,
        kernel: K,
        options: &Options,
    ) -> Result<Report, RunError<E>>
    where
        G: Deref<Target = TaskGraph> + Send + Sync + 'env,
        K: Fn(NodeIx, &Context<'_, 'env>) -> Result<(), E> + Send + Sync + 'env,
        E: Send + 'env,
    {
        let ready = match self.ready.try_lock() {
            Ok(ready) => ready,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(RunError::Busy),
        };
        let run = Arc::new(Run::new(graph, kernel, options, self.threads()));
        match self.threads() {
            1 => run.alone(),
            _ if run.is_over() => {}
            _ => self.shared.run(Arc::clone(&run) as _, &ready, || run.is_over()),
        }
        run.finish()
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        self.shared.close();
        for handle in self.handles.drain(..) {
            // Pool threads do not panic: panics of kernels are caught.
            let _ = handle.join();
        }
    }
}

impl std::fmt::Debug for Pool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}
