//! The busy times of a processor or one of its ports.

/// The number of gaps that a timeline remembers. Items arrive roughly in the order of time, so only
/// the latest gaps are useful; the limit keeps the time for each item constant.
const GAPS: usize = 64;

/// Busy time, represented by the gaps before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    /// Start and end of each gap, in order.
    gaps: Vec<(u64, u64)>,
    end: u64,
}

impl Timeline {
    /// Returns the earliest time from `ready` on with room for a length.
    pub(super) fn earliest(&self, ready: u64, length: u64) -> u64 {
        if length == 0 || ready >= self.end {
            return ready;
        }
        let first = self.gaps.partition_point(|gap| gap.1 <= ready);
        let fit = self.gaps.iter().skip(first).map(|gap| (gap.0.max(ready), gap.1));
        let mut fit = fit.filter(|(start, end)| end - start >= length);
        fit.next().map_or(self.end, |(start, _)| start)
    }

    /// Marks a time returned by [`Timeline::earliest`] as busy.
    pub(super) fn book(&mut self, start: u64, length: u64) {
        let stop = start.saturating_add(length);
        if length == 0 {
            return;
        }
        if start >= self.end {
            if start > self.end {
                self.gaps.push((self.end, start));
            }
            self.end = stop;
        } else {
            let at = self.gaps.partition_point(|gap| gap.1 <= start);
            let Some(gap) = self.gaps.get_mut(at) else { return };
            let (from, to) = *gap;
            match (from < start, stop < to) {
                (true, true) => {
                    *gap = (from, start);
                    self.gaps.insert(at + 1, (stop, to));
                }
                (true, false) => *gap = (from, start),
                (false, true) => *gap = (stop, to),
                (false, false) => drop(self.gaps.remove(at)),
            }
        }
        if self.gaps.len() > GAPS {
            self.gaps.remove(0);
        }
    }

    /// Drops the gaps: further work is appended.
    pub(super) fn close_gaps(&mut self) {
        self.gaps.clear();
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

/// Returns the earliest time from `ready` on at which both have room for a length.
pub(super) fn earliest_common(a: &Timeline, b: &Timeline, ready: u64, length: u64) -> u64 {
    let mut at = ready;
    loop {
        let next = b.earliest(a.earliest(at, length), length);
        if next == at {
            return at;
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_from_the_front_and_split() {
        let mut timeline = Timeline::default();
        timeline.book(100, 50);
        assert_eq!(timeline.earliest(0, 100), 0);
        assert_eq!(timeline.earliest(0, 101), 150);
        timeline.book(40, 20);
        assert_eq!(timeline.gaps, [(0, 40), (60, 100)]);
        assert_eq!(timeline.earliest(0, 40), 0);
        assert_eq!(timeline.earliest(10, 40), 60);
        timeline.book(60, 40);
        assert_eq!((timeline.gaps.clone(), timeline.end), (vec![(0, 40)], 150));
        assert_eq!(timeline.earliest(70, 0), 70);
    }

    #[test]
    fn common_room_is_free_on_both() {
        let (mut a, mut b) = (Timeline::default(), Timeline::default());
        a.book(0, 10);
        a.book(20, 10);
        b.book(10, 5);
        b.book(30, 5);
        assert_eq!(earliest_common(&a, &b, 0, 5), 15);
        assert_eq!(earliest_common(&a, &b, 0, 6), 35);
    }

    #[test]
    fn only_the_latest_gaps_are_kept() {
        let mut timeline = Timeline::default();
        for at in 0..200 {
            timeline.book(at * 10 + 5, 5);
        }
        assert_eq!(timeline.gaps.len(), GAPS);
        assert_eq!(timeline.earliest(0, 5), (200 - GAPS as u64) * 10);
    }
}
