//! How much memory of a processor is in use, over time.

use std::cell::Cell;
use std::collections::BTreeMap;

/// The memory in use as a step function of time.
///
/// A value counts from the time at which it is made until the end, until its last use is known.
/// What a partial schedule counts is therefore never less than what the complete one uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// In use all the time.
    base: u64,
    /// By how much it changes at a time.
    steps: BTreeMap<u64, i64>,
    /// In use at the end, without the base.
    last: i64,
    /// At least the maximum over all times, without the base.
    ceiling: Cell<i64>,
    /// How often memory was added since the ceiling was exact.
    added: Cell<usize>,
}

impl Memory {
    /// Adds memory for all times.
    pub(super) fn add_always(&mut self, bytes: u64) {
        self.base = self.base.saturating_add(bytes);
    }

    /// Adds memory from a time on.
    pub(super) fn add(&mut self, at: u64, bytes: u64) {
        self.step(at, signed(bytes));
        self.ceiling.set(self.ceiling.get().saturating_add(signed(bytes)));
        self.added.set(self.added.get() + 1);
    }

    /// Releases memory from a time on.
    pub(super) fn release(&mut self, at: u64, bytes: u64) {
        self.step(at, -signed(bytes));
    }

    fn step(&mut self, at: u64, bytes: i64) {
        if bytes == 0 {
            return;
        }
        self.last = self.last.saturating_add(bytes);
        let step = self.steps.entry(at).or_default();
        *step = step.saturating_add(bytes);
        if *step == 0 {
            self.steps.remove(&at);
        }
    }

    /// Returns the maximum over all times.
    pub(super) fn peak(&self) -> u64 {
        let mut level = 0_i64;
        let mut peak = 0;
        for step in self.steps.values() {
            level = level.saturating_add(*step);
            peak = peak.max(level);
        }
        self.base.saturating_add(unsigned(peak))
    }

    /// Returns how much is in use at the end.
    pub(super) fn left(&self) -> u64 {
        self.base.saturating_add(unsigned(self.last))
    }

    /// Returns how much a limit lacks for additional memory at all times; 0 if it fits.
    pub(super) fn lack_always(&self, bytes: u64, limit: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let lack = |peak: u64| peak.saturating_add(bytes).saturating_sub(limit);
        if lack(self.base.saturating_add(unsigned(self.ceiling.get()))) == 0 {
            return 0;
        }
        lack(self.exact_peak())
    }

    /// Returns the maximum over all times and lowers the ceiling to it.
    fn exact_peak(&self) -> u64 {
        let peak = self.peak();
        self.ceiling.set(signed(peak.saturating_sub(self.base)));
        self.added.set(0);
        peak
    }

    /// Returns the earliest time from `first` on after which additional memory never exceeds a
    /// limit.
    ///
    /// # Errors
    /// How much the limit lacks, if there is no such time.
    pub(super) fn earliest(&self, first: u64, bytes: u64, limit: u64) -> Result<u64, u64> {
        let needed = self.base.saturating_add(bytes);
        let room = limit.checked_sub(needed).map(signed);
        let Some(room) = room.filter(|room| self.last <= *room) else {
            return Err(needed.saturating_add(unsigned(self.last)).saturating_sub(limit));
        };
        // Rarely enough that it costs no more than adding.
        if self.ceiling.get() > room && self.added.get() > self.steps.len() {
            self.exact_peak();
        }
        if self.ceiling.get() <= room {
            return Ok(first);
        }
        let mut level = self.last;
        for (at, step) in self.steps.range(first.saturating_add(1)..).rev() {
            level = level.saturating_sub(*step);
            if level > room {
                return Ok(*at);
            }
        }
        Ok(first)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_found_after_the_last_time_without_it() {
        let mut memory = Memory::default();
        memory.add_always(10);
        memory.add(0, 50);
        memory.release(30, 50);
        memory.add(40, 20);
        assert_eq!((memory.peak(), memory.left()), (60, 30));
        assert_eq!(memory.earliest(0, 40, 100), Ok(0));
        assert_eq!(memory.earliest(0, 41, 100), Ok(30));
        assert_eq!(memory.earliest(35, 70, 100), Ok(35));
        assert_eq!(memory.earliest(0, 71, 100), Err(1));
        assert_eq!(memory.earliest(0, 200, 100), Err(130));
    }

    #[test]
    fn memory_for_all_times_is_compared_with_the_peak() {
        let mut memory = Memory::default();
        memory.add(5, 60);
        memory.release(6, 60);
        memory.add(7, 60);
        memory.release(8, 60);
        assert_eq!(memory.lack_always(40, 100), 0);
        assert_eq!(memory.lack_always(45, 100), 5);
    }
}
