//! The best division of a pool into sets of one size, exactly.
//!
//! A dynamic programme over sets: the best division of `free` is the best, over all sets with the
//! lowest device of `free`, of that set and the best division of the rest. To fix the lowest device
//! counts each division once instead of once per order. Where the size does not divide the number
//! of devices, one smaller set takes what is left over, and its pairs count too; whether it was
//! taken already follows from how many devices are left, so that the rest alone is the state. At
//! most 2^16 states, and only those that are reached.

use crate::scores::Scores;

/// The most free devices of which the best division is found exactly; beyond, by a search that ends.
pub const MOST_EXACT: usize = 16;

/// A set of devices; as [`Set`](crate::scores::Set), with as many bits as are needed here.
type Small = u32;

const UNKNOWN: u32 = u32::MAX;

/// The best divisions of all sets of a pool that were asked for.
pub(crate) struct Divisions {
    size: u32,
    /// The sum of the scores within each set.
    sums: Vec<u32>,
    /// The total of the best division of each set.
    totals: Vec<u32>,
    /// The set with the lowest device in that division.
    lowest: Vec<u16>,
}

impl Divisions {
    /// Takes a pool of at most [`MOST_EXACT`] devices.
    pub(crate) fn new(scores: &Scores, size: usize) -> Self {
        let all = 1 << scores.count();
        Divisions {
            size: size as u32,
            sums: sums(scores),
            totals: vec![UNKNOWN; all],
            lowest: vec![0; all],
        }
    }

    /// Returns the sum of the scores within a set.
    pub(crate) fn sum(&self, set: Small) -> u32 {
        self.sums[set as usize]
    }

    /// Returns the total of the best division of `free`: of as many devices as the pool has, less
    /// a multiple of the size.
    pub(crate) fn total(&mut self, free: Small) -> u32 {
        let known = self.totals[free as usize];
        if known != UNKNOWN {
            return known;
        }
        let count = free.count_ones();
        let (total, set) = if count <= self.size {
            (self.sum(free), free)
        } else {
            let lowest = free & free.wrapping_neg();
            let others = free ^ lowest;
            let mut best = self.best(free, lowest, others, self.size - 1);
            let small = count % self.size;
            if small != 0 {
                best = best.max(self.best(free, lowest, others, small - 1));
            }
            best
        };
        self.totals[free as usize] = total;
        self.lowest[free as usize] = set as u16;
        total
    }

    /// Returns the best total of `free` over the sets made of `set` and `wanted` of the
    /// `candidates`, with that set.
    fn best(
        &mut self,
        free: Small,
        set: Small,
        mut candidates: Small,
        wanted: u32,
    ) -> (u32, Small) {
        if wanted == 0 {
            return (self.sum(set) + self.total(free ^ set), set);
        }
        let mut best = (0, set);
        let mut left = candidates.count_ones();
        while left >= wanted {
            let candidate = candidates & candidates.wrapping_neg();
            candidates ^= candidate;
            left -= 1;
            let set = set | candidate;
            let found = if wanted == 1 {
                let rest = free ^ set;
                let known = self.totals[rest as usize];
                let total = if known == UNKNOWN { self.total(rest) } else { known };
                (self.sum(set) + total, set)
            } else {
                self.best(free, set, candidates, wanted - 1)
            };
            best = best.max(found);
        }
        best
    }

    /// Returns the sets of the best division of `free`.
    pub(crate) fn division(&mut self, mut free: Small) -> Vec<Small> {
        let mut sets = Vec::new();
        while free != 0 {
            self.total(free);
            let set = Small::from(self.lowest[free as usize]);
            sets.push(set);
            free ^= set;
        }
        sets
    }
}

/// Returns the sum of the scores within each set: that of the set without its highest device, and
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
    fn sums_are_those_of_the_pairs() {
        let scores = Scores::of(6, |from, to| (from * to + from + to) as u32);
        let sums = sums(&scores);
        for (set, sum) in sums.iter().enumerate() {
            assert_eq!(*sum, scores.within(set as Set), "{set:b}");
        }
    }

    #[test]
    fn a_division_takes_each_device_once_and_has_the_total() {
        for size in 1..=7 {
            let scores = Scores::of(7, |from, to| ((from * 7 + to * 3) % 5) as u32);
            let mut divisions = Divisions::new(&scores, size);
            let total = divisions.total(0x7f);
            let sets = divisions.division(0x7f);
            assert_eq!(sets.iter().fold(0, |all, set| all ^ set), 0x7f, "{size}");
            assert_eq!(sets.iter().map(|set| divisions.sum(*set)).sum::<u32>(), total, "{size}");
            let small = sets.iter().filter(|set| set.count_ones() as usize != size);
            assert_eq!(small.count(), usize::from(7 % size != 0), "{size}");
        }
    }
}
