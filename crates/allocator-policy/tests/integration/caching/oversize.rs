//! `max_split_size`.

use crate::caching::device::{Call, Device, MIB, caching, out_of_memory, set};
use crate::caching::invariants::check;
use gpu_allocator_policy::{Policy, Stream};
use gpu_core::Bytes;

const STREAM: Stream = Stream(0);

#[test]
fn oversize_block_serves_requests_within_20_mib() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "max_split_size_mb:40");
    let big = caching.allocate(Bytes(70 * MIB), STREAM).expect("1 GiB is free");
    let address = big.address();
    caching.free(big).expect("it belongs to this policy");
    let small = caching.allocate(Bytes(30 * MIB), STREAM).expect("1 GiB is free");
    assert_ne!(small.address(), address, "a smaller request never takes it");
    let short = caching.allocate(Bytes(50 * MIB), STREAM).expect("1 GiB is free");
    assert_ne!(short.address(), address, "20 MiB would be wasted");
    let near = caching.allocate(Bytes(50 * MIB + 512), STREAM).expect("it is cached");
    assert_eq!((near.address(), near.size()), (address, Bytes(70 * MIB)));
    let statistics = caching.statistics();
    assert_eq!(statistics.oversize_allocations.current, 2);
    assert_eq!((statistics.oversize_segments.current, statistics.oversize_segments.peak), (2, 2));
    assert_eq!(statistics.max_split_size, 40 << 20);
    check(&caching, true);
}

#[test]
fn max_non_split_rounding_is_configurable() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "max_split_size_mb:40,max_non_split_rounding_mb:30");
    let big = caching.allocate(Bytes(70 * MIB), STREAM).expect("1 GiB is free");
    let address = big.address();
    caching.free(big).expect("it belongs to this policy");
    let near = caching.allocate(Bytes(41 * MIB), STREAM).expect("it is cached");
    assert_eq!(near.address(), address);
}

#[test]
fn oom_releases_one_sufficient_oversize_block() {
    let device = Device::new(200 * MIB);
    let mut caching = caching(&device, "max_split_size_mb:40");
    let taken: Vec<_> = [50, 90, 60]
        .map(|mib| caching.allocate(Bytes(mib * MIB), STREAM).expect("200 MiB are free"))
        .into_iter()
        .collect();
    for allocation in taken {
        caching.free(allocation).expect("it belongs to this policy");
    }
    device.calls();
    let _c = caching.allocate(Bytes(30 * MIB), STREAM).expect("oversize blocks are released");
    let expected = [Call::Reserve(30 * MIB), Call::Release(50 * MIB), Call::Reserve(30 * MIB)];
    assert_eq!(device.calls(), expected);
    assert_eq!(caching.statistics().num_alloc_retries, 0);
    check(&caching, true);
}

#[test]
fn oom_releases_oversize_blocks_largest_first() {
    let device = Device::new(200 * MIB);
    let mut caching = caching(&device, "max_split_size_mb:40");
    let taken = [50, 90, 60].map(|mib| caching.allocate(Bytes(mib * MIB), STREAM));
    for allocation in taken {
        caching.free(allocation.expect("200 MiB are free")).expect("it belongs to this policy");
    }
    device.calls();
    let _c = caching.allocate(Bytes(120 * MIB), STREAM).expect("oversize blocks are released");
    let calls = device.calls();
    let released = [Call::Release(90 * MIB), Call::Release(60 * MIB)];
    assert_eq!(calls[1..3], released, "{calls:?}");
    assert_eq!(calls.len(), 4);
    check(&caching, true);
}

/// PyTorch's `test_max_split_expandable`.
#[test]
fn oversize_blocks_coexist_with_expandable_segments() {
    let device = Device::new(1 << 30);
    let share = (120 * MIB) as f64 / (1u64 << 30) as f64;
    let settings = |expandable: &str| {
        format!(
            "expandable_segments:{expandable},max_split_size_mb:40,per_process_memory_fraction:{share}"
        )
    };
    let mut caching = caching(&device, &settings("False"));
    let a = caching.allocate(Bytes(40 * MIB), STREAM).expect("120 MiB are allowed");
    set(&mut caching, &settings("True"));
    let b = caching.allocate(Bytes(40 * MIB), STREAM).expect("80 MiB are allowed");
    set(&mut caching, &settings("False"));
    let c = caching.allocate(Bytes(40 * MIB), STREAM).expect("40 MiB are allowed");
    assert!(out_of_memory(caching.allocate(Bytes(40 * MIB), STREAM)));
    for allocation in [a, b, c] {
        caching.free(allocation).expect("it belongs to this policy");
    }
    let all = caching.allocate(Bytes(120 * MIB), STREAM).expect("everything else is released");
    assert_eq!((caching.reserved(), device.model.used()), (Bytes(120 * MIB), Bytes(120 * MIB)));
    caching.free(all).expect("it belongs to this policy");
    check(&caching, false);
}
