//! The cost of memory on a real GPU: CUDA's plain memory, its pool, pages mapped into address
//! ranges, and a caching allocator over plain memory, for regions that are allocated and freed.
//!
//! GPUWS_HW_GPU is the UUID of the GPU. Without it, the bench uses no GPU and prints a note.
#![expect(clippy::print_stderr, reason = "a skipped bench prints a note")]

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_allocator_policy::{Caching, Policy, Stream};
use gpu_core::{Bytes, DeviceMemory, DeviceUuid, Region};
use gpu_cuda::{CudaMemory, CudaPool};
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
}

criterion_group!(benches, bench);
criterion_main!(benches);
