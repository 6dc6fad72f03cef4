//! Finds a good division of a pool that is too large for the exact search.
//!
//! Branch and bound. A set starts with the lowest free device and grows by the candidate that adds
//! the highest score; the search then continues without that candidate. So each division occurs
//! once, and the greedy one comes first. The search abandons a branch when its bound is no better
//! than the best division so far. The bound uses that each device has a limited number of partners
//! in a division: it is half the sum, over all devices, of the highest scores that each can still
//! get. The search starts with the greedy division improved by exchanges of two devices, and ends
//! after [`STEPS`] steps at the latest; the best division so far is then the answer, and is not
//! called exact.

use crate::scores::{Scores, Set, first, positions};

/// The maximum number of partial sets to try, which takes a few milliseconds.
pub(crate) const STEPS: u32 = 20_000;

/// A division of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// The sum of the scores within its sets.
    pub(crate) total: u32,
    /// Its sets; all required devices are in the first.
    pub(crate) sets: Vec<Set>,
    /// Whether no division has a higher total.
    pub(crate) exact: bool,
}

/// Returns a division into sets of `size` and the rest, with the required devices in one set.
pub(crate) fn search(scores: &Scores, size: usize, required: Set, steps: u32) -> Division {
    let all = first(scores.count());
    let count = scores.count();
    let ranked = |device: usize| {
        let mut others: Vec<usize> = (0..count).filter(|other| *other != device).collect();
        others.sort_by_key(|other| std::cmp::Reverse(scores.pair(device, *other)));
        others
    };
    let mut search = Search {
        scores,
        size,
        ranked: (0..count).map(ranked).collect(),
        total: 0,
        sets: greedy(scores, size, required),
        steps,
        open: Vec::new(),
    };
    exchange(scores, &mut search.sets, required);
    search.total = search.sets.iter().map(|set| scores.within(*set)).sum();
    let small = count % size;
    match required {
        0 => search.begin(all, 0, small),
        _ => {
            let wanted = size - required.count_ones() as usize;
            let free = all & !required;
            search.grow(Growing { free, set: required, candidates: free, wanted, done: 0, small });
        }
    }
    Division { total: search.total, sets: search.sets, exact: search.steps > 0 }
}

/// Returns the total of the greedy division improved by exchanges, which is reachable.
pub(crate) fn reachable(scores: &Scores, size: usize) -> u32 {
    let mut sets = greedy(scores, size, 0);
    exchange(scores, &mut sets, 0);
    sets.iter().map(|set| scores.within(*set)).sum()
}

/// Builds sets one by one, each from the lowest free device and the devices that add most to it.
fn greedy(scores: &Scores, size: usize, required: Set) -> Vec<Set> {
    let mut free = first(scores.count());
    let mut sets = Vec::new();
    let mut set = required;
    while free != 0 {
        if set == 0 {
            set = free & free.wrapping_neg();
        }
        free &= !set;
        while (set.count_ones() as usize) < size && free != 0 {
            let best = 1 << best_addition(scores, set, free);
            set |= best;
            free ^= best;
        }
        sets.push(set);
        set = 0;
    }
    sets
}

/// Returns the candidate that adds the highest score to a set; the lowest among equals.
fn best_addition(scores: &Scores, set: Set, candidates: Set) -> usize {
    let better = |best: (u32, usize), position: usize| {
        let gain = scores.between(position, set);
        if gain > best.0 { (gain, position) } else { best }
    };
    let lowest = candidates.trailing_zeros() as usize;
    positions(candidates).fold((scores.between(lowest, set), lowest), better).1
}

/// Exchanges two devices of different sets while that raises the total.
fn exchange(scores: &Scores, sets: &mut [Set], required: Set) {
    // Each exchange raises the total, so this terminates.
    while let Some((one, other, swapped)) = raise(scores, sets, required) {
        sets[one] ^= swapped;
        sets[other] ^= swapped;
    }
}

/// Returns an exchange that raises the total: two sets, and the two devices that swap.
fn raise(scores: &Scores, sets: &[Set], required: Set) -> Option<(usize, usize, Set)> {
    for (one, a) in sets.iter().enumerate() {
        for (other, b) in sets.iter().enumerate().skip(one + 1) {
            let before = scores.within(*a) + scores.within(*b);
            for from in positions(a & !required) {
                for to in positions(b & !required) {
                    let swapped = 1 << from | 1 << to;
                    if scores.within(a ^ swapped) + scores.within(b ^ swapped) > before {
                        return Some((one, other, swapped));
                    }
                }
            }
        }
    }
    None
}

struct Search<'a> {
    scores: &'a Scores,
    size: usize,
    /// For each device all others, in descending order of score.
    ranked: Vec<Vec<usize>>,
    /// The best division so far.
    total: u32,
    sets: Vec<Set>,
    /// The number of steps left.
    steps: u32,
    /// The sets of the partial division.
    open: Vec<Set>,
}

/// A partial set and the state of the search around it.
#[derive(Clone, Copy)]
struct Growing {
    /// Devices not yet in a set.
    free: Set,
    set: Set,
    /// The free devices that may still join.
    candidates: Set,
    /// The number of devices still to add.
    wanted: usize,
    /// The sum of the scores within the completed sets.
    done: u32,
    /// The size of the smaller set; 0 if there is none, or it is complete.
    small: usize,
}

impl Search<'_> {
    /// Starts a set with the lowest free device: one of full size, or the smaller one.
    fn begin(&mut self, free: Set, done: u32, small: usize) {
        if free == 0 {
            if done > self.total {
                self.total = done;
                self.sets.clone_from(&self.open);
            }
            return;
        }
        let set = free & free.wrapping_neg();
        let free = free ^ set;
        let rest = free.count_ones() as usize;
        if rest + 1 >= self.size + small {
            let wanted = self.size - 1;
            self.grow(Growing { free, set, candidates: free, wanted, done, small });
        }
        if small > 0 {
            let wanted = small - 1;
            self.grow(Growing { free, set, candidates: free, wanted, done, small: 0 });
        }
    }

    fn grow(&mut self, mut at: Growing) {
        if at.wanted == 0 {
            self.open.push(at.set);
            self.begin(at.free, at.done + self.scores.within(at.set), at.small);
            self.open.pop();
            return;
        }
        while at.candidates.count_ones() as usize >= at.wanted {
            if self.steps == 0 {
                return;
            }
            self.steps -= 1;
            if self.bound(&at) <= self.total {
                return;
            }
            let best = 1 << best_addition(self.scores, at.set, at.candidates);
            at.candidates ^= best;
            let (free, set) = (at.free ^ best, at.set | best);
            self.grow(Growing { free, set, wanted: at.wanted - 1, ..at });
        }
    }

    /// Returns an upper bound on every division from here.
    fn bound(&self, at: &Growing) -> u32 {
        let highest = |device: usize, partners: Set, count: usize| -> u32 {
            let able = self.ranked[device].iter().filter(|other| partners >> **other & 1 != 0);
            able.take(count).map(|other| self.scores.pair(device, *other)).sum()
        };
        let inside = positions(at.set).map(|device| highest(device, at.candidates, at.wanted));
        let outside = positions(at.free).map(|device| {
            let may_join = at.candidates >> device & 1 != 0;
            let partners = if may_join { at.free | at.set } else { at.free };
            highest(device, partners, self.size - 1)
        });
        at.done + self.scores.within(at.set) + (inside.sum::<u32>() + outside.sum::<u32>()) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Divisions;
    use proptest::prelude::*;

    fn scores(count: usize, cells: &[u32]) -> Scores {
        Scores::of(count, |from, to| cells[from.min(to) * count + from.max(to)])
    }

    fn is_division(division: &Division, count: usize, size: usize) -> bool {
        let all =
            division.sets.iter().try_fold(0, |all, set| (all & set == 0).then_some(all | set));
        let full = division.sets.iter().filter(|set| set.count_ones() as usize == size);
        all == Some(first(count)) && full.count() == count / size
    }

    proptest! {
        #[test]
        fn search_with_enough_steps_finds_exact_optimum(
            count in 1_usize..=9,
            size in 0_usize..9,
            cells in proptest::collection::vec(0_u32..12, 81),
        ) {
            let size = 1 + size % count;
            let scores = scores(count, &cells);
            let division = search(&scores, size, 0, u32::MAX);
            let exact = Divisions::new(&scores, size).rating(first(count) as u32, 0).unwrap().total();
            prop_assert!(division.exact);
            prop_assert_eq!(division.total, exact);
            prop_assert!(is_division(&division, count, size));
        }

        #[test]
        fn required_devices_are_in_first_set(
            count in 2_usize..=9,
            size in 0_usize..9,
            required in proptest::collection::vec(0_usize..9, 1..4),
            cells in proptest::collection::vec(0_u32..12, 81),
        ) {
            let size = 1 + size % count;
            let required = required.into_iter().take(size);
            let required = required.fold(0, |set, position| set | 1 << (position % count));
            let scores = scores(count, &cells);
            let division = search(&scores, size, required, u32::MAX);
            prop_assert!(division.exact && is_division(&division, count, size));
            prop_assert_eq!(division.sets[0] & required, required);
            prop_assert_eq!(division.sets[0].count_ones() as usize, size);
            let mut divisions = Divisions::new(&scores, size);
            let all = first(count);
            let best = crate::scores::sets(count, size)
                .filter(|set| set & required == required)
                .map(|set| divisions.rating_with(set as u32, (all & !set) as u32, 0).unwrap().total())
                .max();
            prop_assert_eq!(Some(division.total), best);
        }

        #[test]
        fn search_with_few_steps_is_never_worse_than_greedy(
            count in 17_usize..=24,
            size in 2_usize..=8,
            cells in proptest::collection::vec(0_u32..100, 24 * 24),
        ) {
            let scores = scores(count, &cells);
            let division = search(&scores, size, 0, 50);
            let total = |sets: &[Set]| -> u32 { sets.iter().map(|set| scores.within(*set)).sum() };
            prop_assert!(is_division(&division, count, size));
            prop_assert_eq!(division.total, total(&division.sets));
            prop_assert!(division.total >= total(&greedy(&scores, size, 0)));
        }
    }
}
