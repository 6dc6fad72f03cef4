//! Choosing devices for a claim, on machines with 16 free devices, for each number of requested
//! devices: gpu-placement compared with an enumeration of all partitions, which is how NVIDIA's
//! go-gpuallocator finds its best set.
//!
//! The enumeration exists only for this comparison: it creates every partition into sets of this
//! size (with the rest in a smaller set, where the original has empty slots), sums its pairs and
//! keeps the best. It runs only where it finishes: with 10 devices for every size, and with 16 if
//! there are at most three million partitions. Before anything is timed, both must find the same
//! total.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gpu_core::{Absent, Bytes, Celsius, Claim, DeviceId, DeviceUuid, Link, Topology};
use gpu_placement::{Offer, choose};
use std::hint::black_box;

/// The maximum number of partitions to enumerate.
const MAX_DIVISIONS: u64 = 3_000_000;

/// A machine with its name.
struct Machine {
    name: &'static str,
    topology: Topology,
}

fn square(count: usize, cell: impl Fn(usize, usize) -> Link) -> Vec<Vec<Link>> {
    let cell = |from: usize, to: usize| {
        if from == to { Link::Itself } else { cell(from.min(to), from.max(to)) }
    };
    (0..count).map(|from| (0..count).map(|to| cell(from, to)).collect()).collect()
}

/// A number that depends only on the seed and the pair (the mixing step of SplitMix64).
fn mixed(seed: u64, from: usize, to: usize) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (from as u64) << 32 ^ to as u64;
    for multiplier in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(multiplier);
    }
    x ^ x >> 31
}

/// Random links, without any structure that a search could exploit.
fn random(count: usize) -> Machine {
    let kinds = [Link::Sys, Link::Node, Link::Phb, Link::Pxb, Link::Pix];
    let path = |from, to| kinds[(mixed(1, from, to) % 5) as usize];
    let link = |from, to| match mixed(2, from, to) % 13 {
        0 => path(from, to),
        lanes => Link::NvLink(lanes as u8),
    };
    let topology =
        Topology { links: square(count, link), paths: square(count, path), peers: Vec::new() };
    Machine { name: "random", topology }
}

/// Two DGX-1 with V100, joined into one system.
fn two_dgx1() -> Machine {
    let two = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)];
    let one = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)];
    let path = |from: usize, to: usize| match (from / 2 == to / 2, from / 4 == to / 4) {
        (true, _) => Link::Pix,
        (_, true) => Link::Phb,
        _ => Link::Sys,
    };
    let link = |from: usize, to: usize| match (from % 8, to % 8) {
        _ if from / 8 != to / 8 => Link::Sys,
        pair if two.contains(&pair) => Link::NvLink(2),
        pair if one.contains(&pair) => Link::NvLink(1),
        _ => path(from, to),
    };
    let topology = Topology { links: square(16, link), paths: square(16, path), peers: Vec::new() };
    Machine { name: "2 × DGX-1", topology }
}

/// A DGX-2: all links are equal.
fn dgx2() -> Machine {
    let links = square(16, |_, _| Link::NvLink(6));
    Machine { name: "DGX-2", topology: Topology { links, ..Topology::default() } }
}

fn offers(count: u32) -> Vec<Offer> {
    let offer = |index| Offer {
        id: DeviceId {
            uuid: Ok(DeviceUuid(format!("GPU-{index}"))),
            ..DeviceId::from_index(index)
        },
        capacity: Ok(Bytes::from_mib(16 << 10)),
        free: Ok(Bytes::from_mib(16 << 10)),
        room: Ok(Bytes::from_mib(16 << 10)),
        compute_capability: Err(Absent::NotSupported),
        shared_with_host: false,
        display: false,
        temperature: Ok(Celsius(30)),
        last_leased: None,
        bar: None,
    };
    (0..count).map(offer).collect()
}

/// Enumerates every partition of a machine, with the highest total so far.
struct Enumeration<'a> {
    topology: &'a Topology,
    size: usize,
    sets: Vec<Vec<usize>>,
    best: u32,
}

impl Enumeration<'_> {
    fn total(topology: &Topology, size: usize) -> u32 {
        let free: Vec<usize> = (0..topology.links.len()).collect();
        let mut enumeration = Enumeration { topology, size, sets: Vec::new(), best: 0 };
        enumeration.divide(&free, free.len() % size);
        enumeration.best
    }

    fn divide(&mut self, free: &[usize], small: usize) {
        let Some((lowest, others)) = free.split_first() else {
            let total = self.sets.iter().map(|set| self.score(set)).sum();
            self.best = self.best.max(total);
            return;
        };
        if free.len() >= self.size + small {
            self.complete(vec![*lowest], others, &[], self.size, small);
        }
        if small > 0 {
            self.complete(vec![*lowest], others, &[], small, 0);
        }
    }

    /// Completes a set with other devices in every way; skipped devices stay free.
    fn complete(
        &mut self,
        set: Vec<usize>,
        others: &[usize],
        passed: &[usize],
        size: usize,
        small: usize,
    ) {
        if set.len() == size {
            let free = [passed, others].concat();
            self.sets.push(set);
            self.divide(&free, small);
            self.sets.pop();
            return;
        }
        let mut passed = passed.to_vec();
        for (at, other) in others.iter().enumerate() {
            let mut longer = set.clone();
            longer.push(*other);
            self.complete(longer, &others[at + 1..], &passed, size, small);
            passed.push(*other);
        }
    }

    fn score(&self, set: &[usize]) -> u32 {
        let pairs = set.iter().enumerate();
        let pairs = pairs.flat_map(|(at, from)| set[at + 1..].iter().map(move |to| (*from, *to)));
        pairs.map(|(from, to)| self.topology.score(from, to)).sum()
    }
}

/// Returns the number of partitions into sets of this size and one set of the rest.
fn divisions(count: u64, size: u64) -> u64 {
    let choose = |from: u64, of: u64| (1..=of).fold(1, |all, i| all * (from + 1 - i) / i);
    let (mut left, mut all) = (count, choose(count, count % size));
    left -= count % size;
    while left > 0 {
        all *= choose(left - 1, size - 1);
        left -= size;
    }
    all
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("placement");
    for machine in [random(16), two_dgx1(), dgx2(), random(10)] {
        let count = machine.topology.links.len();
        let offers = offers(count as u32);
        let name = format!("{} {count}", machine.name);
        for size in 1..=count as u32 {
            let claim = Claim::whole(size);
            let chosen = || choose(&claim, &offers, Some(&machine.topology));
            let choice = chosen().expect("there are enough");
            assert!(choice.exact);
            group.bench_function(BenchmarkId::new(format!("gpuws/{name}"), size), |b| {
                b.iter(|| black_box(chosen()));
            });
            // The time does not depend on the links.
            let is_enumerated = machine.name == "random";
            if !is_enumerated || divisions(count as u64, size.into()) > MAX_DIVISIONS {
                continue;
            }
            let enumerated = || Enumeration::total(&machine.topology, size as usize);
            assert_eq!(choice.total, enumerated(), "{name} {size}");
            group.bench_function(BenchmarkId::new(format!("enumeration/{name}"), size), |b| {
                b.iter(|| black_box(enumerated()));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(500));
    targets = bench
}
criterion_main!(benches);
