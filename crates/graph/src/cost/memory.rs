//! The memory in use on a processor, over time.

use std::cell::Cell;

/// The most steps of a chunk.
const MOST_STEPS: usize = 48;

/// The memory in use as a step function of time.
///
/// Until the last use of a value is known, it counts from its creation to the end. A partial
/// schedule therefore never counts less than the complete one uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The memory in use all the time.
    base: u64,
    /// The steps in order of time. A chunk is skipped as a whole if its highest level allows it.
    chunks: Vec<Chunk>,
    /// The memory in use at the end, without the base.
    last: i64,
    /// At least the maximum over all times, without the base.
    ceiling: Cell<i64>,
}

/// Consecutive steps; at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunk {
    /// Times, each with the change of the level.
    steps: Vec<(u64, i64)>,
    /// The sum of the changes.
    sum: i64,
    /// The highest level after any of the steps, above that before the first.
    highest: i64,
}

impl Chunk {
    fn of(steps: Vec<(u64, i64)>) -> Chunk {
        let mut chunk = Chunk { steps, ..Chunk::default() };
        chunk.count();
        chunk
    }

    fn count(&mut self) {
        (self.sum, self.highest) = (0, i64::MIN);
        for (_, change) in &self.steps {
            self.sum = self.sum.saturating_add(*change);
            self.highest = self.highest.max(self.sum);
        }
    }
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
        // The last chunk that begins no later.
        let begins_later = |chunk: &Chunk| chunk.steps.first().is_none_or(|(first, _)| *first > at);
        let number = self.chunks.partition_point(|chunk| !begins_later(chunk)).saturating_sub(1);
        let Some(chunk) = self.chunks.get_mut(number) else {
            self.chunks.push(Chunk::of(vec![(at, bytes)]));
            return;
        };
        let index = chunk.steps.partition_point(|(time, _)| *time < at);
        match chunk.steps.get_mut(index) {
            Some((time, change)) if *time == at => *change = change.saturating_add(bytes),
            _ => chunk.steps.insert(index, (at, bytes)),
        }
        if chunk.steps.len() > MOST_STEPS {
            let later = chunk.steps.split_off(MOST_STEPS / 2);
            chunk.count();
            self.chunks.insert(number + 1, Chunk::of(later));
        } else {
            chunk.count();
        }
    }

    /// Returns the maximum over all times.
    pub(super) fn peak(&self) -> u64 {
        let mut level = 0_i64;
        let mut peak = 0;
        for chunk in &self.chunks {
            peak = peak.max(level.saturating_add(chunk.highest));
            level = level.saturating_add(chunk.sum);
        }
        self.base.saturating_add(unsigned(peak))
    }

    /// Returns the memory in use at the end.
    pub(super) fn left(&self) -> u64 {
        self.base.saturating_add(unsigned(self.last))
    }

    /// Returns how much additional memory at all times exceeds a limit; 0 if it fits.
    pub(super) fn lack_always(&self, bytes: u64, limit: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let lack = |peak: u64| peak.saturating_add(bytes).saturating_sub(limit);
        if lack(self.base.saturating_add(unsigned(self.ceiling.get()))) == 0 {
            return 0;
        }
        let peak = self.peak();
        self.ceiling.set(signed(peak.saturating_sub(self.base)));
        lack(peak)
    }

    /// Returns the earliest time from `first` on after which additional memory never exceeds a
    /// limit.
    ///
    /// # Errors
    /// By how much the limit is exceeded, if there is no such time.
    pub(super) fn earliest(&self, first: u64, bytes: u64, limit: u64) -> Result<u64, u64> {
        let needed = self.base.saturating_add(bytes);
        let room = limit.checked_sub(needed).map(signed);
        let Some(room) = room.filter(|room| self.last <= *room) else {
            return Err(needed.saturating_add(unsigned(self.last)).saturating_sub(limit));
        };
        if self.ceiling.get() <= room {
            return Ok(first);
        }
        let mut level = self.last;
        for chunk in self.chunks.iter().rev() {
            let before = level.saturating_sub(chunk.sum);
            if before.max(before.saturating_add(chunk.highest)) > room {
                for (at, change) in chunk.steps.iter().rev() {
                    if *at <= first {
                        return Ok(first);
                    }
                    level = level.saturating_sub(*change);
                    if level > room {
                        return Ok(*at);
                    }
                }
            }
            if chunk.steps.first().is_some_and(|(at, _)| *at <= first) {
                break;
            }
            level = before;
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

    /// The same, without chunks.
    fn plain(steps: &[(u64, i64)], first: u64, room: i64) -> Option<u64> {
        let level = |at: u64| -> i64 {
            steps.iter().filter(|(time, _)| *time <= at).map(|(_, by)| by).sum()
        };
        let mut times: Vec<u64> =
            steps.iter().map(|(at, _)| *at).filter(|at| *at > first).collect();
        times.sort_unstable();
        let exceeds = |at: u64| -> bool { level(at) > room };
        if exceeds(u64::MAX) {
            return None;
        }
        let before = |at: &u64| exceeds(at - 1);
        Some(times.iter().rev().find(|at| before(at)).copied().unwrap_or(first))
    }

    #[test]
    fn chunks_do_not_change_results() {
        let mut state = 7_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let (mut memory, mut steps) = (Memory::default(), Vec::new());
        for round in 0..2_000_u64 {
            // Sometimes near the end, sometimes anywhere, and often at the time of a step.
            let from = if random(4) == 0 { 0 } else { round };
            let (at, lasting, bytes) = (1 + from + random(40), 1 + random(60), 1 + random(9));
            memory.add(at, bytes);
            memory.release(at + lasting, bytes);
            steps.extend([(at, bytes as i64), (at + lasting, -(bytes as i64))]);
            if round % 50 == 0 {
                let peak = steps.iter().map(|(at, _)| {
                    steps.iter().filter(|(time, _)| time <= at).map(|(_, by)| by).sum::<i64>()
                });
                assert_eq!(Some(memory.peak() as i64), peak.max());
                for _ in 0..20 {
                    let (first, limit) = (random(round + 100), random(memory.peak() + 20));
                    let bytes = random(5);
                    let found = memory.earliest(first, bytes, limit).ok();
                    let room = limit as i64 - bytes as i64;
                    let expected = if room < 0 { None } else { plain(&steps, first, room) };
                    assert_eq!(found, expected, "round {round}, first {first}, room {room}");
                }
            }
        }
        assert!(memory.chunks.len() > 20);
    }
}
