//! A graph and a cluster, checked and indexed for scheduling.

use super::cluster::Cluster;
use super::dag::Dag;
use super::schedule::ScheduleError;
use std::collections::{HashMap, VecDeque};

/// The maximum number of items of a cycle that an error names.
const NAMED: usize = 8;

/// A graph and a cluster with precomputed data for scheduling.
#[derive(Debug)]
pub(super) struct Problem<'a> {
    pub(super) dag: &'a Dag,
    pub(super) cluster: &'a Cluster,
    /// All items, each after its inputs.
    pub(super) order: Vec<u32>,
    /// For each item, the items that wait for it, with the output that they need; once per input.
    pub(super) successors: Vec<Vec<(u32, Option<u32>)>>,
    /// For each item, the position of its first output among all outputs.
    pub(super) first_value: Vec<usize>,
    /// For each output, the number of inputs that use it.
    pub(super) uses: Vec<u32>,
    /// For each item, the processors that it may run on, with its time there.
    pub(super) feasible: Vec<Vec<(u32, u64)>>,
    /// For each item, its group, numbered from 0.
    pub(super) group: Vec<Option<u32>>,
    /// For each group, the persistent bytes of its items.
    pub(super) group_bytes: Vec<u64>,
}

impl<'a> Problem<'a> {
    /// Checks and indexes a graph.
    pub(super) fn new(dag: &'a Dag, cluster: &'a Cluster) -> Result<Self, ScheduleError> {
        let count = dag.items.len();
        let mut first_value = Vec::with_capacity(count);
        let mut values = 0;
        for item in &dag.items {
            first_value.push(values);
            values += item.outputs.len();
        }
        let mut successors = vec![Vec::new(); count];
        let mut uses = vec![0; values];
        let processors = cluster.processors.len();
        for (at, item) in (0_u32..).zip(&dag.items) {
            let malformed = || ScheduleError::Malformed { item: item.name.clone() };
            let is_processor = |index: u32| (index as usize) < processors;
            if item.nanos.len() != processors || !item.fixed.is_none_or(is_processor) {
                return Err(malformed());
            }
            for input in &item.inputs {
                let from = dag.items.get(input.item as usize).ok_or_else(malformed)?;
                if let Some(output) = input.output {
                    if output as usize >= from.outputs.len() {
                        return Err(malformed());
                    }
                    uses[first_value[input.item as usize] + output as usize] += 1;
                }
                successors[input.item as usize].push((at, input.output));
            }
        }
        let (group, group_bytes) = groups(dag);
        let mut problem = Problem {
            dag,
            cluster,
            order: Vec::new(),
            successors,
            first_value,
            uses,
            feasible: Vec::new(),
            group,
            group_bytes,
        };
        problem.order = problem.sorted()?;
        problem.feasible = problem.feasible_sets()?;
        Ok(problem)
    }

    pub(super) fn len(&self) -> usize {
        self.dag.items.len()
    }

    pub(super) fn processors(&self) -> usize {
        self.cluster.processors.len()
    }

    /// Returns the position of an output among all outputs.
    pub(super) fn value(&self, item: u32, output: u32) -> usize {
        self.first_value[item as usize] + output as usize
    }

    /// Returns the time from the end of an item to the arrival of its output on a processor.
    pub(super) fn comm(&self, item: u32, output: Option<u32>, from: u32, to: u32) -> u64 {
        if from == to {
            return 0;
        }
        let bytes = output.map_or(0, |at| self.dag.items[item as usize].outputs[at as usize].0);
        self.cluster.route(from, to).nanos(bytes)
    }

    /// Returns the persistent bytes that the first item of a group adds, or an item without a
    /// group.
    pub(super) fn persistent(&self, item: u32) -> u64 {
        match self.group[item as usize] {
            Some(group) => self.group_bytes[group as usize],
            None => self.dag.items[item as usize].persistent.0,
        }
    }

    /// Orders the items by Kahn's method.
    fn sorted(&self) -> Result<Vec<u32>, ScheduleError> {
        let mut waits: Vec<usize> = self.dag.items.iter().map(|item| item.inputs.len()).collect();
        let mut ready: VecDeque<u32> =
            (0_u32..).zip(&waits).filter(|(_, waits)| **waits == 0).map(|(at, _)| at).collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(item) = ready.pop_front() {
            order.push(item);
            for (next, _) in &self.successors[item as usize] {
                let waits = &mut waits[*next as usize];
                *waits -= 1;
                if *waits == 0 {
                    ready.push_back(*next);
                }
            }
        }
        if order.len() == self.len() {
            return Ok(order);
        }
        Err(ScheduleError::Cycle { items: self.cycle(&waits) })
    }

    /// Names items of one cycle, in its direction. Each waiting item has a waiting predecessor, so
    /// a walk backwards reaches a cycle.
    fn cycle(&self, waits: &[usize]) -> Vec<String> {
        let before = |at: usize| {
            let inputs = self.dag.items[at].inputs.iter().map(|input| input.item as usize);
            inputs.into_iter().find(|from| waits[*from] > 0)
        };
        let Some(mut at) = waits.iter().position(|waits| *waits > 0) else { return Vec::new() };
        let mut seen = vec![usize::MAX; waits.len()];
        let mut walk = Vec::new();
        while seen[at] == usize::MAX {
            seen[at] = walk.len();
            walk.push(at);
            match before(at) {
                Some(from) => at = from,
                None => break,
            }
        }
        let cycle = walk.get(seen[at]..).unwrap_or_default();
        let name = |at: &usize| self.dag.items[*at].name.to_string();
        cycle.iter().rev().take(NAMED).map(name).collect()
    }

    fn feasible_sets(&self) -> Result<Vec<Vec<(u32, u64)>>, ScheduleError> {
        let mut allowed = vec![vec![true; self.processors()]; self.group_bytes.len()];
        let of_item = |at: usize| {
            let item = &self.dag.items[at];
            let each = (0_u32..).zip(&item.nanos);
            each.filter_map(|(processor, nanos)| Some((processor, (*nanos)?)))
                .filter(|(processor, _)| item.fixed.is_none_or(|fixed| fixed == *processor))
                .collect::<Vec<_>>()
        };
        let mut sets: Vec<_> = (0..self.len()).map(of_item).collect();
        for (at, set) in sets.iter().enumerate() {
            if set.is_empty() {
                let item = self.dag.items[at].name.clone();
                return Err(ScheduleError::Infeasible { item });
            }
            if let Some(group) = self.group[at] {
                for (processor, allowed) in (0_u32..).zip(&mut allowed[group as usize]) {
                    *allowed &= set.iter().any(|(able, _)| *able == processor);
                }
            }
        }
        for (at, set) in sets.iter_mut().enumerate() {
            if let Some(group) = self.group[at] {
                set.retain(|(processor, _)| allowed[group as usize][*processor as usize]);
                if set.is_empty() {
                    return Err(ScheduleError::Group { item: self.dag.items[at].name.clone() });
                }
            }
        }
        Ok(sets)
    }
}

/// Numbers the groups from 0 and sums their persistent bytes.
fn groups(dag: &Dag) -> (Vec<Option<u32>>, Vec<u64>) {
    let mut numbers = HashMap::new();
    let mut bytes: Vec<u64> = Vec::new();
    let number = |item: &super::dag::Item| {
        let next = numbers.len() as u32;
        let number = *numbers.entry(item.group?).or_insert(next);
        bytes.resize(numbers.len(), 0);
        let bytes = &mut bytes[number as usize];
        *bytes = bytes.saturating_add(item.persistent.0);
        Some(number)
    };
    (dag.items.iter().map(number).collect(), bytes)
}
