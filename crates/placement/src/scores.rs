//! Scores of the connections in a pool, by pair and by set.

/// The maximum number of devices to choose from; no machine has more.
pub(crate) const MAX: usize = 64;

/// A set of devices in a pool: one bit for each, by its position in the pool.
pub(crate) type Set = u64;

/// Returns the positions in a set, ascending.
pub(crate) fn positions(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let position = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            position
        })
    })
}

/// Returns the set of the first `count` devices.
pub(crate) fn first(count: usize) -> Set {
    debug_assert!(count <= MAX);
    if count == MAX { Set::MAX } else { (1 << count) - 1 }
}

/// Returns all sets of `size` among the first `count` devices, as numbers ascending.
pub(crate) fn sets(count: usize, size: usize) -> impl Iterator<Item = Set> {
    let mut next = (size <= count && size > 0).then(|| first(size));
    std::iter::from_fn(move || {
        let set = next?;
        // The next larger number with the same number of ones: the highest bit of the lowest run of
        // ones moves up by one, and the others move to the bottom.
        let lowest = set & set.wrapping_neg();
        next = set.checked_add(lowest).and_then(|up| {
            let fallen = ((up ^ set) >> 2) >> lowest.trailing_zeros();
            let set = up | fallen;
            (set & !first(count) == 0).then_some(set)
        });
        Some(set)
    })
}

/// The score of each pair.
pub(crate) struct Scores {
    count: usize,
    cells: Vec<u32>,
}

impl Scores {
    /// Takes the score of each pair; if it depends on the direction, the lower one.
    pub(crate) fn of(count: usize, score: impl Fn(usize, usize) -> u32) -> Self {
        let mut cells = vec![0; count * count];
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                cells[from * count + to] = score(from, to).min(score(to, from));
            }
        }
        Scores { count, cells }
    }

    /// Returns the number of devices.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the score of a pair; 0 between a device and itself.
    pub(crate) fn pair(&self, from: usize, to: usize) -> u32 {
        self.cells[from * self.count + to]
    }

    /// Returns the sum of the scores between a device and those of a set.
    pub(crate) fn between(&self, device: usize, set: Set) -> u32 {
        positions(set).map(|other| self.pair(device, other)).sum()
    }

    /// Returns the sum of the scores of all pairs in a set.
    pub(crate) fn within(&self, set: Set) -> u32 {
        positions(set).map(|device| self.between(device, set)).sum::<u32>() / 2
    }

    /// Returns whether all pairs have the same score.
    pub(crate) fn are_alike(&self) -> bool {
        let pairs = (0..self.count).flat_map(|from| (0..from).map(move |to| (from, to)));
        let mut scores = pairs.map(|(from, to)| self.pair(from, to));
        let first = scores.next();
        scores.all(|score| Some(score) == first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_a_size_are_enumerated_once() {
        for count in 0..=10 {
            for size in 0..=count + 1 {
                let listed: Vec<Set> = sets(count, size).collect();
                let counted: Vec<Set> =
                    (1..1 << count).filter(|set: &Set| set.count_ones() as usize == size).collect();
                assert_eq!(listed, counted, "{size} of {count}");
            }
        }
        assert_eq!(sets(MAX, MAX).collect::<Vec<_>>(), [Set::MAX]);
        assert_eq!(sets(MAX, MAX - 1).count(), MAX);
        assert_eq!(sets(MAX, 1).last(), Some(1 << 63));
    }

    #[test]
    fn sum_counts_each_pair_once() {
        let scores = Scores::of(4, |from, to| if from < to { 10 * from as u32 + 1 } else { 99 });
        assert_eq!(scores.pair(1, 3), 11);
        assert_eq!(scores.pair(3, 1), 11);
        assert_eq!(scores.within(0b1111), 3 + 2 * 11 + 21);
        assert_eq!(scores.within(0b1000), 0);
        assert_eq!(scores.between(3, 0b0011), 12);
        assert!(!scores.are_alike());
        assert!(Scores::of(5, |_, _| 7).are_alike());
        assert!(Scores::of(1, |_, _| 7).are_alike());
    }
}
