//! The memory budget of reading a recording.

use super::Limits;
use super::error::{Location, Problem, TraceError};
use std::cell::Cell;

/// The minimum budget, for small files.
const BASE: u64 = 16 << 20;

/// The budget per byte of the file. Recordings of real jobs need two to three bytes.
const MULTIPLE: u64 = 7;

/// The maximum budget, for large files.
const MAX: u64 = 4 << 30;

/// The rest of a memory limit. Tables charge memory before they reserve it.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u64>,
    limit: u64,
}

impl Budget {
    /// Returns the budget for a file of this length.
    pub(super) fn new(length: usize, limits: Limits) -> Self {
        let usual = (BASE + MULTIPLE * length as u64).min(MAX);
        let limit = limits.memory.unwrap_or(usual);
        Budget { left: Cell::new(limit), limit }
    }

    /// Charges memory.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        let left = self.left.get().checked_sub(bytes as u64);
        self.left.set(left.ok_or(Exceeded(self.limit))?);
        Ok(())
    }

    /// Returns the memory of a table, and drops the table.
    pub(super) fn dropped<T>(&self, table: Vec<T>) {
        self.left.set(self.left.get() + (table.capacity() * size_of::<T>()) as u64);
    }

    /// Reserves room in a table. The capacity at least doubles when it grows.
    #[inline]
    pub(super) fn room<T>(&self, table: &mut Vec<T>, more: usize) -> Result<(), Exceeded> {
        if table.capacity() - table.len() < more { self.grow(table, more) } else { Ok(()) }
    }

    #[cold]
    fn grow<T>(&self, table: &mut Vec<T>, more: usize) -> Result<(), Exceeded> {
        let capacity = (table.len() + more).max(2 * table.capacity());
        self.take((capacity - table.capacity()) * size_of::<T>())?;
        table.reserve_exact(capacity - table.len());
        Ok(())
    }

    /// Appends to a table.
    #[inline]
    pub(super) fn push<T>(&self, table: &mut Vec<T>, value: T) -> Result<(), Exceeded> {
        self.room(table, 1)?;
        table.push(value);
        Ok(())
    }
}

/// Reading would exceed this memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exceeded(u64);

impl Exceeded {
    /// Returns the problem of `what` exceeding the limit.
    pub(super) fn by(self, what: impl Into<String>) -> Problem {
        Problem::Memory { what: what.into(), limit: self.0 }
    }

    /// Returns the error of `what` exceeding the limit at this place in the file.
    pub(super) fn at(self, location: Location, what: impl Into<String>) -> TraceError {
        TraceError::new(location, self.by(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_charged_by_capacity_and_refunded_on_drop() {
        let budget = Budget::new(0, Limits { memory: Some(64), ..Limits::default() });
        let mut table: Vec<u32> = Vec::new();
        for number in 0..9 {
            // 1, 2, 4, 8 and 16 entries of 4 bytes.
            assert_eq!(budget.push(&mut table, number), Ok(()));
        }
        assert_eq!((table.capacity(), budget.left.get()), (16, 0));
        assert_eq!(budget.take(1), Err(Exceeded(64)));
        assert_eq!(budget.room(&mut table, 7), Ok(()), "it has room for them");
        assert_eq!(budget.room(&mut table, 8), Err(Exceeded(64)));
        assert_eq!(table.len(), 9, "a failed request has no effect");
        budget.dropped(table);
        assert_eq!(budget.left.get(), 64);
    }

    #[test]
    fn default_budget_depends_on_file_size() {
        let budget = |length| Budget::new(length, Limits::default()).limit;
        assert_eq!(budget(0), 16 << 20);
        assert_eq!(budget(64 << 20), (16 + 7 * 64) << 20);
        assert_eq!(budget(2 << 30), 4 << 30);
    }
}
