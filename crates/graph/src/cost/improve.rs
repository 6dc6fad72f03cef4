//! Local search from complete schedules of small graphs.

use super::partial::Partial;
use super::placer::{Placer, Selection};
use super::problem::Problem;
use super::schedule::{Choice, Schedule};

/// The total number of items in all schedules that are tried.
const BUDGET: usize = 12_000;
/// Above this size, too few schedules could be tried.
const MAX_ITEMS: usize = 600;
/// The number of schedules from which the search starts.
const STARTS: usize = 3;

/// An order of the items and a processor for each, which determine a schedule.
#[derive(Clone, Debug)]
struct Solution {
    order: Vec<u32>,
    assigned: Vec<u32>,
}

/// Returns a schedule that ends no later than the first of those given, which are sorted by end.
///
/// It moves items to other processors and to other positions in the order as long as that helps.
/// When no move helps any more, it moves two items at random (from a fixed seed) and continues.
pub(super) fn improved(problem: &Problem<'_>, found: Vec<Schedule>) -> Schedule {
    let count = problem.len();
    let mut starts = found.into_iter();
    let Some(mut best) = starts.next() else { return Schedule::default() };
    if !(2..=MAX_ITEMS).contains(&count) || problem.processors() < 2 {
        return best;
    }
    let mut search = Search { problem, tries: BUDGET / count, placer: Placer::default() };
    let share = search.tries / STARTS;
    let first = Solution::of(problem, &best);
    let others: Vec<_> =
        starts.take(STARTS - 1).map(|schedule| Solution::of(problem, &schedule)).collect();
    let mut random = Random(1);
    for (at, start) in std::iter::once(first).chain(others).enumerate() {
        let until =
            search.tries.saturating_sub(if at == STARTS - 1 { search.tries } else { share });
        let (mut solution, mut end) = search.descend(start, until);
        search.keep(&solution, end, &mut best);
        while search.tries > until {
            let shaken = search.shaken(&solution, &mut random);
            let (next, next_end) = search.descend(shaken, until);
            if next_end <= end {
                (solution, end) = (next, next_end);
                search.keep(&solution, end, &mut best);
            }
        }
    }
    best
}

impl Solution {
    fn of(problem: &Problem<'_>, schedule: &Schedule) -> Solution {
        let mut depth = vec![0_u32; problem.len()];
        for (at, item) in (0_u32..).zip(&problem.order) {
            depth[*item as usize] = at;
        }
        let mut order = problem.order.clone();
        order.sort_by_key(|item| {
            (schedule.slots[*item as usize].start_nanos, depth[*item as usize])
        });
        Solution { order, assigned: schedule.slots.iter().map(|slot| slot.processor).collect() }
    }
}

struct Search<'p> {
    problem: &'p Problem<'p>,
    /// The remaining number of schedules to try.
    tries: usize,
    placer: Placer,
}

impl Search<'_> {
    /// Returns the end of a solution; the maximum if memory does not suffice.
    fn end(&mut self, solution: &Solution, stop: u64) -> u64 {
        self.tries = self.tries.saturating_sub(1);
        self.partial(solution, stop).map_or(u64::MAX, |partial| partial.end())
    }

    /// Schedules a solution; `None` if memory does not suffice or it ends after `stop`.
    fn partial(&mut self, solution: &Solution, stop: u64) -> Option<Partial<'_>> {
        let mut partial = Partial::new(self.problem, false);
        for item in &solution.order {
            let wanted = Selection::Assigned(&solution.assigned);
            self.placer.place(self.problem, &mut partial, *item, wanted).ok()?;
            if partial.end() > stop {
                return None;
            }
        }
        Some(partial)
    }

    /// Keeps a solution as the best schedule if it ends earlier.
    fn keep(&mut self, solution: &Solution, end: u64, best: &mut Schedule) {
        if end >= best.makespan_nanos {
            return;
        }
        let problem = self.problem;
        let reason = |at: usize| match &problem.dag.items[at] {
            item if item.fixed.is_some() => Choice::Fixed,
            _ if problem.feasible[at].len() == 1 => Choice::Only,
            _ => Choice::Searched,
        };
        let reasons = (0..problem.len()).map(reason).collect();
        let partial = self.partial(solution, u64::MAX);
        if let Some(schedule) = partial.and_then(|partial| partial.finish(reasons)) {
            *best = schedule;
        }
    }

    /// Makes single moves as long as they help.
    fn descend(&mut self, mut solution: Solution, until: usize) -> (Solution, u64) {
        let mut end = self.end(&solution, u64::MAX);
        let count = self.problem.len();
        let mut since = 0;
        let mut at = 0;
        while since < count && self.tries > until {
            let item = solution.order[at % count];
            match self.moved(&solution, item, end, until) {
                Some((better, earlier)) => {
                    (solution, end) = (better, earlier);
                    since = 0;
                }
                None => since += 1,
            }
            at += 1;
        }
        (solution, end)
    }

    /// Returns the best solution that moves one item, if it ends earlier.
    fn moved(
        &mut self,
        solution: &Solution,
        item: u32,
        end: u64,
        until: usize,
    ) -> Option<(Solution, u64)> {
        let problem = self.problem;
        let index = solution.order.iter().position(|other| *other == item)?;
        let (first, last) = range(problem, &solution.order, index);
        let mut best = None;
        let mut bound = end;
        for (processor, _) in &problem.feasible[item as usize] {
            let mut assigned = solution.assigned.clone();
            assign(problem, &mut assigned, item, *processor);
            for to in first..=last {
                if self.tries <= until {
                    return best;
                }
                if to == index && assigned == solution.assigned {
                    continue;
                }
                let mut order = solution.order.clone();
                order.remove(index);
                order.insert(to, item);
                let next = Solution { order, assigned: assigned.clone() };
                let next_end = self.end(&next, bound.saturating_sub(1));
                if next_end < bound {
                    bound = next_end;
                    best = Some((next, next_end));
                }
            }
        }
        best
    }

    /// Moves two items at random.
    fn shaken(&self, solution: &Solution, random: &mut Random) -> Solution {
        let mut next = solution.clone();
        for _ in 0..2 {
            let index = random.below(self.problem.len());
            let item = next.order[index];
            let able = &self.problem.feasible[item as usize];
            let (processor, _) = able[random.below(able.len())];
            assign(self.problem, &mut next.assigned, item, processor);
            let (first, last) = range(self.problem, &next.order, index);
            next.order.remove(index);
            next.order.insert(first + random.below(last - first + 1), item);
        }
        next
    }
}

/// Assigns an item and its group.
fn assign(problem: &Problem<'_>, assigned: &mut [u32], item: u32, processor: u32) {
    match problem.group[item as usize] {
        None => assigned[item as usize] = processor,
        group => {
            let members = assigned.iter_mut().zip(&problem.group);
            members.filter(|(_, of)| **of == group).for_each(|(to, _)| *to = processor);
        }
    }
}

/// Returns the first and the last position in the order that an item may have.
fn range(problem: &Problem<'_>, order: &[u32], index: usize) -> (usize, usize) {
    let item = order[index];
    let inputs = &problem.dag.items[item as usize].inputs;
    let before =
        order[..index].iter().rposition(|other| inputs.iter().any(|input| input.item == *other));
    let nexts = &problem.successors[item as usize];
    let after =
        order[index + 1..].iter().position(|other| nexts.iter().any(|(next, _)| next == other));
    (before.map_or(0, |at| at + 1), after.map_or(order.len() - 1, |at| index + at))
}

/// A sequence of numbers from a seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Returns a number below a limit, or 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random(0);
        let expected = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!([(); 3].map(|()| random.next()), expected);
        let mut random = Random(0);
        assert_eq!((random.below(10), random.below(0)), ((expected[0] % 10) as usize, 0));
    }
}
