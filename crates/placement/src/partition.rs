//! Finds the best division of a pool into sets of one size, exactly.
//!
//! A dynamic programme over sets: combine each set that contains the lowest device of `free` with
//! the best division of the rest; the best combination is the best division of `free`. Fixing the
//! lowest device counts each division once instead of once per order. If the size does not divide
//! the number of devices, one smaller set takes the rest, and its pairs count too. Whether it was
//! taken already follows from the number of remaining devices, so the rest alone is the state.
//! There are at most 2^16 states, and only reachable ones are computed.

use crate::scores::{Scores, sets};

/// The most free devices for which the search is exact; above this, it stops after a number of
/// steps.
pub const MAX_EXACT: usize = 16;

/// A set of devices, like [`Set`](crate::scores::Set), with as many bits as needed here.
type Small = u32;

/// The value of a division; the greatest is the best.
///
/// The total comes first. Among equal totals, the division with the best worst set wins: DGX-1 with
/// V100 can be divided into four pairs of 230, or into two of 250 and two of 210. The value is one
/// number, with the total in the upper bits and the worst set below, because most of the time goes
/// into comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rating(u64);

impl Rating {
    /// The value is unknown.
    const UNKNOWN: Rating = Rating::below(u32::MAX);

    /// Only an upper bound is known: the total is lower than this.
    const fn below(total: u32) -> Rating {
        Rating(1 << 63 | total as u64)
    }

    /// Returns the exclusive upper bound on the total, if only that is known.
    fn is_below(self) -> Option<u32> {
        (self.0 >> 63 != 0).then_some(self.0 as u32)
    }

    /// The value of dividing no devices.
    const NOTHING: Rating = Rating(u32::MAX as u64);

    /// Returns the sum over all sets.
    pub(crate) fn total(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Adds a set of full size.
    fn with_full(self, sum: u32) -> Self {
        let worst = (self.0 as u32).min(sum);
        Rating(u64::from(self.total() + sum) << 32 | u64::from(worst))
    }

    /// Adds the smaller set, which does not count as the worst one.
    fn with_small(self, sum: u32) -> Self {
        Rating(self.0 + (u64::from(sum) << 32))
    }
}

/// The best division of some devices so far.
struct Best {
    /// Its value, or the value it must reach.
    rating: Rating,
    /// Its set with the lowest device; empty if none was found yet.
    set: Small,
    /// An upper bound on every division.
    most: Rating,
    /// The minimum sum of the next set with which a division can be as good.
    needs: u32,
    /// Whether the devices outside that set form a single set.
    is_last: bool,
}

/// The best divisions of the sets of a pool, computed on demand.
pub(crate) struct Divisions {
    size: u32,
    /// The sum of the scores within each set.
    sums: Vec<u32>,
    /// The value of the best division of each set.
    ratings: Vec<Rating>,
    /// The set with the lowest device in that division.
    lowest: Vec<u16>,
    /// The highest sum of a set of full size, and of the smaller one.
    highest: u32,
    highest_small: u32,
}

impl Divisions {
    /// Takes a pool of at most [`MAX_EXACT`] devices.
    pub(crate) fn new(scores: &Scores, size: usize) -> Self {
        let count = scores.count();
        let sums = sums(scores);
        let highest = |size| sets(count, size).map(|set| sums[set as usize]).max().unwrap_or(0);
        let (highest, highest_small) = (highest(size), highest(count % size));
        let mut ratings = vec![Rating::UNKNOWN; 1 << count];
        ratings[0] = Rating::NOTHING;
        let lowest = vec![0; 1 << count];
        Divisions { size: size as u32, sums, ratings, lowest, highest, highest_small }
    }

    /// Returns the sum of the scores within a set.
    pub(crate) fn sum(&self, set: Small) -> u32 {
        self.sums[set as usize]
    }

    /// Returns the value of the best division of `free`, which has as many devices as the pool less
    /// a multiple of the size; `None` if its total is below `least`, which is cheaper to find.
    pub(crate) fn rating(&mut self, free: Small, least: u32) -> Option<Rating> {
        let known = self.ratings[free as usize];
        match known.is_below() {
            Some(total) if least >= total => None,
            Some(_) => self.find(free, least),
            None => (known.total() >= least).then_some(known),
        }
    }

    /// Returns the value of the best division of both sets together that contains `set`; `None` if
    /// its total is below `least`.
    pub(crate) fn rating_with(&mut self, set: Small, rest: Small, least: u32) -> Option<Rating> {
        let sum = self.sum(set);
        Some(self.rating(rest, least.saturating_sub(sum))?.with_full(sum))
    }

    fn find(&mut self, free: Small, least: u32) -> Option<Rating> {
        let count = free.count_ones();
        let small = count % self.size;
        let lowest = free & free.wrapping_neg();
        let mut best = Best {
            rating: Rating(u64::from(least) << 32),
            set: 0,
            most: self.most(count),
            needs: 0,
            is_last: false,
        };
        if count <= self.size {
            self.took(free, free, small == 0, &mut best);
        } else {
            for (size, is_full) in [(self.size, true), (small, false)] {
                if size > 0 {
                    let rest = count - size;
                    best.is_last = rest <= self.size;
                    best.needs = best.rating.total().saturating_sub(self.most(rest).total());
                    self.take(free, lowest, free ^ lowest, size - 1, is_full, &mut best);
                }
            }
        }
        if best.set == 0 {
            self.ratings[free as usize] = Rating::below(least);
            return None;
        }
        self.ratings[free as usize] = best.rating;
        self.lowest[free as usize] = best.set as u16;
        Some(best.rating)
    }

    /// Returns an upper bound on divisions of this many devices.
    fn most(&self, count: u32) -> Rating {
        let full = count / self.size;
        let small = if count.is_multiple_of(self.size) { 0 } else { self.highest_small };
        let worst = if full == 0 { u32::MAX } else { self.highest };
        Rating(u64::from(full * self.highest + small) << 32 | u64::from(worst))
    }

    /// Completes `set` with `wanted` of the `candidates`, in each way that may be better than the
    /// best so far.
    fn take(
        &mut self,
        free: Small,
        set: Small,
        mut candidates: Small,
        wanted: u32,
        is_full: bool,
        best: &mut Best,
    ) {
        if wanted == 0 {
            self.took(free, set, is_full, best);
        } else if wanted == 1 && best.is_last {
            // Most of the time is spent here.
            while candidates != 0 {
                let candidate = candidates & candidates.wrapping_neg();
                candidates ^= candidate;
                let set = set | candidate;
                if self.sum(set) + self.sum(free ^ set) >= best.rating.total() {
                    self.took(free, set, is_full, best);
                }
            }
        } else if wanted == 1 {
            while candidates != 0 {
                let candidate = candidates & candidates.wrapping_neg();
                candidates ^= candidate;
                if self.sum(set | candidate) >= best.needs {
                    self.took(free, set | candidate, is_full, best);
                }
            }
        } else {
            let mut left = candidates.count_ones();
            while left >= wanted && best.rating < best.most {
                let candidate = candidates & candidates.wrapping_neg();
                candidates ^= candidate;
                left -= 1;
                self.take(free, set | candidate, candidates, wanted - 1, is_full, best);
            }
        }
    }

    /// Evaluates the division of `free` into a set and the best division of the rest.
    fn took(&mut self, free: Small, set: Small, is_full: bool, best: &mut Best) {
        let rest = free ^ set;
        let sum = self.sum(set);
        let least = best.rating.total().saturating_sub(sum);
        let Some(rating) = self.rating(rest, least) else { return };
        let rating = if is_full { rating.with_full(sum) } else { rating.with_small(sum) };
        if rating >= best.rating {
            best.rating = rating;
            best.set = set;
            let rest_most = self.most(rest.count_ones()).total();
            best.needs = rating.total().saturating_sub(rest_most);
        }
    }

    /// Returns the sets of the best division of `free`.
    pub(crate) fn division(&mut self, mut free: Small) -> Vec<Small> {
        let mut sets = Vec::new();
        while free != 0 {
            self.rating(free, 0);
            let set = Small::from(self.lowest[free as usize]);
            sets.push(set);
            free ^= set;
        }
        sets
    }
}

/// Returns the sum of the scores within each set: that of the set without its highest device, plus
/// the scores between that device and the others.
fn sums(scores: &Scores) -> Vec<u32> {
    let mut sums = vec![0; 1 << scores.count()];
    for high in 1..scores.count() {
        let (without, with) = sums[..2 << high].split_at_mut(1 << high);
        for set in 1_usize..1 << high {
            let to_lowest = scores.pair(high, set.trailing_zeros() as usize);
            with[set] = with[set & (set - 1)] + to_lowest;
        }
        for (with, without) in with.iter_mut().zip(without) {
            *with += *without;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::Set;

    #[test]
    fn set_sums_equal_pair_sums() {
        let scores = Scores::of(6, |from, to| (from * to + from + to) as u32);
        let sums = sums(&scores);
        for (set, sum) in sums.iter().enumerate() {
            assert_eq!(*sum, scores.within(set as Set), "{set:b}");
        }
    }

    #[test]
    fn partition_uses_each_device_once_and_has_total() {
        for size in 1..=7 {
            let scores = Scores::of(7, |from, to| ((from * 7 + to * 3) % 5) as u32);
            let mut divisions = Divisions::new(&scores, size);
            let total = divisions.rating(0x7f, 0).unwrap().total();
            let sets = divisions.division(0x7f);
            assert_eq!(sets.iter().fold(0, |all, set| all ^ set), 0x7f, "{size}");
            assert_eq!(sets.iter().map(|set| divisions.sum(*set)).sum::<u32>(), total, "{size}");
            let small = sets.iter().filter(|set| set.count_ones() as usize != size);
            assert_eq!(small.count(), usize::from(7 % size != 0), "{size}");
        }
    }
}
