//! The best schedule of a small graph.

use super::cluster::Cluster;
use super::dag::Dag;
use super::list::scheduled;
use super::partial::{Partial, Trial};
use super::problem::Problem;
use super::rank::tails;
use super::schedule::{Choice, Schedule, ScheduleError, Slot, Transfer};
use std::collections::{HashMap, HashSet};

/// The largest graph that [`optimal`] accepts. Above 14 items on 3 processors, expect it to stop
/// before the end.
pub const MAX_ITEMS: usize = 32;

/// The best schedule that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// The schedule.
    pub schedule: Schedule,
    /// Whether the search completed, so that no schedule ends earlier; with memory limits or
    /// [`Cluster::one_port`], no list schedule ends earlier (see [`optimal`]).
    pub proven: bool,
    /// How many partial schedules it examined.
    pub states: u64,
}

/// Finds the schedule that ends first, by branch and bound from that of
/// [`list_schedule`](super::list_schedule), examining at most `max_states` partial schedules.
///
/// Without memory limits and with [`Cluster::one_port`] off, no schedule ends earlier than a proven
/// one: items are appended in every order that the inputs allow, and a partial schedule is
/// abandoned only if its bound (the longest path, or the work divided by the processors) is no
/// better than the best end, or if another partial schedule of the same items is later in no
/// respect.
///
/// With them, the search covers list schedules: items in every order and on every processor, each
/// at the earliest time with its transfers at their earliest times. It does not cover schedules
/// that delay an item or a transfer on purpose.
///
/// # Errors
/// As `list_schedule`, and if there are more than [`MAX_ITEMS`] items.
pub fn optimal(dag: &Dag, cluster: &Cluster, max_states: u64) -> Result<Optimum, ScheduleError> {
    if dag.items.len() > MAX_ITEMS {
        return Err(ScheduleError::TooLarge { items: dag.items.len(), max: MAX_ITEMS });
    }
    let problem = Problem::new(dag, cluster)?;
    let found = scheduled(&problem);
    let limited = cluster.processors.iter().any(|processor| processor.memory.is_some());
    let mut search = Search {
        problem: &problem,
        tails: tails(&problem),
        twins: (0..problem.processors() as u32).map(|at| twin(&problem, at)).collect(),
        append: !cluster.one_port && !limited,
        best_end: found.as_ref().map_or(u64::MAX, |schedule| schedule.makespan_nanos),
        best: None,
        undominated: HashMap::new(),
        seen: HashSet::new(),
        states: 0,
        max_states,
    };
    search.visit(&Partial::new(&problem, search.append), 0);
    let proven = search.states <= max_states;
    let reasons = |at: usize| match &dag.items[at] {
        item if item.fixed.is_some() => Choice::Fixed,
        _ if problem.feasible[at].len() == 1 => Choice::Only,
        _ => Choice::Searched,
    };
    let reasons = (0..problem.len()).map(reasons).collect();
    let better = search.best.and_then(|partial| partial.finish(reasons));
    let schedule = better.map_or(found, Ok)?;
    Ok(Optimum { schedule, proven, states: search.states })
}

/// The current state, for comparison with other partial schedules of the same items.
type Assignment = (u32, Vec<Option<u32>>);

struct Search<'p> {
    problem: &'p Problem<'p>,
    tails: Vec<u64>,
    /// For each processor, a lower one that is indistinguishable from it.
    twins: Vec<Option<u32>>,
    append: bool,
    best_end: u64,
    best: Option<Partial<'p>>,
    /// For each set of items, the times of the undominated partial schedules.
    undominated: HashMap<Assignment, Vec<Vec<u64>>>,
    /// Complete descriptions of the partial schedules so far.
    seen: HashSet<(Vec<Option<Slot>>, Vec<Transfer>)>,
    states: u64,
    max_states: u64,
}

impl<'p> Search<'p> {
    /// Tries all continuations. `placed` has a bit for each item of the partial schedule.
    fn visit(&mut self, partial: &Partial<'p>, placed: u32) {
        let problem = self.problem;
        if placed.count_ones() as usize == problem.len() {
            if partial.end() < self.best_end {
                self.best_end = partial.end();
                self.best = Some(partial.clone());
            }
            return;
        }
        let mut trial = Trial::default();
        let mut children = Vec::new();
        for item in (0..problem.len() as u32).filter(|item| placed & 1 << item == 0) {
            let inputs = &problem.dag.items[item as usize].inputs;
            if inputs.iter().any(|input| placed & 1 << input.item == 0) {
                continue;
            }
            for (processor, nanos) in &problem.feasible[item as usize] {
                let group = partial.group_processor(item);
                if group.is_some_and(|group| group != *processor)
                    || self.is_mirrored(partial, *processor)
                    || partial.try_on(item, *processor, *nanos, &mut trial).is_err()
                {
                    continue;
                }
                self.states += 1;
                if self.states > self.max_states {
                    return;
                }
                let mut next = partial.clone();
                next.add(item, &trial);
                let bound = self.bound(&next);
                if bound < self.best_end {
                    children.push((bound, next.end(), placed | 1 << item, next));
                }
            }
        }
        children.sort_by_key(|(bound, end, placed, _)| (*bound, *end, *placed));
        for (bound, _, placed, next) in children {
            if bound < self.best_end && self.states <= self.max_states && self.is_new(&next, placed)
            {
                self.visit(&next, placed);
            }
        }
    }

    /// Returns whether a processor and its lower twin are both unused: trying the lower one is
    /// enough.
    fn is_mirrored(&self, partial: &Partial<'_>, processor: u32) -> bool {
        let used = |of: u32| {
            let mut slots = (0..self.problem.len() as u32).filter_map(|item| partial.slot(item));
            slots.any(|slot| slot.processor == of)
        };
        self.twins[processor as usize].is_some_and(|twin| !used(processor) && !used(twin))
    }

    /// Returns whether no partial schedule so far makes this one superfluous, and records it.
    fn is_new(&mut self, partial: &Partial<'_>, placed: u32) -> bool {
        if !self.append {
            let slots = (0..self.problem.len() as u32).map(|item| partial.slot(item)).collect();
            let mut transfers = partial.transfers().to_vec();
            transfers.sort_unstable();
            return self.seen.insert((slots, transfers));
        }
        let times = self.times(partial, placed);
        let groups = (0..self.problem.len() as u32).map(|item| partial.group_processor(item));
        let known = self.undominated.entry((placed, groups.collect())).or_default();
        let dominates = |a: &[u64], b: &[u64]| a.iter().zip(b).all(|(a, b)| a <= b);
        if known.iter().any(|other| dominates(other, &times)) {
            return false;
        }
        known.retain(|other| !dominates(&times, other));
        known.push(times);
        true
    }

    /// Returns all times that affect the continuation: the earlier, the better.
    fn times(&self, partial: &Partial<'_>, placed: u32) -> Vec<u64> {
        let problem = self.problem;
        let processors = problem.processors() as u32;
        let mut times = vec![partial.end()];
        times.extend((0..processors).map(|processor| partial.busy_until(processor)));
        for item in (0..problem.len() as u32).filter(|item| placed & 1 << item != 0) {
            for (next, output) in &problem.successors[item as usize] {
                if placed & 1 << next == 0 {
                    let arrival = |to| self.arrival(partial, item, *output, to);
                    times.extend((0..processors).map(arrival));
                }
            }
        }
        times
    }

    /// Returns the earliest time at which an output of an added item can be on a processor.
    fn arrival(&self, partial: &Partial<'_>, item: u32, output: Option<u32>, to: u32) -> u64 {
        let Some(slot) = partial.slot(item) else { return 0 };
        slot.end_nanos.saturating_add(self.problem.comm(item, output, slot.processor, to))
    }

    /// Returns a lower bound for the end of all continuations.
    fn bound(&self, partial: &Partial<'_>) -> u64 {
        let problem = self.problem;
        let count = problem.processors();
        let mut bound = partial.end();
        let mut work: u128 = 0;
        let mut ends = vec![u64::MAX; problem.len() * count];
        for item in &problem.order {
            if let Some(slot) = partial.slot(*item) {
                if !self.append {
                    work += u128::from(slot.end_nanos - slot.start_nanos);
                }
                continue;
            }
            let group = partial.group_processor(*item);
            let mut least = u64::MAX;
            let mut shortest = u64::MAX;
            for (here, nanos) in &problem.feasible[*item as usize] {
                if group.is_some_and(|group| group != *here) {
                    continue;
                }
                let appended = self.append && *nanos > 0;
                let mut start = if appended { partial.busy_until(*here) } else { 0 };
                for input in &problem.dag.items[*item as usize].inputs {
                    let arrival = if partial.slot(input.item).is_some() {
                        self.arrival(partial, input.item, input.output, *here)
                    } else {
                        let each = (0..count as u32).map(|from| {
                            let comm = problem.comm(input.item, input.output, from, *here);
                            ends[input.item as usize * count + from as usize].saturating_add(comm)
                        });
                        each.min().unwrap_or(0)
                    };
                    start = start.max(arrival);
                }
                let at = *item as usize * count + *here as usize;
                ends[at] = start.saturating_add(*nanos);
                least = least.min(ends[at].saturating_add(self.tails[at]));
                shortest = shortest.min(*nanos);
            }
            bound = bound.max(least);
            work += u128::from(shortest);
        }
        if self.append {
            let busy = (0..count as u32).map(|processor| partial.busy_until(processor));
            work += busy.map(u128::from).sum::<u128>();
        }
        let load = work.div_ceil(count.max(1) as u128);
        bound.max(u64::try_from(load).unwrap_or(u64::MAX))
    }
}

/// Returns the lowest processor that is the same in every respect.
fn twin(problem: &Problem<'_>, processor: u32) -> Option<u32> {
    let cluster = problem.cluster;
    let is_same = |other: u32| {
        let time = |item: &[(u32, u64)], of: u32| {
            item.iter().find(|(able, _)| *able == of).map(|(_, nanos)| *nanos)
        };
        let memory = |of: u32| cluster.processors[of as usize].memory;
        let third = |at: &u32| *at != other && *at != processor;
        memory(other) == memory(processor)
            && problem.feasible.iter().all(|item| time(item, other) == time(item, processor))
            && cluster.route(other, processor) == cluster.route(processor, other)
            && (0..problem.processors() as u32).filter(third).all(|at| {
                cluster.route(at, other) == cluster.route(at, processor)
                    && cluster.route(other, at) == cluster.route(processor, at)
            })
    };
    (0..processor).find(|other| is_same(*other))
}

#[cfg(test)]
mod tests {
    use super::super::random::{Shape, cluster, dag};
    use super::super::{Item, list_schedule, verify};
    use super::*;
    use gpu_core::{Bytes, Route};

    /// Ends of all schedules that append items in every order, without any bound.
    fn brute_force(dag: &Dag, cluster: &Cluster, slots: &mut Vec<Option<Slot>>) -> u64 {
        if slots.iter().all(Option::is_some) {
            return slots.iter().flatten().map(|slot| slot.end_nanos).max().unwrap_or(0);
        }
        let mut best = u64::MAX;
        for (at, item) in dag.items.iter().enumerate() {
            let inputs: Option<Vec<_>> = item
                .inputs
                .iter()
                .map(|input| Some((input, slots[input.item as usize]?)))
                .collect();
            let (None, Some(inputs)) = (slots[at], inputs) else { continue };
            for (processor, nanos) in (0_u32..).zip(&item.nanos) {
                let Some(nanos) = nanos else { continue };
                let arrivals = inputs.iter().map(|(input, from)| {
                    let made = &dag.items[input.item as usize];
                    let bytes = input.output.map_or(0, |output| made.outputs[output as usize].0);
                    let apart = from.processor != processor;
                    let route = cluster.routes[from.processor as usize][processor as usize];
                    from.end_nanos + if apart { route.nanos(bytes) } else { 0 }
                });
                let busy = slots.iter().flatten().filter(|slot| slot.processor == processor);
                let start = busy.map(|slot| slot.end_nanos).chain(arrivals).max().unwrap_or(0);
                let end = start + nanos;
                slots[at] = Some(Slot { processor, start_nanos: start, end_nanos: end });
                best = best.min(brute_force(dag, cluster, slots));
                slots[at] = None;
            }
        }
        best
    }

    /// Ends of all list schedules, without any bound.
    fn all_lists(problem: &Problem<'_>, partial: &Partial<'_>) -> u64 {
        let items = 0..problem.len() as u32;
        if items.clone().all(|item| partial.slot(item).is_some()) {
            return partial.end();
        }
        let mut best = u64::MAX;
        let mut trial = Trial::default();
        for item in items.filter(|item| partial.slot(*item).is_none()) {
            let inputs = &problem.dag.items[item as usize].inputs;
            if inputs.iter().any(|input| partial.slot(input.item).is_none()) {
                continue;
            }
            for (processor, nanos) in &problem.feasible[item as usize] {
                let group = partial.group_processor(item);
                if group.is_none_or(|group| group == *processor)
                    && partial.try_on(item, *processor, *nanos, &mut trial).is_ok()
                {
                    let mut next = partial.clone();
                    next.add(item, &trial);
                    best = best.min(all_lists(problem, &next));
                }
            }
        }
        best
    }

    #[test]
    fn twin_has_the_same_times_memory_and_routes() {
        let processor = |_| super::super::Processor { name: "p".into(), speed: 1.0, memory: None };
        let route = Route { latency_nanos: 5, bytes_per_second: 7 };
        let alike = Cluster {
            processors: (0..3).map(processor).collect(),
            routes: vec![vec![route; 3]; 3],
            one_port: true,
        };
        let times = |nanos: [Option<u64>; 3]| Item { nanos: nanos.into(), ..Item::default() };
        let dag = |items: Vec<Item>| Dag { items };
        let twins = |dag: &Dag, cluster: &Cluster| {
            let problem = Problem::new(dag, cluster).expect("all items can run");
            [0, 1, 2].map(|processor| twin(&problem, processor))
        };
        let same = dag(vec![times([Some(3); 3])]);
        assert_eq!(twins(&same, &alike), [None, Some(0), Some(0)]);
        let slower = dag(vec![times([Some(3), Some(4), Some(4)]), times([Some(1); 3])]);
        assert_eq!(twins(&slower, &alike), [None, None, Some(1)]);
        let unable = dag(vec![times([Some(3), None, Some(3)])]);
        assert_eq!(twins(&unable, &alike), [None, None, Some(0)]);
        let mut smaller = alike.clone();
        smaller.processors[0].memory = Some(Bytes(9));
        assert_eq!(twins(&same, &smaller), [None, None, Some(1)]);
        let mut far = alike.clone();
        far.routes[0][2].latency_nanos = 6;
        assert_eq!(twins(&same, &far), [None, None, None]);
    }

    #[test]
    fn tiny_graphs_end_as_early_as_any_schedule() {
        for seed in 0..60 {
            let mut cluster = cluster(2 + (seed % 2) as usize, seed);
            cluster.one_port = false;
            let dag = dag(5, cluster.processors.len(), seed, Shape { groups: false });
            let best = brute_force(&dag, &cluster, &mut vec![None; 5]);
            let found = optimal(&dag, &cluster, u64::MAX).unwrap();
            verify(&dag, &cluster, &found.schedule).unwrap();
            assert!(found.proven);
            assert_eq!(found.schedule.makespan_nanos, best, "seed {seed}");
        }
    }

    #[test]
    fn optimal_matches_brute_force_over_list_schedules() {
        let mut compared = 0;
        for seed in 0..60 {
            let mut cluster = cluster(2, seed);
            for processor in &mut cluster.processors {
                processor.memory = Some(gpu_core::Bytes(900_000));
            }
            let dag = dag(5, 2, seed, Shape { groups: true });
            let problem = Problem::new(&dag, &cluster).unwrap();
            let best = all_lists(&problem, &Partial::new(&problem, false));
            match optimal(&dag, &cluster, u64::MAX) {
                Ok(found) => {
                    verify(&dag, &cluster, &found.schedule).unwrap();
                    assert_eq!(found.schedule.makespan_nanos, best, "seed {seed}");
                    compared += 1;
                }
                Err(error) => assert_eq!(best, u64::MAX, "seed {seed}: {error}"),
            }
        }
        assert!(compared > 20, "{compared}");
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "the figures are quoted in docs/graph-scheduling.md")]
    fn heuristic_is_near_the_optimum_of_random_graphs() {
        let count: u64 = 500;
        for one_port in [false, true] {
            let mut ratios = Vec::new();
            let mut unproven = 0;
            for seed in 0..count {
                let processors = 2 + (seed % 2) as usize;
                let mut cluster = cluster(processors, seed);
                cluster.one_port = one_port;
                let most = if one_port { 4 } else { 7 };
                let dag =
                    dag(6 + (seed % most) as usize, processors, seed, Shape { groups: false });
                let heuristic = list_schedule(&dag, &cluster).unwrap();
                let best = optimal(&dag, &cluster, 50_000).unwrap();
                if !best.proven {
                    unproven += 1;
                    continue;
                }
                let end = best.schedule.makespan_nanos.max(1);
                ratios.push(heuristic.makespan_nanos as f64 / end as f64);
            }
            ratios.sort_by(f64::total_cmp);
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let at = |percent: usize| ratios[(ratios.len() - 1) * percent / 100];
            let equal = ratios.iter().filter(|ratio| **ratio <= 1.0).count();
            eprintln!(
                "one port {one_port}: {} graphs, {unproven} unproven; equal {equal}, median {:.3}, \
                 mean {mean:.4}, 95 % {:.3}, 99 % {:.3}, worst {:.3}",
                ratios.len(),
                at(50),
                at(95),
                at(99),
                at(100),
            );
            assert!(ratios.len() as u64 > count / 2);
            assert!(at(50) <= 1.05 && mean <= 1.1, "median {}, mean {mean}", at(50));
        }
    }

    #[test]
    fn large_graphs_are_refused_and_states_are_limited() {
        let cluster = cluster(2, 1);
        let large = dag(MAX_ITEMS + 1, 2, 1, Shape { groups: false });
        let error = optimal(&large, &cluster, 10).unwrap_err();
        assert_eq!(error.to_string(), "33 items are too many for an exact search (at most 32)");
        let found = optimal(&dag(20, 2, 3, Shape { groups: false }), &cluster, 10).unwrap();
        assert!(!found.proven && found.states <= 11);
    }

    #[test]
    fn bounds_and_dominance_abandon_as_many_states_as_they_did() {
        let states = |one_port: bool| -> u64 {
            let states = |seed| {
                let processors = 2 + (seed % 2) as usize;
                let mut cluster = cluster(processors, seed);
                cluster.one_port = one_port;
                let dag = dag(8, processors, seed, Shape { groups: seed % 4 > 1 });
                optimal(&dag, &cluster, 20_000).unwrap().states
            };
            (0..12).map(states).sum()
        };
        // Whoever changes the search updates these sums; lower ones are better.
        assert_eq!([states(false), states(true)], [5737, 29_712]);
    }

    #[test]
    fn reasons_after_the_search_are_those_of_the_items() {
        let better = (0..400).find(|seed| {
            let mut cluster = cluster(3, *seed);
            cluster.one_port = false;
            let mut dag = dag(9, 3, *seed, Shape { groups: false });
            dag.items[0].fixed = Some(0);
            dag.items[0].nanos[0] = Some(9);
            dag.items[1].nanos = vec![Some(9), None, None];
            dag.items[2..].iter_mut().for_each(|item| item.nanos[1] = Some(500_000));
            let found = optimal(&dag, &cluster, 20_000).unwrap().schedule;
            let is_better =
                found.makespan_nanos < list_schedule(&dag, &cluster).unwrap().makespan_nanos;
            if is_better {
                assert_eq!(found.reasons[..2], [Choice::Fixed, Choice::Only]);
                let several = |item: &&Item| item.nanos.iter().flatten().count() > 1;
                let searched = dag.items[2..].iter().filter(several).count();
                let of = |reason: &&Choice| **reason == Choice::Searched;
                assert_eq!(found.reasons.iter().filter(of).count(), searched);
            }
            is_better
        });
        assert!(better.is_some(), "the search has found no better schedule");
    }
}
