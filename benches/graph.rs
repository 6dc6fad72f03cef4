//! Building and placing graphs of 1,000 to 1,000,000 nodes on eight GPUs and a CPU: without device
//! requests, with 30 % of the nodes on a requested GPU, and with 30 % colocated with an earlier
//! node. `cargo xtask plot` draws how the times grow.
//!
//! For comparison, the placer of TensorFlow 2.21 took 272, 440 and 691 ms for such graphs of 100,000
//! nodes (docs/graph-placement.md).

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use gpu_graph::placer::{self, Options};
use gpu_graph::{
    ArgDef, ArgKind, Attr, DeviceSet, Dtype, Graph, GraphDef, Kernel, NodeDef, OpDef, Registry,
};
use std::hint::black_box;

/// A graph in which each node adds the values of two earlier ones.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    pinned: usize,
    colocated: usize,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "plain", pinned: 0, colocated: 0 },
    Shape { name: "30 % pinned", pinned: 30, colocated: 0 },
    Shape { name: "30 % colocated", pinned: 0, colocated: 30 },
];

const COUNTS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// A number that depends only on its arguments (the mixing step of SplitMix64).
fn mixed(seed: usize, at: usize) -> usize {
    let mut x = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64;
    for multiplier in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(multiplier);
    }
    (x ^ x >> 31) as usize
}

fn def(shape: Shape, count: usize) -> GraphDef {
    let node = |at: usize| {
        let mut node =
            NodeDef { name: format!("node{at}"), op: "Add".into(), ..NodeDef::default() };
        if at < 16 {
            node.op = "Read".into();
            return node;
        }
        node.inputs = (0..2).map(|input| format!("node{}", mixed(input, at) % at)).collect();
        if mixed(2, at) % 100 < shape.pinned {
            node.device = format!("/device:GPU:{}", mixed(3, at) % 8);
        }
        if mixed(4, at) % 100 < shape.colocated {
            let with = Attr::Text(format!("loc:@node{}", mixed(5, at) % at));
            node.attrs.insert("_class".into(), Attr::List(vec![with]));
        }
        node
    };
    GraphDef { nodes: (0..count).map(node).collect(), functions: Vec::new() }
}

fn registry() -> Registry {
    let arg = |name: &str| ArgDef {
        name: name.into(),
        kind: ArgKind::Type(Dtype::FLOAT),
        reference: false,
    };
    let mut registry = Registry::default();
    for (name, inputs) in [("Read", vec![]), ("Add", vec![arg("x"), arg("y")])] {
        let outputs = vec![arg("z")];
        registry.add_op(OpDef { name: name.into(), inputs, outputs, ..OpDef::default() });
        for device_type in ["GPU", "CPU"] {
            let (op, device_type) = (name.into(), device_type.into());
            registry.add_kernel(Kernel { op, device_type, ..Kernel::default() });
        }
    }
    registry
}

fn benches(c: &mut Criterion) {
    let registry = registry();
    let names = (0..8).map(|at| format!("GPU:{at}")).chain(["CPU:0".to_owned()]);
    let names: Vec<String> =
        names.map(|name| format!("/job:localhost/replica:0/task:0/device:{name}")).collect();
    let devices = DeviceSet::named(names.iter().map(String::as_str)).expect("full names");
    let mut group = c.benchmark_group("placing");
    group.sample_size(20);
    for count in COUNTS {
        for shape in SHAPES {
            let graph = Graph::build(def(shape, count), &registry).expect("a valid graph");
            group.bench_with_input(BenchmarkId::new(shape.name, count), &graph, |b, graph| {
                b.iter(|| {
                    placer::place(black_box(graph), &registry, &devices, &Options::default())
                });
            });
        }
        let def = def(SHAPES[0], count);
        group.bench_with_input(BenchmarkId::new("building", count), &def, |b, def| {
            b.iter_batched(
                || def.clone(),
                |def| Graph::build(def, &registry),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(graph, benches);
criterion_main!(graph);
