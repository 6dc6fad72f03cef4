//! Limits on what a graph may make a run do.

use crate::tensor::{count, shape_text};
use gpu_core::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits on what the operations of a graph may do in one run. They count all operations together,
/// so whether a graph exceeds one does not depend on the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// The size of all tensors that operations produce. Default: 2 GiB.
    pub memory: Bytes,
    /// The elements that operations write and the terms that they add. Default: 2³⁶, which take
    /// minutes.
    pub steps: u64,
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { memory: Bytes::from_mib(2048), steps: 1 << 36 }
    }
}

/// An operation that exceeds a limit of the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverLimit {
    /// Its output is too large.
    #[error("{op} of shape {}: the tensors of a run are limited to {limit} \
             bytes", shape_text(.shape))]
    Memory {
        /// The operation.
        op: String,
        /// The shape of its output.
        shape: Vec<usize>,
        /// The limit in bytes.
        limit: u64,
    },
    /// It takes too many steps.
    #[error(
        "{op} of shape {}: the operations of a run are limited to {limit} steps",
        shape_text(.shape)
    )]
    Steps {
        /// The operation.
        op: String,
        /// The shape of its output.
        shape: Vec<usize>,
        /// The limit.
        limit: u64,
    },
}

/// What the operations of a run have used.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: RunLimits,
    bytes: AtomicU64,
    steps: AtomicU64,
}

impl Meter {
    pub(crate) fn new(limits: RunLimits) -> Meter {
        Meter { limits, bytes: AtomicU64::new(0), steps: AtomicU64::new(0) }
    }

    /// Counts an output with elements of this size in bytes, before it is allocated, and the step
    /// of writing each element. Returns its number of elements.
    pub(crate) fn take(&self, op: &str, shape: &[usize], size: usize) -> Result<usize, OverLimit> {
        let limit = self.limits.memory.0;
        let over = || OverLimit::Memory { op: op.to_owned(), shape: shape.to_vec(), limit };
        let elements = count(shape).ok_or_else(over)?;
        if add(&self.bytes, elements as u64 * size as u64) > limit {
            return Err(over());
        }
        self.work(op, shape, elements as u64)?;
        Ok(elements)
    }

    /// Counts steps for an output of this shape.
    pub(crate) fn work(&self, op: &str, shape: &[usize], steps: u64) -> Result<(), OverLimit> {
        let limit = self.limits.steps;
        match add(&self.steps, steps) > limit {
            true => Err(OverLimit::Steps { op: op.to_owned(), shape: shape.to_vec(), limit }),
            false => Ok(()),
        }
    }
}

/// Adds to a counter and returns the sum. The counter itself grows slowly enough never to overflow.
fn add(counter: &AtomicU64, by: u64) -> u64 {
    counter.fetch_add(by.min(1 << 40), Ordering::Relaxed).saturating_add(by)
}
