//! A batch that is split over a list of contexts, as in MXNet.

use std::fmt;
use std::ops::Range;

/// A device in MXNet's notation: `gpu(0)`, `cpu(0)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Context {
    /// `GPU` or `CPU`.
    kind: String,
    /// The index.
    index: u32,
}

impl Context {
    /// Parses `gpu(1)`, `mx.gpu(1)`, `gpu()` or `gpu`; `None` if it is malformed.
    fn parse(text: &str) -> Option<Context> {
        let text = text.trim();
        let text = text.strip_prefix("mx.").unwrap_or(text);
        let (kind, index) = match text.split_once('(') {
            Some((kind, rest)) => (kind, rest.strip_suffix(')')?.trim()),
            None => (text, ""),
        };
        let digits = index.bytes().all(|byte| byte.is_ascii_digit());
        let index = match index {
            "" => 0,
            _ if digits => index.parse().ok()?,
            _ => return None,
        };
        let kind = match kind {
            "gpu" => "GPU",
            "cpu" => "CPU",
            _ => return None,
        };
        Some(Context { kind: kind.to_owned(), index })
    }

    /// Parses a list: `[gpu(0), gpu(1)]`, with or without the brackets.
    pub(super) fn parse_list(text: &str) -> Option<Vec<Context>> {
        let text = text.trim();
        let inner = text.strip_prefix('[').map_or(Some(text), |rest| rest.strip_suffix(']'))?;
        inner.split(',').map(Context::parse).collect()
    }
}

impl fmt::Display for Context {
    /// Writes the request for the device: `/device:GPU:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/device:{}:{}", self.kind, self.index)
    }
}

/// A batch that cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// There is no context, or the number of loads differs.
    #[error("{loads} loads for {contexts} contexts")]
    Loads {
        /// The number of loads.
        loads: usize,
        /// The number of contexts.
        contexts: usize,
    },
    /// A load is negative or not a number, or all are 0.
    #[error("load {load} is not a positive number")]
    Load {
        /// The load, as text.
        load: String,
    },
    /// A context would get no row.
    #[error("a batch of {batch} rows is too small for {contexts} contexts with these loads")]
    Empty {
        /// The rows of the batch.
        batch: u64,
        /// The number of contexts.
        contexts: usize,
    },
}

/// Splits a batch in proportion to the loads, as MXNet's `_split_input_slice` does
/// (`executor_manager.py`): each part is rounded, half to even, and the last one gets the rest.
///
/// # Errors
/// If a load is not a positive number or a part is empty.
pub(super) fn split_batch(batch: u64, loads: &[f64]) -> Result<Vec<Range<u64>>, ContextError> {
    if let Some(load) = loads.iter().find(|load| !load.is_finite() || **load <= 0.0) {
        return Err(ContextError::Load { load: load.to_string() });
    }
    let total: f64 = loads.iter().sum();
    let mut begin: u64 = 0;
    let mut parts = Vec::with_capacity(loads.len());
    for (at, load) in loads.iter().enumerate() {
        let rows = (load * batch as f64 / total).round_ties_even() as u64;
        let is_last = at + 1 == loads.len();
        let end = if is_last { batch } else { begin.saturating_add(rows).min(batch) };
        if begin >= end {
            return Err(ContextError::Empty { batch, contexts: loads.len() });
        }
        parts.push(begin..end);
        begin = end;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_as_users_write_them() {
        let gpu = |index| Context { kind: "GPU".to_owned(), index };
        assert_eq!(Context::parse_list("[gpu(0), mx.gpu(1)]"), Some(vec![gpu(0), gpu(1)]));
        assert_eq!(Context::parse_list("gpu"), Some(vec![gpu(0)]));
        assert_eq!(gpu(3).to_string(), "/device:GPU:3");
        for wrong in ["", "[gpu(0)", "gpu(-1)", "gpu(+1)", "gpu(1", "tpu(0)", "gpu(0),", "gpu(1)x"]
        {
            assert_eq!(Context::parse_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn batch_is_split_by_load_and_the_last_takes_the_rest() {
        assert_eq!(split_batch(10, &[1.0, 1.0, 1.0]), Ok(vec![0..3, 3..6, 6..10]));
        assert_eq!(split_batch(8, &[3.0, 1.0]), Ok(vec![0..6, 6..8]));
        // 2.5 and 2.5 are rounded to 2 and 2.
        assert_eq!(split_batch(5, &[1.0, 1.0]), Ok(vec![0..2, 2..5]));
        let error = split_batch(2, &[1.0, 1.0, 1.0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a batch of 2 rows is too small for 3 contexts with these loads"
        );
        for load in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(split_batch(4, &[1.0, load]), Err(ContextError::Load { .. })));
        }
    }
}
