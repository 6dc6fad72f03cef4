//! What the allocator counts while it works.
//!
//! Each number is kept for both kinds of pool, and of their sum the peak alone. What was freed is
//! not kept either: it is what was ever added less what there is. Nor is what is active, which is
//! what the program has and what awaits its end; as nothing does most of the time, the peak of what
//! is active is that of what the program has, but for the moments when something did.

use crate::trace::SegmentKind;

/// What is counted; the first three change with each allocation.
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

/// How many numbers there are for each kind of pool.
const METRICS: usize = 7;

/// The numbers of one kind of pool.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    current: [u64; METRICS],
    peak: [u64; METRICS],
    /// Everything that was ever added; it may pass 2^64 and begin anew.
    added: [u64; METRICS],
    /// What there was when `added` was last set to zero.
    before: [u64; METRICS],
    waiting: Waiting,
}

/// Blocks that were given back and are still in use.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// How many, and how many bytes.
    current: [u64; 2],
    /// The most that was active while there were any.
    peak: [u64; 2],
    before: [u64; 2],
}

/// One number over time, as it is told.
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

    /// Takes one off, if there is one: what is oversize changes with the settings.
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

/// A number of both kinds of pool and of their sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Courses {
    pub(super) all: Course,
    pub(super) large: Course,
    pub(super) small: Course,
}

/// Everything that is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    small: Tally,
    large: Tally,
    /// The peaks of the sums.
    peak: [u64; METRICS],
    /// The most that was active in sum while anything waited.
    peak_waiting: [u64; 2],
    pub(super) oversize_allocations: Course,
    pub(super) oversize_segments: Course,
    pub(super) retries: u64,
    pub(super) out_of_memory: u64,
    pub(super) synchronizations: u64,
    pub(super) device_allocations: u64,
    pub(super) device_frees: u64,
}

impl Tally {
    #[inline]
    fn add(&mut self, place: usize, amount: u64) {
        let current = self.current[place] + amount;
        self.current[place] = current;
        self.added[place] = self.added[place].wrapping_add(amount);
        self.peak[place] = self.peak[place].max(current);
    }

    fn course(&self, metric: Metric) -> Course {
        let place = metric as usize;
        let (current, added) = (self.current[place], self.added[place]);
        let freed = self.before[place].wrapping_add(added).wrapping_sub(current);
        Course { current, peak: self.peak[place], added, freed }
    }

    fn active(&self, place: usize) -> u64 {
        self.current[place] + self.waiting.current[place]
    }

    /// Returns the course of what is active; the place is that of what the program has.
    fn active_course(&self, place: usize) -> Course {
        let (current, added) = (self.active(place), self.added[place]);
        let before = self.before[place] + self.waiting.before[place];
        let peak = self.peak[place].max(self.waiting.peak[place]);
        Course { current, peak, added, freed: before.wrapping_add(added).wrapping_sub(current) }
    }
}

impl Counters {
    #[inline]
    fn of(&mut self, kind: SegmentKind) -> &mut Tally {
        match kind {
            SegmentKind::Small => &mut self.small,
            SegmentKind::Large => &mut self.large,
        }
    }

    /// Returns what there is now of something.
    pub(super) fn now(&self, metric: Metric) -> u64 {
        self.small.current[metric as usize] + self.large.current[metric as usize]
    }

    /// Returns the most that there was of something at once.
    pub(super) fn peak(&self, metric: Metric) -> u64 {
        self.peak[metric as usize]
    }

    /// Returns how something went.
    pub(super) fn courses(&self, metric: Metric) -> Courses {
        let (small, large) = (self.small.course(metric), self.large.course(metric));
        Courses { all: Course::sum(small, large, self.peak(metric)), small, large }
    }

    /// Returns how many blocks were active, or how many bytes of them.
    pub(super) fn active(&self, metric: Metric) -> Courses {
        let place = metric as usize;
        let (small, large) = (self.small.active_course(place), self.large.active_course(place));
        let peak = self.peak[place].max(self.peak_waiting[place]);
        Courses { all: Course::sum(small, large, peak), small, large }
    }

    #[inline]
    fn note_peak(&mut self, place: usize) {
        let sum = self.small.current[place] + self.large.current[place];
        self.peak[place] = self.peak[place].max(sum);
    }

    /// Counts more of something.
    #[inline]
    pub(super) fn add(&mut self, kind: SegmentKind, metric: Metric, amount: u64) {
        self.of(kind).add(metric as usize, amount);
        self.note_peak(metric as usize);
    }

    /// Counts less of something.
    #[inline]
    pub(super) fn take(&mut self, kind: SegmentKind, metric: Metric, amount: u64) {
        self.of(kind).current[metric as usize] -= amount;
    }

    /// Counts a change of something in either direction.
    #[inline]
    pub(super) fn change(&mut self, kind: SegmentKind, metric: Metric, more: u64, less: u64) {
        if more > less {
            self.add(kind, metric, more - less);
        } else if less > more {
            self.take(kind, metric, less - more);
        }
    }

    /// Counts memory that is handed out.
    #[inline]
    pub(super) fn hand_out(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        self.add(kind, Metric::Allocation, 1);
        self.add(kind, Metric::AllocatedBytes, size);
        self.add(kind, Metric::RequestedBytes, requested);
        if self.small.waiting.current[0] + self.large.waiting.current[0] > 0 {
            self.note_active();
        }
    }

    #[cold]
    fn note_active(&mut self) {
        for place in 0..2 {
            for tally in [&mut self.small, &mut self.large] {
                tally.waiting.peak[place] = tally.waiting.peak[place].max(tally.active(place));
            }
            let sum = self.small.active(place) + self.large.active(place);
            self.peak_waiting[place] = self.peak_waiting[place].max(sum);
        }
    }

    /// Counts memory that the program gave back and that is still in use.
    pub(super) fn await_end(&mut self, kind: SegmentKind, size: u64) {
        let tally = self.of(kind);
        for (place, amount) in [1, size].into_iter().enumerate() {
            tally.current[place] -= amount;
            tally.waiting.current[place] += amount;
        }
    }

    /// Counts memory that was still in use and is so no more.
    #[inline]
    pub(super) fn end(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        let tally = self.of(kind);
        tally.waiting.current[0] -= 1;
        tally.waiting.current[1] -= size;
        tally.current[Metric::RequestedBytes as usize] -= requested;
    }

    /// Counts memory that the program gave back and that nothing uses.
    #[inline]
    pub(super) fn give_back(&mut self, kind: SegmentKind, size: u64, requested: u64) {
        self.take(kind, Metric::Allocation, 1);
        self.take(kind, Metric::AllocatedBytes, size);
        self.take(kind, Metric::RequestedBytes, requested);
    }

    pub(super) fn reset_peaks(&mut self) {
        for place in 0..METRICS {
            self.peak[place] = self.small.current[place] + self.large.current[place];
        }
        for place in 0..2 {
            self.peak_waiting[place] = self.small.active(place) + self.large.active(place);
        }
        for tally in [&mut self.small, &mut self.large] {
            tally.peak = tally.current;
            tally.waiting.peak = [tally.active(0), tally.active(1)];
        }
        for course in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            course.peak = course.current;
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        for tally in [&mut self.small, &mut self.large] {
            tally.added = [0; METRICS];
            tally.before = tally.current;
            tally.waiting.before = tally.waiting.current;
        }
        for course in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            (course.added, course.freed) = (0, 0);
        }
        (self.retries, self.out_of_memory, self.synchronizations) = (0, 0, 0);
        (self.device_allocations, self.device_frees) = (0, 0);
    }
}
