//! The cost of memory on a real GPU: CUDA's plain memory, its pool, pages mapped into address
//! ranges, and a caching allocator over plain memory, for regions that are allocated and freed;
//! also the cost of kernels: a launch, one stream waiting for another, a graph on two streams, and
//! a matrix multiplication.
//!
//! GPUWS_HW_GPU is the UUID of the GPU. Without it, the bench uses no GPU and prints a note.
#![expect(clippy::print_stderr, reason = "a skipped bench prints a note")]

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_allocator_policy::{Caching, Policy, Stream};
use gpu_core::{Bytes, DeviceMemory, DeviceUuid, Region};
use gpu_cuda::cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DriverError};
use gpu_cuda::{CudaKernels, CudaMemory, CudaPool, CudaStreams, MatmulShape};
use gpu_executor::{NodeIx, StreamPlan, Streams, TaskGraph};
use std::sync::Arc;

/// The variable that permits the use of one GPU.
const PERMITTED: &str = "GPUWS_HW_GPU";

const SIZES: [Bytes; 2] = [Bytes::from_mib(2), Bytes::from_mib(32)];

fn take(memory: &dyn DeviceMemory, size: Bytes) {
    let region = memory.reserve(size).expect("the device has free memory");
    memory.release(region).expect("an allocation can be freed");
}

fn map(memory: &dyn DeviceMemory, part: Region) {
    memory.map(part).expect("the device has free memory");
    memory.unmap(part).expect("a mapped page can be unmapped");
}

fn bench(criterion: &mut Criterion) {
    let Ok(uuid) = std::env::var(PERMITTED) else {
        eprintln!("skipped: {PERMITTED} names no GPU");
        return;
    };
    let device = DeviceUuid(uuid);
    let memory = match CudaMemory::open(&device) {
        Ok(memory) => Arc::new(memory),
        Err(error) => {
            eprintln!("skipped: {}", error.fault().text);
            return;
        }
    };
    for size in SIZES {
        let mut group = criterion.benchmark_group(format!("{} MiB of a GPU", size.mib()));
        group.bench_function("cuMemAlloc", |bencher| bencher.iter(|| take(&*memory, size)));
        match CudaPool::open(&device) {
            Ok(pool) => {
                group.bench_function("cuMemAllocAsync", |bencher| {
                    bencher.iter(|| take(&pool, size));
                });
            }
            Err(error) => eprintln!("skipped: {}", error.fault().text),
        }
        match memory.reserve_addresses(size) {
            Ok(range) => {
                group.bench_function("cuMemMap", |bencher| bencher.iter(|| map(&*memory, range)));
                memory.release_addresses(range).expect("reserved addresses can be released");
            }
            Err(error) => eprintln!("skipped: {}", error.fault().text),
        }
        let mut caching = Caching::new(Arc::clone(&memory), Default::default())
            .expect("the defaults are valid settings");
        group.bench_function("Caching", |bencher| {
            bencher.iter(|| {
                let taken = caching.allocate(size, Stream(0)).expect("the device has free memory");
                caching.free(taken).expect("an allocation can be freed");
            });
        });
        group.finish();
    }
    match kernels(criterion, &device) {
        Ok(()) => {}
        Err(error) => eprintln!("skipped: kernels: {}", error.fault().text),
    }
}

/// Measures kernels, after checking their results against the host's.
fn kernels(criterion: &mut Criterion, device: &DeviceUuid) -> gpu_core::Result<()> {
    let context = gpu_cuda::open(device)?;
    let kernels = CudaKernels::compile(&context)?;
    let [first, second] = [(); 2].map(|()| context.new_stream().expect("a stream can be created"));
    check(&kernels, &first);
    let mut group = criterion.benchmark_group("kernels of a GPU");
    let vector = |length| zeros(&first, length).expect("the device has free memory");
    let (small, mut sum) = (vector(256), vector(256));
    group.bench_function("one add of 256 elements", |bencher| {
        bencher.iter(|| {
            kernels.add(&first, (&small, &small), &mut sum).expect("the lengths are equal");
            first.synchronize().expect("the kernel ends");
        });
    });
    group.bench_function("a stream waits for an event of another", |bencher| {
        bencher.iter(|| {
            let event = first.record_event(None).expect("an event can be recorded");
            second.wait(&event).expect("a stream can wait for it");
            second.synchronize().expect("both streams end");
        });
    });
    let streams = CudaStreams::open(&[context.clone(), context.clone()])?;
    let (graph, mut work) = Wavefront::new(&kernels, &streams);
    let plan = StreamPlan::new(&graph, |node| node.0 as usize / WIDE % 2);
    plan.run(&mut work, None).expect("the graph runs");
    work.check();
    group.bench_function("graph of 64 adds on two streams", |bencher| {
        bencher.iter(|| plan.run(&mut work, None).expect("the graph runs"));
    });
    const SIDE: u32 = 1024;
    let length = (SIDE * SIDE) as usize;
    let (a, b, mut product) = (vector(length), vector(length), vector(length));
    let shape = MatmulShape { rows: SIDE, inner: SIDE, columns: SIDE };
    group.bench_function("product of 1024 by 1024 matrices", |bencher| {
        bencher.iter(|| {
            kernels.matmul(&first, shape, (&a, &b), &mut product).expect("the lengths are right");
            first.synchronize().expect("the kernel ends");
        });
    });
    group.finish();
    Ok(())
}

/// The width of the wavefront.
const WIDE: usize = 8;
/// The number of elements in each of its vectors.
const LONG: usize = 256;

/// A grid of nodes, each of which adds the vectors of its neighbours above and to the left.
struct Wavefront<'a> {
    kernels: &'a CudaKernels,
    streams: &'a CudaStreams,
    /// The vector of each node; outside the edges, vectors of ones.
    vectors: Vec<Option<CudaSlice<f32>>>,
    edge: CudaSlice<f32>,
}

impl<'a> Wavefront<'a> {
    fn new(kernels: &'a CudaKernels, streams: &'a CudaStreams) -> (TaskGraph, Self) {
        let right = |at: u32| (!(at as usize + 1).is_multiple_of(WIDE)).then_some(at + 1);
        let below = |at: u32| (at as usize + WIDE < WIDE * WIDE).then_some(at + WIDE as u32);
        let nodes = 0..(WIDE * WIDE) as u32;
        let edges = nodes.clone().flat_map(|at| {
            let next = [right(at), below(at)].into_iter().flatten();
            next.map(move |to| (at, to))
        });
        let graph = TaskGraph::from_edges(WIDE * WIDE, edges).expect("it has no cycle");
        let first = streams.stream(0);
        let vectors = nodes.map(|_| zeros(first, LONG).ok()).collect();
        let edge = first.clone_htod(&[1.0_f32; LONG]).expect("the device has memory");
        streams.synchronize().expect("the copies end");
        (graph, Wavefront { kernels, streams, vectors, edge })
    }

    /// Compares the last vector with the host's.
    fn check(&self) {
        let mut grid = [[1.0_f32; WIDE + 1]; WIDE + 1];
        for row in 1..=WIDE {
            for column in 1..=WIDE {
                grid[row][column] = grid[row - 1][column] + grid[row][column - 1];
            }
        }
        let last = self.vectors.last().and_then(Option::as_ref).expect("it has nodes");
        let values = self.streams.stream(0).clone_dtoh(last).expect("it can be copied");
        assert_eq!(values, [grid[WIDE][WIDE]; LONG]);
    }
}

impl Streams for Wavefront<'_> {
    type Event = CudaEvent;
    type Error = gpu_core::Error;

    fn launch(&mut self, stream: usize, node: NodeIx) -> gpu_core::Result<()> {
        let at = node.0 as usize;
        let Some(mut out) = self.vectors[at].take() else { return Ok(()) };
        let of = |at: Option<usize>| at.and_then(|at| self.vectors[at].as_ref());
        let above = of(at.checked_sub(WIDE)).unwrap_or(&self.edge);
        let left = of((!at.is_multiple_of(WIDE)).then(|| at - 1)).unwrap_or(&self.edge);
        let added = self.kernels.add(self.streams.stream(stream), (above, left), &mut out);
        self.vectors[at] = Some(out);
        added
    }

    fn record(&mut self, stream: usize) -> gpu_core::Result<CudaEvent> {
        self.streams.record(stream)
    }

    fn wait_event(&mut self, stream: usize, event: &CudaEvent) -> gpu_core::Result<()> {
        self.streams.wait_event(stream, event)
    }

    fn synchronize(&mut self) -> gpu_core::Result<()> {
        self.streams.synchronize()
    }
}

fn zeros(stream: &Arc<CudaStream>, length: usize) -> Result<CudaSlice<f32>, DriverError> {
    stream.alloc_zeros(length)
}

/// Compares the kernels with the host on sizes that are not multiples of a block.
fn check(kernels: &CudaKernels, stream: &Arc<CudaStream>) {
    let (rows, inner, columns) = (33_u32, 17_u32, 65_u32);
    let numbers = |count: u32| (0..count).map(|at| (at % 7) as f32 - 3.0).collect::<Vec<_>>();
    let (a, b) = (numbers(rows * inner), numbers(inner * columns));
    let product = |row: u32, column: u32| -> f32 {
        let term = |k: u32| a[(row * inner + k) as usize] * b[(k * columns + column) as usize];
        (0..inner).map(term).sum()
    };
    let expected: Vec<f32> = (0..rows)
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| product(row, column))
        .collect();
    let on_device = |values: &Vec<f32>| stream.clone_htod(values).expect("the device has memory");
    let on_host = |values: &CudaSlice<f32>| stream.clone_dtoh(values).expect("it can be copied");
    let mut out = zeros(stream, expected.len()).expect("the device has free memory");
    let shape = MatmulShape { rows, inner, columns };
    kernels
        .matmul(stream, shape, (&on_device(&a), &on_device(&b)), &mut out)
        .expect("the lengths are right");
    // Integers this small are exact in any order.
    assert_eq!(on_host(&out), expected);
    let values = numbers(100_000);
    let device = on_device(&values);
    let mut twice = zeros(stream, values.len()).expect("the device has free memory");
    kernels.add(stream, (&device, &device), &mut twice).expect("the lengths are equal");
    assert_eq!(on_host(&twice), values.iter().map(|value| value * 2.0).collect::<Vec<_>>());
    let mut total = zeros(stream, 1).expect("the device has free memory");
    kernels.sum(stream, &device, &mut total).expect("it has elements");
    assert_eq!(on_host(&total), [values.iter().sum::<f32>()]);
}

criterion_group!(benches, bench);
criterion_main!(benches);
