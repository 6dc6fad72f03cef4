//! What the allocator counts while it works.
//!
//! Each number is kept for both kinds of pool and for their sum. What was freed is not kept: it is
//! what was ever added less what there is.

use crate::trace::SegmentKind;

/// How many numbers there are for each kind of pool.
pub(super) const METRICS: usize = 9;

/// What is counted; the first five change with each allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Allocation,
    AllocatedBytes,
    Active,
    ActiveBytes,
    RequestedBytes,
    Segment,
    ReservedBytes,
    InactiveSplit,
    InactiveSplitBytes,
}

/// How many of the numbers change with each allocation.
const OF_AN_ALLOCATION: usize = 5;
/// Which of these change at once when memory is given back, and which when it is free again.
const GIVEN_BACK: usize = 2;

/// The numbers of one kind of pool, or of both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) current: [u64; METRICS],
    pub(super) peak: [u64; METRICS],
    /// Everything that was ever added; it may pass 2^64 and begin anew.
    added: [u64; METRICS],
    /// What there was when `added` was last set to zero.
    before: [u64; METRICS],
}

impl Tally {
    fn add(&mut self, place: usize, amount: u64) {
        let current = self.current[place] + amount;
        self.current[place] = current;
        self.added[place] = self.added[place].wrapping_add(amount);
        self.peak[place] = self.peak[place].max(current);
    }

    /// Returns all that was added, and all that was taken off, since they were last set to zero.
    pub(super) fn moved(&self, place: usize) -> (u64, u64) {
        let added = self.added[place];
        (added, self.before[place].wrapping_add(added).wrapping_sub(self.current[place]))
    }

    fn reset_peaks(&mut self) {
        self.peak = self.current;
    }

    fn reset_moved(&mut self) {
        self.added = [0; METRICS];
        self.before = self.current;
    }
}

/// One number of things beyond `max_split_size`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Oversize {
    pub(super) current: u64,
    pub(super) peak: u64,
    pub(super) added: u64,
    pub(super) freed: u64,
}

impl Oversize {
    pub(super) fn add(&mut self) {
        self.current += 1;
        self.added += 1;
        self.peak = self.peak.max(self.current);
    }

    /// Takes one off, if there is one: what is oversize changes with the settings.
    pub(super) fn take(&mut self) {
        if self.current > 0 {
            self.current -= 1;
            self.freed += 1;
        }
    }
}

/// Everything that is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) all: Tally,
    small: Tally,
    large: Tally,
    pub(super) oversize_allocations: Oversize,
    pub(super) oversize_segments: Oversize,
    pub(super) retries: u64,
    pub(super) out_of_memory: u64,
    pub(super) synchronizations: u64,
    pub(super) device_allocations: u64,
    pub(super) device_frees: u64,
}

impl Counters {
    pub(super) fn of(&self, kind: SegmentKind) -> &Tally {
        match kind {
            SegmentKind::Small => &self.small,
            SegmentKind::Large => &self.large,
        }
    }

    fn of_mut(&mut self, kind: SegmentKind) -> &mut Tally {
        match kind {
            SegmentKind::Small => &mut self.small,
            SegmentKind::Large => &mut self.large,
        }
    }

    /// Returns what there is now of something.
    pub(super) fn now(&self, metric: Metric) -> u64 {
        self.all.current[metric as usize]
    }

    /// Counts more of something.
    pub(super) fn add(&mut self, kind: SegmentKind, metric: Metric, amount: u64) {
        self.all.add(metric as usize, amount);
        self.of_mut(kind).add(metric as usize, amount);
    }

    /// Counts less of something.
    pub(super) fn take(&mut self, kind: SegmentKind, metric: Metric, amount: u64) {
        self.all.current[metric as usize] -= amount;
        self.of_mut(kind).current[metric as usize] -= amount;
    }

    /// Counts a change of something in either direction.
    pub(super) fn change(&mut self, kind: SegmentKind, metric: Metric, more: u64, less: u64) {
        if more > less {
            self.add(kind, metric, more - less);
        } else if less > more {
            self.take(kind, metric, less - more);
        }
    }

    /// Counts memory that is handed out.
    pub(super) fn hand_out(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        let amounts: [u64; OF_AN_ALLOCATION] = [1, size, 1, size, requested];
        for (place, amount) in amounts.into_iter().enumerate() {
            self.all.add(place, amount);
        }
        let tally = self.of_mut(kind);
        for (place, amount) in amounts.into_iter().enumerate() {
            tally.add(place, amount);
        }
    }

    /// Counts memory that the program gave back.
    pub(super) fn give_back(&mut self, kind: SegmentKind, size: u64) {
        let amounts: [u64; GIVEN_BACK] = [1, size];
        for (place, amount) in amounts.into_iter().enumerate() {
            self.all.current[place] -= amount;
        }
        let tally = self.of_mut(kind);
        for (place, amount) in amounts.into_iter().enumerate() {
            tally.current[place] -= amount;
        }
    }

    /// Counts memory that nothing uses any more.
    pub(super) fn end(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        let amounts: [u64; OF_AN_ALLOCATION - GIVEN_BACK] = [1, size, requested];
        for (place, amount) in amounts.into_iter().enumerate() {
            self.all.current[GIVEN_BACK + place] -= amount;
        }
        let tally = self.of_mut(kind);
        for (place, amount) in amounts.into_iter().enumerate() {
            tally.current[GIVEN_BACK + place] -= amount;
        }
    }

    pub(super) fn reset_peaks(&mut self) {
        for tally in [&mut self.all, &mut self.small, &mut self.large] {
            tally.reset_peaks();
        }
        for oversize in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            oversize.peak = oversize.current;
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        for tally in [&mut self.all, &mut self.small, &mut self.large] {
            tally.reset_moved();
        }
        for oversize in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            (oversize.added, oversize.freed) = (0, 0);
        }
        (self.retries, self.out_of_memory, self.synchronizations) = (0, 0, 0);
        (self.device_allocations, self.device_frees) = (0, 0);
    }
}
