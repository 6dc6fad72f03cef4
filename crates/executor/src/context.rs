//! What an executor provides to a kernel.

use crate::shared::Shared;
use crate::split::{Chunks, Split};
use std::ops::Range;
use std::sync::Arc;

/// The thread and pool in which a kernel runs.
pub struct Context<'a, 'env> {
    thread: usize,
    shared: Option<&'a Shared<'env>>,
}

impl<'a, 'env> Context<'a, 'env> {
    /// Creates the context of a kernel that runs outside a pool.
    pub const fn alone() -> Self {
        Self { thread: 0, shared: None }
    }

    /// Creates the context of a kernel on a thread of a pool of several.
    pub(crate) const fn of(thread: usize, shared: &'a Shared<'env>) -> Self {
        Self { thread, shared: Some(shared) }
    }

    /// Returns the index of the thread in its pool; the caller of [`Pool::run`](crate::Pool::run)
    /// is 0.
    pub const fn thread(&self) -> usize {
        self.thread
    }

    /// Returns how many threads can run parts of a kernel at the same time.
    pub fn threads(&self) -> usize {
        self.shared.map_or(1, Shared::threads)
    }

    /// Calls a function with each part of a range, on this thread and on idle threads of the pool.
    ///
    /// Every part except the last has `grain` elements (at least 1). Returns when no part is
    /// running. Parts may call this function themselves: a thread waits only for parts that are
    /// running.
    ///
    /// # Panics
    /// If a part panics. Running parts are finished first; parts that have not started may be
    /// skipped.
    pub fn parallel_for<F>(&self, range: Range<usize>, grain: usize, body: F)
    where
        F: Fn(Range<usize>) + Send + Sync + 'env,
    {
        self.parallel_map(range, grain, body);
    }

    /// Calls a function with each part of a range, like [`Context::parallel_for`], and returns the
    /// results in order of the range.
    ///
    /// # Panics
    /// Like [`Context::parallel_for`].
    pub fn parallel_map<T, F>(&self, range: Range<usize>, grain: usize, body: F) -> Vec<T>
    where
        F: Fn(Range<usize>) -> T + Send + Sync + 'env,
        T: Send + 'env,
    {
        let grain = grain.max(1);
        let parts = range.len().div_ceil(grain);
        match self.shared {
            Some(shared) if parts > 1 => {
                let split = Arc::new(Split::new(range, grain, parts, body));
                let chunks: Arc<dyn Chunks + 'env> = Arc::clone(&split) as _;
                shared.offer(&chunks, parts - 1);
                chunks.work();
                shared.withdraw(&chunks);
                split.wait()
            }
            _ => {
                let part = |at: usize| range.start + at * grain;
                let end = |at: usize| range.end.min(part(at).saturating_add(grain));
                (0..parts).map(|at| body(part(at)..end(at))).collect()
            }
        }
    }
}

impl std::fmt::Debug for Context<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("thread", &self.thread).finish_non_exhaustive()
    }
}
