//! Allocators as policies: the cost of an operation, compared with offset-allocator, which
//! allocates offsets in constant time and keeps no statistics; the time to replay a recorded job
//! and to find the memory that it needs; and the linear growth of the replay time with the job.
//!
//! The job is the largest snapshot in the directory GPUWS_TRACES, or else a synthetic one of layers
//! that allocate memory in the forward pass and free it in the backward pass. Both run in the same
//! loop over the same steps.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gpu_allocator_policy::{
    Allocation, Bfc, Caching, ModelMemory, Policy, PolicyConfig, Stream, bfc, caching,
};
use gpu_core::Bytes;
use gpu_memory_trace::trace::{Action, DeviceTrace, Event, Recording, Stacks};
use gpu_memory_trace::{Replay, Step, StepKind, Workload, need};
use offset_allocator::Allocator;
use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The allocation unit for offset-allocator, in bytes: its offsets have 32 bits.
const UNIT: u64 = 256;
/// More memory than any of the jobs needs.
const DEVICE: Bytes = Bytes(512 << 30);

struct Job {
    name: String,
    bytes: Option<Vec<u8>>,
    workload: Workload,
}

/// Returns the largest real snapshot, if there is one.
fn recorded() -> Option<Job> {
    let dir = PathBuf::from(std::env::var_os("GPUWS_TRACES")?);
    let largest = std::fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pickle"))
        .max_by_key(|entry| entry.metadata().map_or(0, |metadata| metadata.len()))?;
    let bytes = std::fs::read(largest.path()).ok()?;
    let recording = Recording::read(&bytes).expect("valid snapshot");
    let trace = recording.devices.iter().max_by_key(|trace| trace.events.len())?;
    let workload = Workload::of(trace, &recording.stacks).expect("consistent recording");
    let name = largest.file_name().to_string_lossy().into_owned();
    Some(Job { name, bytes: Some(bytes), workload })
}

/// Synthetic training: each layer allocates memory in the forward pass and frees it in the backward
/// pass, with short-lived memory in between.
fn made(events: usize) -> Job {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut trace = DeviceTrace::default();
    let mut next = 0u64;
    let mut note = |action, address, size| {
        trace.events.push(Event { action, address, size, stream: 0, time_us: 0 });
        trace.events.len() < events
    };
    'job: loop {
        let mut kept = Vec::new();
        for _layer in 0..48 {
            for _ in 0..8 {
                let (address, size) = (next, 1 << (9 + random(15)) | random(4096));
                next += 1;
                if !note(Action::Alloc, address, size) {
                    break 'job;
                }
                if random(3) == 0 {
                    kept.push((address, size));
                } else if !note(Action::FreeCompleted, address, size) {
                    break 'job;
                }
            }
        }
        while let Some((address, size)) = kept.pop() {
            if !note(Action::FreeCompleted, address, size) {
                break 'job;
            }
        }
    }
    let workload = Workload::of(&trace, &Stacks::default()).expect("consistent recording");
    Job { name: format!("made, {events} events"), bytes: None, workload }
}

fn job() -> Job {
    recorded().unwrap_or_else(|| {
        let why =
            "skipped: GPUWS_TRACES names no directory of real snapshots; using a synthetic job";
        writeln!(std::io::stderr(), "{why}").expect("stderr can be written");
        made(20_000)
    })
}

/// The operations of a job, each by its slot: allocations and frees. All memory is freed at the
/// end, so that the job can be repeated.
fn operations(workload: &Workload) -> Vec<Step> {
    let held = workload.held.iter().map(|held| Step {
        size: held.size,
        slot: held.slot,
        stream: held.stream,
        kind: StepKind::Allocate,
    });
    let done = workload.steps.iter().copied().filter_map(|step| match step.kind {
        StepKind::Allocate => Some(step),
        StepKind::Free | StepKind::Complete => Some(Step { kind: StepKind::Free, ..step }),
        _ => None,
    });
    let mut steps: Vec<_> = held.chain(done).collect();
    let mut live = vec![false; workload.slots as usize];
    for step in &steps {
        live[step.slot as usize] = step.kind == StepKind::Allocate;
    }
    let left = (0..workload.slots).filter(|slot| live[*slot as usize]);
    steps.extend(left.map(|slot| Step { size: 0, slot, stream: 0, kind: StepKind::Free }));
    steps
}

fn run_policy(policy: &mut impl Policy, slots: &mut [Option<Allocation>], steps: &[Step]) {
    for step in steps {
        let slot = &mut slots[step.slot as usize];
        if step.kind == StepKind::Allocate {
            *slot = policy.allocate(Bytes(step.size), Stream(0)).ok();
        } else if let Some(allocation) = slot.take() {
            policy.free(allocation).expect("allocated here");
        }
    }
}

fn run_peer(
    peer: &mut Allocator<u32>,
    slots: &mut [Option<offset_allocator::Allocation<u32>>],
    steps: &[Step],
) {
    for step in steps {
        let slot = &mut slots[step.slot as usize];
        if step.kind == StepKind::Allocate {
            *slot = peer.allocate(step.size.div_ceil(UNIT).max(1) as u32);
        } else if let Some(allocation) = slot.take() {
            peer.free(allocation);
        }
    }
}

fn vacant<T>(count: usize) -> Vec<Option<T>> {
    std::iter::repeat_with(|| None).take(count).collect()
}

/// One operation of an allocator in its steady state: regions are held, and the job runs
/// repeatedly.
fn operation(criterion: &mut Criterion) {
    let job = job();
    let steps = operations(&job.workload);
    let slots = job.workload.slots as usize;
    let mut group = criterion.benchmark_group(format!("operation of {}", job.name));
    group.throughput(Throughput::Elements(steps.len() as u64));
    group.bench_function("offset-allocator", |bencher| {
        let mut peer: Allocator<u32> = Allocator::new((DEVICE.0 / UNIT) as u32);
        let mut slots = vacant(slots);
        bencher.iter(|| run_peer(&mut peer, &mut slots, black_box(&steps)));
    });
    group.bench_function("caching", |bencher| {
        let settings = caching::Settings::default();
        let mut policy = Caching::new(ModelMemory::new(DEVICE), settings).expect("no limit");
        let mut slots = vacant(slots);
        bencher.iter(|| run_policy(&mut policy, &mut slots, black_box(&steps)));
    });
    group.bench_function("bfc", |bencher| {
        let settings = bfc::Settings { limit: Some(DEVICE), ..bfc::Settings::default() };
        let mut policy = Bfc::new(ModelMemory::new(DEVICE), settings).expect("a limit is set");
        let mut slots = vacant(slots);
        bencher.iter(|| run_policy(&mut policy, &mut slots, black_box(&steps)));
    });
    group.finish();
}

/// A complete replay, including device requests and peaks.
fn replay(criterion: &mut Criterion) {
    let job = job();
    let mut group = criterion.benchmark_group(format!("replay of {}", job.name));
    group.throughput(Throughput::Elements(job.workload.steps.len() as u64));
    for name in PolicyConfig::names() {
        let choice = PolicyConfig::named(name).expect("known policy");
        group.bench_function(name, |bencher| {
            let build =
                || choice.on(DEVICE).build(ModelMemory::new(DEVICE)).expect("a limit is set");
            bencher.iter_batched(
                build,
                |mut policy| {
                    Replay::new(&job.workload).run(policy.as_mut(), &mut ()).expect("no faults")
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// Reading a snapshot, and finding the memory that its job needs.
fn snapshot(criterion: &mut Criterion) {
    let job = job();
    let mut group = criterion.benchmark_group(job.name.clone());
    if let Some(bytes) = &job.bytes {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("read", |bencher| {
            bencher.iter(|| Recording::read(black_box(bytes)).expect("valid snapshot"));
        });
    }
    for name in ["caching", "expandable", "bfc"] {
        let choice = PolicyConfig::named(name).expect("known policy");
        group.bench_function(BenchmarkId::new("fit", name), |bencher| {
            bencher.iter(|| need(&job.workload, &choice).expect("unlimited memory"));
        });
    }
    group.finish();
}

/// The same kind of job with increasing length.
fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("growth");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for events in [10_000, 100_000, 1_000_000, 10_000_000] {
        let job = made(events);
        group.throughput(Throughput::Elements(events as u64));
        for name in ["caching", "bfc"] {
            let choice = PolicyConfig::named(name).expect("known policy");
            group.bench_function(BenchmarkId::new(name, events), |bencher| {
                let build =
                    || choice.on(DEVICE).build(ModelMemory::new(DEVICE)).expect("a limit is set");
                bencher.iter_batched(
                    build,
                    |mut policy| {
                        Replay::new(&job.workload).run(policy.as_mut(), &mut ()).expect("no faults")
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

/// Fragmented jobs of this many allocations. Their need is the hardest to find: one job frees every
/// second block and then makes larger requests, the other fills the device with large blocks of
/// random length.
fn fragmented(allocations: u64) -> [(&'static str, Workload); 2] {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut job = |comb: bool| {
        let mut trace = DeviceTrace::default();
        let mut note = |action, address, size| {
            trace.events.push(Event { action, address, size, stream: 0, time_us: 0 });
        };
        let mut live: Vec<(u64, u64)> = Vec::new();
        for number in 0..allocations {
            let size = if comb {
                900_000 + number * 4 / allocations * 100_000
            } else {
                (1 << 20) + random(60 << 20)
            };
            note(Action::Alloc, number, size);
            live.push((number, size));
            let freed = match (comb, number * 2 > allocations) {
                (true, true) => Some(number as usize % live.len() / 2),
                (false, _) if number > allocations / 4 => Some(random(live.len() as u64) as usize),
                _ => None,
            };
            if let Some((address, size)) = freed.map(|index| live.swap_remove(index)) {
                note(Action::FreeCompleted, address, size);
            }
        }
        Workload::of(&trace, &Stacks::default()).expect("consistent recording")
    };
    [("comb", job(true)), ("large blocks", job(false))]
}

/// The memory that fragmented jobs need, under the allocators that `mem fit` compares.
fn fit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fit");
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    for allocations in [8_000, 150_000] {
        for (shape, workload) in fragmented(allocations) {
            group.bench_function(BenchmarkId::new(shape, allocations), |bencher| {
                bencher.iter(|| {
                    for name in ["caching", "expandable"] {
                        let choice = PolicyConfig::named(name).expect("known policy");
                        black_box(need(&workload, &choice).expect("unlimited memory"));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, operation, replay, snapshot, fit, growth);
criterion_main!(benches);
