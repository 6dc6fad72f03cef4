//! The rank of an item: the length of the longest path from it to the end.

use super::problem::Problem;

/// The time among those on different processors that a rank uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Mean,
    Least,
    Most,
}

/// A rank function: the work of an item, and the percentage of the mean transfer time that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) work: Work,
    pub(super) transfer_percent: u64,
}

/// Returns for each item its upward rank in nanoseconds: its work plus the highest rank of its
/// successors, including the transfers.
///
/// HEFT uses mean work and full transfers (Topcuoglu, Hariri and Wu, 2002).
pub(super) fn upward(problem: &Problem<'_>, rank: Rank) -> Vec<u64> {
    let mean = MeanRoute::of(problem);
    let mut ranks = vec![0_u64; problem.len()];
    for item in problem.order.iter().rev() {
        let below = problem.successors[*item as usize].iter().map(|(next, output)| {
            let comm = mean.nanos(problem, *item, *output);
            let comm = comm.saturating_mul(rank.transfer_percent) / 100;
            comm.saturating_add(ranks[*next as usize])
        });
        let below = below.max().unwrap_or(0);
        ranks[*item as usize] = below.saturating_add(work(problem, *item, rank.work));
    }
    ranks
}

fn work(problem: &Problem<'_>, item: u32, work: Work) -> u64 {
    let times = problem.feasible[item as usize].iter().map(|(_, nanos)| *nanos);
    match work {
        Work::Least => times.min().unwrap_or(0),
        Work::Most => times.max().unwrap_or(0),
        Work::Mean => {
            let count = times.len().max(1) as u128;
            let sum: u128 = times.map(u128::from).sum();
            u64::try_from(sum / count).unwrap_or(u64::MAX)
        }
    }
}

/// The mean over all routes between different processors.
struct MeanRoute {
    latency_nanos: u64,
    nanos_per_byte: f64,
}

impl MeanRoute {
    fn of(problem: &Problem<'_>) -> MeanRoute {
        let count = problem.processors() as u32;
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let routes: Vec<_> = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| problem.cluster.route(from, to))
            .collect();
        let mean = |sum: f64| if routes.is_empty() { 0.0 } else { sum / routes.len() as f64 };
        let per_byte = routes.iter().filter(|route| route.bytes_per_second > 0);
        let per_byte = per_byte.map(|route| 1e9 / route.bytes_per_second as f64).sum();
        let latency = routes.iter().map(|route| route.latency_nanos as f64).sum();
        MeanRoute { latency_nanos: mean(latency) as u64, nanos_per_byte: mean(per_byte) }
    }

    fn nanos(&self, problem: &Problem<'_>, item: u32, output: Option<u32>) -> u64 {
        let bytes = output.map_or(0, |at| problem.dag.items[item as usize].outputs[at as usize].0);
        self.latency_nanos.saturating_add((bytes as f64 * self.nanos_per_byte) as u64)
    }
}

/// Returns for each item and processor, at `item * processors + processor`, the least time from the
/// end of the item there to the end of the last item that depends on it, if every item had its own
/// processor.
///
/// This is the optimistic cost table of PEFT (Arabnejad and Barbosa, 2014) with the times of the
/// actual routes, and therefore a lower bound.
pub(super) fn tails(problem: &Problem<'_>) -> Vec<u64> {
    let count = problem.processors();
    let mut tails = vec![0_u64; problem.len() * count];
    for item in problem.order.iter().rev() {
        for here in 0..count as u32 {
            let below = problem.successors[*item as usize].iter().map(|(next, output)| {
                let each = problem.feasible[*next as usize].iter().map(|(there, nanos)| {
                    let comm = problem.comm(*item, *output, here, *there);
                    let tail = tails[*next as usize * count + *there as usize];
                    comm.saturating_add(*nanos).saturating_add(tail)
                });
                each.min().unwrap_or(0)
            });
            tails[*item as usize * count + here as usize] = below.max().unwrap_or(0);
        }
    }
    tails
}

#[cfg(test)]
mod tests {
    use super::super::{Cluster, Dag, Input, Item, Processor};
    use super::*;
    use gpu_core::{Bytes, Route};

    #[test]
    fn mean_route_has_the_mean_latency_and_the_mean_time_of_a_byte() {
        let processor = || Processor { name: "p".into(), speed: 1.0, memory: None };
        let route = |latency_nanos, bytes_per_second| Route { latency_nanos, bytes_per_second };
        let cluster = Cluster {
            processors: vec![processor(), processor()],
            // 1 and 3 ns for each byte.
            routes: vec![
                vec![Route::default(), route(10, 1_000_000_000)],
                vec![route(30, 333_333_333), Route::default()],
            ],
            one_port: true,
        };
        let nanos = vec![Some(1); 2];
        let first = Item { nanos: nanos.clone(), outputs: vec![Bytes(1000)], ..Item::default() };
        let then = Item { nanos, inputs: vec![Input::value(0, 0)], ..Item::default() };
        let dag = Dag { items: vec![first, then] };
        let problem = Problem::new(&dag, &cluster).expect("all items can run");
        let mean = MeanRoute::of(&problem);
        assert_eq!(mean.nanos(&problem, 0, None), 20);
        assert_eq!(mean.nanos(&problem, 0, Some(0)), 20 + 2000);
    }
}
