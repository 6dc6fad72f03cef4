//! Scheduling random graphs of growing size on eight devices. `cargo xtask plot` draws how the time
//! grows.
//!
//! Before anything is timed, each schedule is checked by `gpu_graph::cost::verify`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gpu_core::{Bytes, Link, Rates, Topology};
use gpu_graph::cost::{Cluster, Dag, Input, Item, Processor, list_schedule, optimal, verify};
use std::hint::black_box;

const DEVICES: usize = 8;

/// A number below a limit that depends only on its seed (the mixing step of SplitMix64).
fn mixed(seed: u64, limit: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for multiplier in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(multiplier);
    }
    (x ^ x >> 31) % limit
}

/// Items that wait for up to three of the 64 preceding ones, take up to 1 ms and produce up to 4
/// MiB.
fn dag(count: u64) -> Dag {
    let item = |at: u64| {
        let of = |what: u64, limit: u64| mixed(at * 8 + what, limit);
        let inputs = (0..of(0, 4).min(at)).map(|which| {
            let back = 1 + of(1 + which, at.min(64));
            Input::value((at - back) as u32, 0)
        });
        let nanos = 1000 + of(5, 1_000_000);
        Item {
            name: format!("item{at}").into(),
            inputs: inputs.collect(),
            outputs: vec![Bytes(of(6, 4 << 20))],
            nanos: vec![Some(nanos); DEVICES],
            ..Item::default()
        }
    };
    Dag { items: (0..count).map(item).collect() }
}

fn cluster(memory: Option<Bytes>) -> Cluster {
    let link = |from, to| if from == to { Link::Itself } else { Link::NvLink(6) };
    let links = (0..DEVICES).map(|from| (0..DEVICES).map(|to| link(from, to)).collect()).collect();
    let device = |at| Processor { name: format!("/device:GPU:{at}").into(), speed: 1.0, memory };
    let topology = Topology { links, ..Topology::default() };
    Cluster::of_machine((0..DEVICES).map(device).collect(), None, &topology, &Rates::default())
}

fn schedules(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduling");
    group.sample_size(10);
    for count in [1_000, 10_000, 100_000] {
        let dag = dag(count);
        group.throughput(Throughput::Elements(count));
        for (name, memory) in [("unlimited", None), ("16 GiB", Some(Bytes::from_mib(16 << 10)))] {
            let cluster = cluster(memory);
            let schedule = list_schedule(&dag, &cluster).expect("the memory suffices");
            verify(&dag, &cluster, &schedule).expect("the schedule is valid");
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                bencher.iter(|| list_schedule(black_box(&dag), black_box(&cluster)));
            });
        }
    }
    group.finish();
}

fn exact(criterion: &mut Criterion) {
    let mut cluster = cluster(None);
    cluster.processors.truncate(3);
    cluster.one_port = false;
    let mut group = criterion.benchmark_group("optimum on 3 devices");
    group.sample_size(10);
    for count in [8, 10, 12] {
        let mut dag = dag(count);
        for item in &mut dag.items {
            item.nanos.truncate(3);
        }
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| optimal(black_box(&dag), black_box(&cluster), 1_000_000));
        });
    }
    group.finish();
}

criterion_group!(benches, schedules, exact);
criterion_main!(benches);
