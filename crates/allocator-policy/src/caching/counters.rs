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
pub(super) struct Course {
    pub(super) current: u64,
    pub(super) peak: u64,
    pub(super) added: u64,
    pub(super) freed: u64,
}

impl Course {
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

    fn sum(small: Course, large: Course, peak: u64) -> Self {
        Course {
            current: small.current + large.current,
            peak,
            added: small.added.wrapping_add(large.added),
            freed: small.freed.wrapping_add(large.freed),
        }
    }
}

/// A quantity of both kinds of pool and of their sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Courses {
    pub(super) all: Course,
    pub(super) large: Course,
    pub(super) small: Course,
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
    pub(super) oversize_allocations: Course,
    pub(super) oversize_segments: Course,
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

    fn course(&self, kind: SegmentKind) -> Course {
        let place = kind as usize;
        let (current, added) = (self.level[place].now(), self.added[place]);
        let freed = self.before[place].wrapping_add(added).wrapping_sub(current);
        Course { current, peak: self.level[place].peak, added, freed }
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
    pub(super) fn courses(&self, metric: Metric) -> Courses {
        let count = &self.counts[metric as usize];
        let [small, large] = KINDS.map(|kind| count.course(kind));
        Courses { all: Course::sum(small, large, count.sum.peak), small, large }
    }

    /// Returns the number or the bytes of active blocks.
    pub(super) fn active(&self, metric: Metric) -> Courses {
        let place = metric as usize;
        let [small, large] = KINDS.map(|kind| {
            let (course, waiting) = (self.counts[place].course(kind), &self.waiting[kind as usize]);
            Course {
                current: course.current + waiting.current[place],
                peak: course.peak.max(waiting.peak[place]),
                added: course.added,
                freed: (course.freed.wrapping_add(waiting.before[place]))
                    .wrapping_sub(waiting.current[place]),
            }
        });
        let peak = self.peak(metric).max(self.peak_waiting[place]);
        Courses { all: Course::sum(small, large, peak), small, large }
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
    fn active_now(&self, kind: SegmentKind, place: usize) -> u64 {
        self.counts[place].level[kind as usize].now() + self.waiting[kind as usize].current[place]
    }

    #[cold]
    fn note_active(&mut self) {
        for place in 0..2 {
            let active = KINDS.map(|kind| self.active_now(kind, place));
            for (waiting, active) in self.waiting.iter_mut().zip(active) {
                waiting.peak[place] = waiting.peak[place].max(active);
            }
            self.peak_waiting[place] = self.peak_waiting[place].max(active.iter().sum());
        }
    }

    /// Counts memory that the program freed but that is still in use.
    pub(super) fn await_end(&mut self, kind: SegmentKind, size: u64) {
        self.all_waiting += 1;
        for (place, amount) in [1, size].into_iter().enumerate() {
            self.counts[place].take(kind, amount);
            self.waiting[kind as usize].current[place] += amount;
        }
    }

    /// Counts the end of such use.
    pub(super) fn end(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        self.all_waiting -= 1;
        for (place, amount) in [1, size].into_iter().enumerate() {
            self.waiting[kind as usize].current[place] -= amount;
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
        for place in 0..2 {
            let active = KINDS.map(|kind| self.active_now(kind, place));
            for (waiting, active) in self.waiting.iter_mut().zip(active) {
                waiting.peak[place] = active;
            }
            self.peak_waiting[place] = active.iter().sum();
        }
        for course in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            course.peak = course.current;
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
        for course in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            (course.added, course.freed) = (0, 0);
        }
        (self.retries, self.out_of_memory, self.synchronizations) = (0, 0, 0);
        (self.device_allocations, self.device_frees) = (0, 0);
    }
}
