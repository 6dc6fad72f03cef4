//! A range whose parts run on several threads.

use crate::lock::lock;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Parts that any thread can run.
pub(crate) trait Chunks: Send + Sync {
    /// Runs parts until every part has started.
    fn work(&self);
}

/// A range, how it is split, and the results so far.
pub(crate) struct Split<T, F> {
    range: Range<usize>,
    grain: usize,
    parts: usize,
    body: F,
    next: AtomicUsize,
    outcome: Mutex<Outcome<T>>,
    finished: Condvar,
}

struct Outcome<T> {
    results: Vec<Option<T>>,
    done: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl<T, F> Split<T, F> {
    pub(crate) fn new(range: Range<usize>, grain: usize, parts: usize, body: F) -> Self {
        let results = (0..parts).map(|_| None).collect();
        let outcome = Mutex::new(Outcome { results, done: 0, panic: None });
        let (next, finished) = (AtomicUsize::new(0), Condvar::new());
        Self { range, grain, parts, body, next, outcome, finished }
    }

    /// Waits for parts on other threads, and returns all results.
    pub(crate) fn wait(&self) -> Vec<T> {
        let mut outcome = lock(&self.outcome);
        while outcome.done < self.parts {
            outcome = self.finished.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(panic) = outcome.panic.take() {
            drop(outcome);
            resume_unwind(panic);
        }
        std::mem::take(&mut outcome.results).into_iter().flatten().collect()
    }
}

impl<T: Send, F: Fn(Range<usize>) -> T + Send + Sync> Chunks for Split<T, F> {
    fn work(&self) {
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return;
            }
            let start = self.range.start + part * self.grain;
            let range = start..self.range.end.min(start.saturating_add(self.grain));
            // A panic leaves no partial result here: its part has none.
            let result = catch_unwind(AssertUnwindSafe(|| (self.body)(range)));
            let mut outcome = lock(&self.outcome);
            match result {
                Ok(result) => outcome.results[part] = Some(result),
                Err(panic) if outcome.panic.is_none() => outcome.panic = Some(panic),
                // Another part panicked before. Dropping this payload might panic again.
                Err(panic) => std::mem::forget(panic),
            }
            outcome.done += 1;
            if outcome.done == self.parts {
                self.finished.notify_all();
            }
        }
    }
}
