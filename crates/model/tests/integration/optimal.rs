//! The search for the best placement, compared with all placements and with the simple ones.

use gpu_core::{Bytes, Route};
use gpu_model::need::{Chain, Layer, Position};
use gpu_model::split::{
    Cost, Objective, Room, RoomKind, Rooms, Split, balanced, first_fit, llama, measure, optimal,
};
use proptest::prelude::*;

const OBJECTIVES: [Objective; 3] =
    [Objective::Throughput, Objective::Latency, Objective::FewestRooms];

/// The figures of a layer: weights, context, reads, operations, crossing, buffer, additional buffer
/// in a pipeline, entry, joined.
type Numbers = ((u64, u64, u64, u64), (u64, u64, u64, u64), bool);

fn layer(index: usize, last: usize, numbers: &Numbers) -> Layer {
    let ((weights, context, reads, operations), (crossing, buffer, more, entry), joined) = *numbers;
    Layer {
        name: format!("layer {index}"),
        position: match index {
            0 => Position::Input,
            _ if index == last => Position::Output,
            _ => Position::Block(index - 1),
        },
        weights: Bytes(weights),
        context: Bytes(context),
        parts: Vec::new(),
        reads: Bytes(reads),
        operations,
        crossing: Bytes(crossing),
        buffer: Bytes(buffer),
        pipelined: Bytes(buffer + more),
        buffer_without_experts: Bytes(buffer),
        entry: Bytes(entry),
        joined: joined && index > 1,
        pinned: false,
    }
}

fn chains(most: usize) -> impl Strategy<Value = Chain> {
    let joined = prop::bool::weighted(0.15);
    let sizes = (1..100_u64, 0..50_u64, 1..100_u64, 0..100_u64);
    let numbers = (sizes, (0..30_u64, 0..40_u64, 0..20_u64, 0..20_u64), joined);
    let layers = prop::collection::vec(numbers, 3..=most);
    let offload = prop_oneof![3 => Just(0), 1 => 1..40_u64];
    (layers, 0..30_u64, 0..60_u64, (0..20_u64, offload), any::<bool>()).prop_map(
        |(numbers, overhead, tied, (pinned_buffer, offload), cpu_first)| {
            let last = numbers.len() - 1;
            let each = numbers.iter().enumerate();
            let mut layers: Vec<Layer> =
                each.map(|(index, numbers)| layer(index, last, numbers)).collect();
            layers[0].pinned = cpu_first;
            let tied = Bytes(tied).min(layers[0].weights).min(layers[last].weights);
            Chain {
                layers,
                tied,
                overhead: Bytes(overhead),
                offload: Bytes(offload),
                pinned_buffer: Bytes(pinned_buffer),
                cpu_first,
            }
        },
    )
}

/// Rooms of a few kinds, so that some are interchangeable and some are not, on links of two speeds.
fn rooms(most: usize) -> impl Strategy<Value = Rooms> {
    let kinds = prop::sample::select(vec![
        RoomKind::Gpu,
        RoomKind::Gpu,
        RoomKind::Gpu,
        RoomKind::Cpu,
        RoomKind::Disk,
    ]);
    let room = (kinds, prop::sample::select(vec![150_u64, 300, 500, 900]), 1..3_u64);
    let even = any::<bool>();
    (prop::collection::vec(room, 1..=most), even, any::<u64>()).prop_map(|(rooms, even, seed)| {
        let rooms: Vec<Room> = rooms
            .into_iter()
            .enumerate()
            .map(|(index, (kind, capacity, speed))| Room {
                name: format!("room {index}"),
                kind,
                capacity: Bytes(capacity),
                bytes_per_second: speed * 1_000_000_000 / if kind == RoomKind::Gpu { 1 } else { 7 },
                operations_per_second: 3_000_000_000,
                compute_capability: None,
                is_shared: false,
            })
            .collect();
        let route = |from: usize, to: usize| match seed >> ((from * 5 + to) % 61) & 1 {
            bit if bit == 0 || even => Route { bytes_per_second: 10_000_000_000, latency_nanos: 3 },
            _ => Route { bytes_per_second: 500_000_000, latency_nanos: 20 },
        };
        let count = rooms.len();
        let row = |from| (0..count).map(|to| route(from, to)).collect();
        Rooms { rooms, routes: (0..count).map(row).collect() }
    })
}

/// Tries every placement: each order of rooms, each division of layers.
struct All<'a> {
    chain: &'a Chain,
    rooms: &'a Rooms,
    objective: Objective,
    best: Option<Cost>,
}

impl All<'_> {
    fn walk(&mut self, assigned: &mut Vec<Option<usize>>, used: &mut Vec<usize>) {
        let layers = &self.chain.layers;
        if assigned.len() == layers.len() {
            let split = measure(self.chain, self.rooms, assigned.clone(), Vec::new());
            if split.fits() {
                let cost = split.cost(self.objective);
                self.best = Some(self.best.map_or(cost, |best| best.min(cost)));
            }
            return;
        }
        for room in 0..self.rooms.rooms.len() {
            let kind = self.rooms.rooms[room].kind;
            let last = used.last().map(|last| self.rooms.rooms[*last].kind);
            let in_order = last
                .is_none_or(|last| if self.chain.cpu_first { last >= kind } else { last <= kind });
            if used.contains(&room) || !in_order {
                continue;
            }
            used.push(room);
            for end in assigned.len() + 1..=layers.len() {
                if layers.get(end).is_some_and(|layer| layer.joined) {
                    continue;
                }
                let before = assigned.len();
                assigned.resize(end, Some(room));
                self.walk(assigned, used);
                assigned.truncate(before);
            }
            used.pop();
        }
    }
}

fn brute_force(chain: &Chain, rooms: &Rooms, objective: Objective) -> Option<Cost> {
    let cpu = rooms.rooms.iter().position(|room| room.kind == RoomKind::Cpu);
    let mut assigned = if chain.cpu_first { vec![cpu] } else { Vec::new() };
    let mut all = All { chain, rooms, objective, best: None };
    all.walk(&mut assigned, &mut Vec::new());
    all.best
}

/// Returns whether layers that must stay together are separated.
fn cuts_group(chain: &Chain, split: &Split) -> bool {
    let pairs = chain.layers.iter().zip(split.rooms.windows(2)).zip(1..);
    pairs.into_iter().any(|((_, pair), next)| chain.layers[next].joined && pair[0] != pair[1])
}

/// Returns whether the search knows which GPU computes batches for the CPU.
fn is_exact(chain: &Chain, rooms: &Rooms) -> bool {
    let gpus = rooms.rooms.iter().filter(|room| room.kind == RoomKind::Gpu);
    chain.offload == Bytes(0) || gpus.count() < 2
}

fn cost(split: &Split, objective: Objective) -> Option<Cost> {
    split.fits().then(|| split.cost(objective))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn optimum_equals_best_of_all_placements(chain in chains(8), rooms in rooms(3)) {
        for objective in OBJECTIVES {
            let found = optimal(&chain, &rooms, objective);
            let (cost, best) = (cost(&found, objective), brute_force(&chain, &rooms, objective));
            if is_exact(&chain, &rooms) || found.last_resort == RoomKind::Gpu && found.fits() {
                prop_assert_eq!(cost, best);
                prop_assert_eq!(found.is_optimal, found.fits());
            } else {
                prop_assert!(!found.is_optimal);
                prop_assert!(cost.is_none_or(|cost| best.is_some_and(|best| best <= cost)));
            }
        }
    }

    #[test]
    fn optimum_is_never_worse_than_plain_placements(chain in chains(24), rooms in rooms(6)) {
        for objective in OBJECTIVES {
            let best = cost(&optimal(&chain, &rooms, objective), objective);
            let plain = [
                first_fit(&chain, &rooms),
                balanced(&chain, &rooms),
                llama::placed(&chain, &rooms, None, &[]),
                llama::placed(&chain, &rooms, Some(chain.layers.len() / 2), &[1.0, 3.0]),
            ];
            let respects = |split: &&Split| {
                let order = chain.cpu_first || split.last_resort == RoomKind::Gpu;
                order && !cuts_group(&chain, split)
            };
            let known = is_exact(&chain, &rooms);
            let plain = plain.iter().filter(respects);
            let plain = plain.filter(|split| known || split.last_resort == RoomKind::Gpu);
            for other in plain.filter_map(|split| cost(split, objective)) {
                prop_assert!(best.is_some_and(|best| best <= other), "{best:?} {other:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn optimum_of_larger_cases_equals_best_of_all_placements(
        chain in chains(12),
        rooms in rooms(4),
    ) {
        let chain = Chain { offload: Bytes(0), ..chain };
        for objective in OBJECTIVES {
            let found = optimal(&chain, &rooms, objective);
            prop_assert_eq!(cost(&found, objective), brute_force(&chain, &rooms, objective));
        }
    }
}

#[test]
fn searches_some_orders_of_sixteen_different_devices() {
    let sizes = (20..60).map(|size| ((size, 5, size, 3), (4, 6, 3, 2), size % 11 == 0));
    let numbers: Vec<Numbers> = sizes.collect();
    let last = numbers.len() - 1;
    let layers = numbers.iter().enumerate().map(|(index, of)| layer(index, last, of)).collect();
    let chain = Chain { layers, overhead: Bytes(10), cpu_first: true, ..Chain::default() };
    let room = |index: u64| Room {
        bytes_per_second: 1_000_000_000 + index * 37_000_000,
        ..Room::gpu(format!("room {index}"), Bytes(170 + index * 13 % 40))
    };
    let rooms = Rooms::new((0..16).map(room).collect());
    for objective in OBJECTIVES {
        let found = optimal(&chain, &rooms, objective);
        assert!(found.fits() && !found.is_optimal);
        for other in [
            first_fit(&chain, &rooms),
            balanced(&chain, &rooms),
            llama::placed(&chain, &rooms, None, &[]),
        ] {
            assert!(!other.fits() || found.cost(objective) <= other.cost(objective));
        }
    }
}
