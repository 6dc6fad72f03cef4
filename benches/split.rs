//! Placing the layers of a model with 200 blocks on 16 devices: the search for the best placement,
//! for each objective and for increasingly irregular machines, and accelerate's map.
//!
//! accelerate takes 56 ms for a map of this size on two cores of another machine.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gpu_core::{Bytes, Rates, Route};
use gpu_model::need::{Chain, Engine, Run, chain};
use gpu_model::split::accelerate::{Device, Memory, Module, balanced_memory, infer};
use gpu_model::split::{Objective, Room, Rooms, optimal};
use gpu_model::{Architecture, Encoding, Mixer, Model};
use std::hint::black_box;

const BLOCKS: usize = 200;
const DEVICES: usize = 16;

/// A model of about 270 billion parameters.
fn model() -> Chain {
    let mixer = Mixer::Attention { kv_heads: 8, key: 128, value: 128, window: None };
    let shape = Architecture {
        hidden: 8192,
        feed_forward: 45_056,
        heads: 64,
        vocabulary: 128_256,
        encoding: Some(Encoding::F16),
        layers: vec![mixer; BLOCKS],
        ..Architecture::default()
    };
    let model = Model { shape: Some(shape), ..Model::default() };
    chain(&model, &Run::new(Engine::LlamaCpp, 16_384)).expect("the numbers are known")
}

/// Devices of several sizes and speeds, in islands of fast links.
fn rooms(kinds: usize, island: usize, least_mib: u64) -> Rooms {
    let room = |index: usize| {
        let kind = (index * kinds / DEVICES) as u64;
        let mut room = Room::gpu(format!("CUDA{index}"), Bytes::from_mib(least_mib + kind * 3_000));
        room.bytes_per_second += kind * 70_000_000_000;
        room
    };
    let fast = Route { bytes_per_second: 300_000_000_000, latency_nanos: 5_000 };
    let slow = Rates::default().through_host();
    let route = |from: usize, to: usize| if from / island == to / island { fast } else { slow };
    let row = |from| (0..DEVICES).map(|to| route(from, to)).collect();
    Rooms { rooms: (0..DEVICES).map(room).collect(), routes: (0..DEVICES).map(row).collect() }
}

fn search(c: &mut Criterion) {
    let mut group = c.benchmark_group("split");
    let chain = model();
    for (name, rooms) in [
        ("equal", rooms(1, DEVICES, 60_000)),
        ("equal, roomy", rooms(1, DEVICES, 600_000)),
        ("two kinds", rooms(2, DEVICES, 60_000)),
        ("two kinds, roomy", rooms(2, DEVICES, 600_000)),
        ("four islands", rooms(1, 4, 60_000)),
        ("four kinds in islands", rooms(4, 4, 60_000)),
        ("four kinds in islands, roomy", rooms(4, 4, 600_000)),
        ("all different", rooms(DEVICES, 4, 60_000)),
    ] {
        for objective in [Objective::Throughput, Objective::Latency, Objective::FewestRooms] {
            let placed = || optimal(&chain, &rooms, objective);
            let split = placed();
            assert!(split.fits(), "{name}");
            let exact = if split.is_optimal { "exact" } else { "orders" };
            let id = BenchmarkId::new(format!("optimal/{name}, {exact}"), format!("{objective:?}"));
            group.bench_function(id, |b| b.iter(|| black_box(placed())));
        }
    }
    group.finish();
}

fn modules() -> Module {
    let leaf = |name: &str, size: u64| {
        let parameters = vec![("weight".to_owned(), Bytes(size))];
        let module = Module { class: "Linear".to_owned(), parameters, ..Module::default() };
        (name.to_owned(), module)
    };
    let module =
        |class: &str, children| Module { class: class.to_owned(), children, ..Module::default() };
    let block = || {
        let names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
        module("Block", names.iter().map(|name| leaf(name, 1 << 20)).collect())
    };
    let blocks = (0..BLOCKS).map(|number| (number.to_string(), block())).collect();
    module(
        "Model",
        vec![
            leaf("embed_tokens", 20 << 20),
            ("layers".to_owned(), module("ModuleList", blocks)),
            leaf("lm_head", 20 << 20),
        ],
    )
}

fn maps(c: &mut Criterion) {
    let mut group = c.benchmark_group("split");
    let model = modules();
    let memory: Memory =
        (0..DEVICES as u32).map(|index| (Device::Gpu(index), Bytes(150 << 20))).collect();
    let placed = || {
        let memory = balanced_memory(&model, &memory, &["Block"], &[], false);
        infer(&model, &memory, &["Block"], &[])
    };
    assert!(placed().devices.values().all(|device| *device != Device::Disk));
    group.bench_function("accelerate", |b| b.iter(|| black_box(placed())));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(500));
    targets = search, maps
}
criterion_main!(benches);
