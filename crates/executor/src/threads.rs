//! The threads that share the work of one kernel.

use crate::TaskGraph;
use crate::lock::lock;
use crate::pool::Pool;
use crate::run::Options;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The intra-op threads. They work for one kernel at a time: another that finds them busy computes
/// alone.
#[derive(Debug)]
pub(crate) struct Threads {
    pool: Option<(Pool<'static>, Arc<TaskGraph>)>,
}

impl Threads {
    /// Creates threads; `count` includes the one that runs the kernel.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(crate) fn new(count: usize) -> std::io::Result<Threads> {
        let one_task = || TaskGraph::from_edges(1, []).unwrap_or_default();
        let pool = match count {
            0 | 1 => None,
            _ => Some((Pool::new(count)?, Arc::new(one_task()))),
        };
        Ok(Threads { pool })
    }

    /// Computes a range in parts of at least `grain`, and returns the results in its order.
    pub(crate) fn map<T: Send + 'static>(
        &self,
        count: usize,
        grain: usize,
        body: impl Fn(Range<usize>) -> Vec<T> + Send + Sync + 'static,
    ) -> Vec<T> {
        let Some((pool, task)) = self.pool.as_ref().filter(|_| count > grain) else {
            return body(0..count);
        };
        let grain = grain.max(count.div_ceil(4 * pool.threads()));
        let (body, parts) = (Arc::new(body), Arc::new(Mutex::new(Vec::new())));
        let (own, results) = (Arc::clone(&body), Arc::clone(&parts));
        let run = pool.run(
            Arc::clone(task),
            move |_, context| {
                let body = Arc::clone(&own);
                *lock(&results) = context.parallel_map(0..count, grain, move |range| body(range));
                Ok::<(), Infallible>(())
            },
            &Options::default(),
        );
        match run {
            Ok(_) => std::mem::take(&mut *lock(&parts)).into_iter().flatten().collect(),
            Err(_) => body(0..count),
        }
    }
}
