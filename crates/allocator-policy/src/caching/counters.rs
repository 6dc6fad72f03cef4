//! The allocator's counters.
//!
//! Each counter exists for both kinds of pool and for their sum. Freed amounts are not stored,
//! because they equal the cumulative increase minus the current level. Active amounts are not
//! stored either, because they equal the memory in use by the program plus the memory that waits
//! for work to end. Usually no memory waits; the peak of the active memory then equals that of the
//! memory in use.

use crate::segment::SegmentKind;

/// A counted quantity; each allocation changes the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Allocation,
    AllocatedBytes,
    RequestedBytes,
    Segment,
    ReservedBytes,
    InactiveSplit,
    InactiveSplitBytes,
}

/// The number of counters for each kind of pool.
const METRICS: usize = 7;

const KINDS: [SegmentKind; 2] = [SegmentKind::Small, SegmentKind::Large];

/// The current level of a quantity and its peak.
///
/// Stored as the difference to the peak: an increase is one subtraction, which also detects a new
/// peak, and a decrease is one addition.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    peak: u64,
    missing: u64,
}

impl Level {
    fn now(&self) -> u64 {
        self.peak - self.missing
    }

    #[inline]
    fn rise(&mut self, amount: u64) {
        let (missing, passed) = self.missing.overflowing_sub(amount);
        self.missing = missing;
        if passed {
            self.move_peak();
        }
    }

    /// Raises the peak to a higher level.
    #[cold]
    fn move_peak(&mut self) {
        self.peak = self.peak.wrapping_sub(self.missing);
        self.missing = 0;
    }

    #[inline]
    fn fall(&mut self, amount: u64) {
        self.missing += amount;
    }

    fn reset_peak(&mut self) {
        *self = Level { peak: self.now(), missing: 0 };
    }
}

/// One counter.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sum: Level,
    /// By kind of pool, like all following fields.
    level: [Level; 2],
    /// The cumulative increase; it may wrap around at 2^64.
    added: [u64; 2],
    /// The level when `added` was last reset.
    before: [u64; 2],
}

/// Blocks that were freed but are still in use.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// The number of blocks, and their bytes.
    current: [u64; 2],
    /// The peak of the active memory while blocks waited.
    peak: [u64; 2],
    before: [u64; 2],
}

/// The reported values of one quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) current: u64,
    pub(super) peak: u64,
    pub(super) added: u64,
    pub(super) freed: u64,
}

impl Totals {
    /// Adds one.
    pub(super) fn add(&mut self) {
        self.current += 1;
        self.added += 1;
        self.peak = self.peak.max(self.current);
    }

    /// Decrements, but not below zero: changing the settings also changes which blocks are
    /// oversize.
    pub(super) fn take(&mut self) {
        if self.current > 0 {
            self.current -= 1;
            self.freed += 1;
        }
    }

    fn sum(small: Totals, large: Totals, peak: u64) -> Self {
        Totals {
            current: small.current + large.current,
            peak,
            added: small.added.wrapping_add(large.added),
            freed: small.freed.wrapping_add(large.freed),
        }
    }
}

/// A quantity of both kinds of pool and of their sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolTotals {
    pub(super) all: Totals,
    pub(super) large: Totals,
    pub(super) small: Totals,
}

/// All counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// By metric.
    counts: [Count; METRICS],
    /// By kind of pool.
    waiting: [Waiting; 2],
    /// The number of waiting blocks.
    all_waiting: u64,
    /// The peak of the total active memory while blocks waited.
    peak_waiting: [u64; 2],
    pub(super) oversize_allocations: Totals,
    pub(super) oversize_segments: Totals,
    pub(super) retries: u64,
    pub(super) out_of_memory: u64,
    pub(super) synchronizations: u64,
    pub(super) device_allocations: u64,
    pub(super) device_frees: u64,
}

impl Count {
    #[inline]
    fn add(&mut self, kind: SegmentKind, amount: u64) {
        self.sum.rise(amount);
        self.level[kind as usize].rise(amount);
        let added = &mut self.added[kind as usize];
        *added = added.wrapping_add(amount);
    }

    #[inline]
    fn take(&mut self, kind: SegmentKind, amount: u64) {
        self.sum.fall(amount);
        self.level[kind as usize].fall(amount);
    }

    fn totals(&self, kind: SegmentKind) -> Totals {
        let index = kind as usize;
        let (current, added) = (self.level[index].now(), self.added[index]);
        let freed = self.before[index].wrapping_add(added).wrapping_sub(current);
        Totals { current, peak: self.level[index].peak, added, freed }
    }
}

impl Counters {
    /// Returns the current level.
    pub(super) fn now(&self, metric: Metric) -> u64 {
        self.counts[metric as usize].sum.now()
    }

    /// Returns the peak.
    pub(super) fn peak(&self, metric: Metric) -> u64 {
        self.counts[metric as usize].sum.peak
    }

    /// Returns the values of a quantity over time.
    pub(super) fn pool_totals(&self, metric: Metric) -> PoolTotals {
        let count = &self.counts[metric as usize];
        let [small, large] = KINDS.map(|kind| count.totals(kind));
        PoolTotals { all: Totals::sum(small, large, count.sum.peak), small, large }
    }

    /// Returns the number or the bytes of active blocks.
    pub(super) fn active(&self, metric: Metric) -> PoolTotals {
        let index = metric as usize;
        let [small, large] = KINDS.map(|kind| {
            let (totals, waiting) = (self.counts[index].totals(kind), &self.waiting[kind as usize]);
            Totals {
                current: totals.current + waiting.current[index],
                peak: totals.peak.max(waiting.peak[index]),
                added: totals.added,
                freed: (totals.freed.wrapping_add(waiting.before[index]))
                    .wrapping_sub(waiting.current[index]),
            }
        });
        let peak = self.peak(metric).max(self.peak_waiting[index]);
        PoolTotals { all: Totals::sum(small, large, peak), small, large }
    }

    /// Increases a quantity.
    #[inline]
    pub(super) fn add(&mut self, kind: SegmentKind, metric: Metric, amount: u64) {
        self.counts[metric as usize].add(kind, amount);
    }

    /// Decreases a quantity.
    #[inline]
    pub(super) fn take(&mut self, kind: SegmentKind, metric: Metric, amount: u64) {
        self.counts[metric as usize].take(kind, amount);
    }

    /// Counts an allocation.
    #[inline]
    pub(super) fn hand_out(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        self.add(kind, Metric::Allocation, 1);
        self.add(kind, Metric::AllocatedBytes, size);
        self.add(kind, Metric::RequestedBytes, requested);
        if self.all_waiting > 0 {
            self.note_active();
        }
    }

    /// Returns the current number or bytes of active blocks of a kind of pool.
    fn active_now(&self, kind: SegmentKind, index: usize) -> u64 {
        self.counts[index].level[kind as usize].now() + self.waiting[kind as usize].current[index]
    }

    #[cold]
    fn note_active(&mut self) {
        for index in 0..2 {
            let active = KINDS.map(|kind| self.active_now(kind, index));
            for (waiting, active) in self.waiting.iter_mut().zip(active) {
                waiting.peak[index] = waiting.peak[index].max(active);
            }
            self.peak_waiting[index] = self.peak_waiting[index].max(active.iter().sum());
        }
    }

    /// Counts memory that the program freed but that is still in use.
    pub(super) fn await_end(&mut self, kind: SegmentKind, size: u64) {
        self.all_waiting += 1;
        for (index, amount) in [1, size].into_iter().enumerate() {
            self.counts[index].take(kind, amount);
            self.waiting[kind as usize].current[index] += amount;
        }
    }

    /// Counts the end of such use.
    pub(super) fn end(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        self.all_waiting -= 1;
        for (index, amount) in [1, size].into_iter().enumerate() {
            self.waiting[kind as usize].current[index] -= amount;
        }
        self.take(kind, Metric::RequestedBytes, requested);
    }

    /// Counts memory that the program freed and that no work uses.
    #[inline]
    pub(super) fn give_back(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        self.take(kind, Metric::Allocation, 1);
        self.take(kind, Metric::AllocatedBytes, size);
        self.take(kind, Metric::RequestedBytes, requested);
    }

    pub(super) fn reset_peaks(&mut self) {
        for count in &mut self.counts {
            count.sum.reset_peak();
            count.level.iter_mut().for_each(Level::reset_peak);
        }
        for index in 0..2 {
            let active = KINDS.map(|kind| self.active_now(kind, index));
            for (waiting, active) in self.waiting.iter_mut().zip(active) {
                waiting.peak[index] = active;
            }
            self.peak_waiting[index] = active.iter().sum();
        }
        for totals in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            totals.peak = totals.current;
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        for count in &mut self.counts {
            count.added = [0; 2];
            count.before = count.level.map(|level| level.now());
        }
        for waiting in &mut self.waiting {
            waiting.before = waiting.current;
        }
        for totals in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            (totals.added, totals.freed) = (0, 0);
        }
        (self.retries, self.out_of_memory, self.synchronizations) = (0, 0, 0);
        (self.device_allocations, self.device_frees) = (0, 0);
    }
}
