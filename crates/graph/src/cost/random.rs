//! Random graphs and clusters for tests.

use super::improve::Random;
use super::{Cluster, Dag, Input, Item, Processor};
use gpu_core::{Bytes, Route};

/// The properties of random graphs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) groups: bool,
}

/// Returns a graph with items that wait for up to three of the previous twelve. Depending on the
/// seed, work takes up to 1 ms, and transfers take about as long, half as long or twice as long.
pub(super) fn dag(count: usize, processors: usize, seed: u64, shape: Shape) -> Dag {
    let mut random = Random(seed.wrapping_mul(7919) + 1);
    let size = [50_000, 400_000, 1_000_000][random.below(3)];
    let items = (0..count).map(|at| {
        let mut inputs = Vec::new();
        for _ in 0..random.below(4).min(at) {
            let item = (at - 1 - random.below(at.min(12))) as u32;
            inputs.push(match random.below(8) {
                0 => Input::order(item),
                _ => Input::value(item, 0),
            });
        }
        let nanos = 1000 * (random.below(1000) + 1) as u64;
        let each = |random: &mut Random| nanos * (50 + random.below(100) as u64) / 100;
        let mut nanos: Vec<_> = (0..processors).map(|_| Some(each(&mut random))).collect();
        if random.below(5) == 0 && !shape.groups {
            nanos[random.below(processors)] = None;
        }
        Item {
            name: format!("item{at}").into(),
            inputs,
            outputs: vec![Bytes(random.below(size) as u64)],
            nanos,
            workspace: Bytes(random.below(100_000) as u64),
            persistent: Bytes(if random.below(4) == 0 { 50_000 } else { 0 }),
            keeps_outputs: at % 5 == 1,
            group: (shape.groups && random.below(3) == 0).then(|| random.below(3) as u32),
            fixed: None,
        }
    });
    Dag { items: items.collect() }
}

/// Returns processors with routes of about 1 GB/s and without memory limits.
pub(super) fn cluster(count: usize, seed: u64) -> Cluster {
    let mut random = Random(seed ^ 0x5eed);
    let processor =
        |at| Processor { name: format!("/device:GPU:{at}").into(), speed: 1.0, memory: None };
    let mut route = |from, to| {
        if from == to {
            Route::default()
        } else {
            Route {
                latency_nanos: 10_000,
                bytes_per_second: 500_000_000 * (1 + random.below(3) as u64),
            }
        }
    };
    let mut routes = vec![Vec::new(); count];
    for (from, row) in routes.iter_mut().enumerate() {
        row.extend((0..count).map(|to| route(from, to)));
    }
    Cluster { processors: (0..count).map(processor).collect(), routes, one_port: true }
}
