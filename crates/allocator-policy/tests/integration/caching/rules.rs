//! The published rules, case by case.

use crate::caching::device::{Call, Device, MIB, caching, out_of_memory};
use crate::caching::invariants::check;
use gpu_allocator_policy::{Failure, Policy, Stream};
use gpu_core::{Bytes, DeviceFault};

const STREAM: Stream = Stream(0);

#[test]
fn sizes_round_up_to_512_bytes() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    for (asked, given) in [(0, 512), (1, 512), (512, 512), (513, 1024), (1_000_000, 1_000_448)] {
        let allocation = caching.allocate(Bytes(asked), STREAM).expect("1 GiB is free");
        assert_eq!(allocation.size(), Bytes(given), "for {asked}");
        assert_eq!(caching.usage().requested, Bytes(asked));
        caching.free(allocation).expect("it belongs to this policy");
    }
    check(&caching, true);
}

#[test]
fn segment_size_is_2_mib_20_mib_or_rounded_to_2_mib() {
    let device = Device::new(1 << 40);
    for (asked, segment) in [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (100 * MIB, 100 * MIB),
    ] {
        let mut caching = caching(&device, "");
        let _taken = caching.allocate(Bytes(asked), STREAM).expect("1 TiB is free");
        assert_eq!(device.calls(), [Call::Reserve(segment)], "for {asked}");
        assert_eq!(caching.memory_reserved(), Bytes(segment));
        drop(caching);
        assert_eq!(device.calls(), [Call::Release(segment)]);
    }
    assert_eq!(device.model.used(), Bytes(0));
}

#[test]
fn small_block_is_split_down_to_512_bytes() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let a = caching.allocate(Bytes(512), STREAM).expect("1 GiB is free");
    let b = caching.allocate(Bytes(MIB), STREAM).expect("1 GiB is free");
    assert_eq!(b.address(), a.address() + 512);
    let rest = 2 * MIB - MIB - 512 - 512;
    let c = caching.allocate(Bytes(rest), STREAM).expect("1 GiB is free");
    assert_eq!(c.size(), Bytes(rest));
    let d = caching.allocate(Bytes(512), STREAM).expect("1 GiB is free");
    assert_eq!(d.address(), a.address() + 2 * MIB - 512);
    assert_eq!(device.calls().len(), 1);
    check(&caching, true);
}

#[test]
fn large_block_is_split_if_more_than_1_mib_remains() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let whole = caching.allocate(Bytes(20 * MIB), STREAM).expect("1 GiB is free");
    caching.free(whole).expect("it belongs to this policy");
    let kept = caching.allocate(Bytes(19 * MIB), STREAM).expect("it is cached");
    assert_eq!(kept.size(), Bytes(20 * MIB), "1 MiB is not split off");
    caching.free(kept).expect("it belongs to this policy");
    let split = caching.allocate(Bytes(19 * MIB - 512), STREAM).expect("it is cached");
    assert_eq!(split.size(), Bytes(19 * MIB - 512));
    assert_eq!(caching.usage().largest_free, Bytes(MIB + 512));
    check(&caching, true);
}

#[test]
fn best_fit_prefers_smallest_then_lowest_block() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let mut take = |mib: u64| caching.allocate(Bytes(mib * MIB), STREAM).expect("1 GiB is free");
    let (a, b, c, d) = (take(40), take(30), take(30), take(50));
    let (lower, upper) = (b.address(), c.address());
    assert!(lower < upper);
    for allocation in [a, c, b, d] {
        caching.free(allocation).expect("it belongs to this policy");
    }
    let first = caching.allocate(Bytes(29 * MIB), STREAM).expect("it is cached");
    let second = caching.allocate(Bytes(30 * MIB), STREAM).expect("it is cached");
    assert_eq!((first.address(), second.address()), (lower, upper));
    assert_eq!(caching.usage().device_allocations, 4);
}

#[test]
fn free_neighbours_are_coalesced() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let mut parts: Vec<_> =
        (0..4).map(|_| caching.allocate(Bytes(MIB / 2), STREAM).expect("1 GiB is free")).collect();
    for index in [0, 1, 1, 0] {
        let part = parts.remove(index);
        caching.free(part).expect("it belongs to this policy");
        check(&caching, true);
    }
    assert_eq!(caching.segments()[0].blocks.len(), 1);
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(2 * MIB)));
    assert_eq!(caching.segments(), []);
}

#[test]
fn block_is_never_reused_by_another_stream() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let a = caching.allocate(Bytes(512), Stream(1)).expect("1 GiB is free");
    let address = a.address();
    caching.free(a).expect("it belongs to this policy");
    let b = caching.allocate(Bytes(512), Stream(2)).expect("1 GiB is free");
    assert_ne!(b.address() & !(2 * MIB - 1), address & !(2 * MIB - 1));
    let c = caching.allocate(Bytes(512), Stream(1)).expect("1 GiB is free");
    assert_eq!(c.address(), address);
    assert_eq!(caching.segments().len(), 2);
}

#[test]
fn cache_is_emptied_large_first_by_stream_size_and_address() {
    let device = Device::new(100 * MIB);
    let mut caching = caching(&device, "");
    let sizes = [(2, 12), (1, 14), (1, 10), (2, 1), (0, 16), (1, 1)];
    let taken: Vec<_> = sizes
        .into_iter()
        .map(|(stream, mib)| caching.allocate(Bytes(mib * MIB), Stream(stream)))
        .collect::<Result<_, _>>()
        .expect("100 MiB are free");
    for allocation in taken {
        caching.free(allocation).expect("it belongs to this policy");
    }
    device.calls();
    let _all = caching.allocate(Bytes(100 * MIB), Stream(5)).expect("the cache is emptied");
    let released = [16, 10, 14, 12, 2, 2].map(|mib| Call::Release(mib * MIB));
    let calls = device.calls();
    assert_eq!(calls[0], Call::Reserve(100 * MIB), "the device is asked first");
    assert_eq!(calls[1..7], released);
    assert_eq!(calls[7..], [Call::Reserve(100 * MIB)]);
    let statistics = caching.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms), (1, 0));
    assert_eq!((statistics.num_device_alloc, statistics.num_device_free), (7, 6));
    assert_eq!(statistics.num_sync_all_streams, 1);
    check(&caching, true);
}

/// PyTorch's `test_out_of_memory_retry`.
#[test]
fn freed_memory_is_reused_after_oom() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    // Slightly more than half of the limit, so that a second allocation does not fit.
    let half = Bytes((1 << 29) + 2 * MIB);
    let a = caching.allocate(half, STREAM).expect("1 GiB is free");
    assert!(out_of_memory(caching.allocate(half, STREAM)));
    caching.free(a).expect("it belongs to this policy");
    let b = caching.allocate(half, STREAM).expect("it is cached");
    caching.free(b).expect("it belongs to this policy");
    assert_eq!(caching.statistics().num_ooms, 1);
    check(&caching, true);
}

#[test]
fn oom_error_reports_figures() {
    let device = Device::new(100 * MIB);
    let mut caching = caching(&device, "per_process_memory_fraction:0.9");
    let _a = caching.allocate(Bytes(5 * MIB), STREAM).expect("100 MiB are free");
    let Err(Failure::OutOfMemory(shortage)) = caching.allocate(Bytes(71 * MIB), STREAM) else {
        panic!("90 MiB are too few for 20 and 72");
    };
    assert_eq!(shortage.asked, Bytes(71 * MIB));
    assert_eq!(shortage.segment, Bytes(72 * MIB));
    assert_eq!(shortage.limit, Some(Bytes(90 * MIB)));
    assert_eq!(shortage.device_free, Some(Bytes(80 * MIB)));
    assert_eq!((shortage.reserved, shortage.in_use), (Bytes(20 * MIB), Bytes(5 * MIB)));
    assert_eq!(shortage.largest_free, Bytes(15 * MIB));
    assert!(out_of_memory(caching.allocate(Bytes(u64::MAX), STREAM)));
    check(&caching, true);
}

/// PyTorch's `test_set_per_process_memory_fraction`.
#[test]
fn memory_fraction_limits_allocation() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "per_process_memory_fraction:0.5");
    let most = caching.allocate(Bytes(((1u64 << 30) as f64 * 0.499) as u64), STREAM);
    caching.free(most.expect("0.499 is within 0.5")).expect("it belongs to this policy");
    caching.empty_cache().expect("the device accepts it");
    let half = caching.allocate(Bytes(1 << 29), STREAM).expect("half is not more than half");
    assert!(out_of_memory(caching.allocate(Bytes(1), STREAM)));
    caching.free(half).expect("it belongs to this policy");
    assert!(out_of_memory(caching.allocate(Bytes((1 << 29) + 1), STREAM)));
}

#[test]
fn byte_limit_and_fraction_both_apply() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "per_process_memory_fraction:0.5");
    let mut settings = caching.settings().clone();
    settings.set_limit(Some(Bytes(30 * MIB)));
    caching.set_settings(settings).expect("the device reports its memory");
    let _a = caching.allocate(Bytes(2 * MIB), STREAM).expect("20 MiB are allowed");
    assert!(out_of_memory(caching.allocate(Bytes(19 * MIB), STREAM)));
    assert_eq!(device.model.peak(), Bytes(20 * MIB));
}

#[test]
fn oom_callbacks_run_before_reserving() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let spare = caching.allocate(Bytes(30 * MIB), STREAM).expect("1 GiB is free");
    let address = spare.address();
    let mut spare = Some(spare);
    caching.on_shortage(Box::new(move |missing| {
        assert_eq!(missing, Bytes(29 * MIB));
        spare.take().into_iter().collect()
    }));
    device.calls();
    let served = caching.allocate(Bytes(29 * MIB), STREAM).expect("there is a spare");
    assert_eq!((served.address(), device.calls()), (address, vec![]));
    let _more = caching.allocate(Bytes(29 * MIB), STREAM).expect("1 GiB is free");
    assert_eq!(device.calls(), [Call::Reserve(30 * MIB)]);
}

#[test]
fn foreign_allocation_is_rejected() {
    let device = Device::new(1 << 30);
    let (mut one, mut other) = (caching(&device, ""), caching(&device, ""));
    let a = one.allocate(Bytes(512), STREAM).expect("1 GiB is free");
    let _b = other.allocate(Bytes(512), STREAM).expect("1 GiB is free");
    let address = a.address();
    assert!(matches!(other.record_stream(&a, Stream(7)), Err(Failure::Foreign { .. })));
    let Err(Failure::Foreign { address: named }) = other.free(a) else {
        panic!("it is of the other allocator");
    };
    assert_eq!(named, address);
    assert_eq!((one.in_use(), other.in_use()), (Bytes(512), Bytes(512)));
}

#[test]
fn device_error_other_than_oom_is_returned() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    device.fail_after(0, DeviceFault::Lost);
    let failed = caching.allocate(Bytes(512), STREAM);
    assert!(
        matches!(failed, Err(Failure::Device(error)) if error.kind() == DeviceFault::Lost.into())
    );
    assert_eq!(caching.statistics().num_ooms, 0);
    assert!(caching.allocate(Bytes(512), STREAM).is_ok());
}

#[test]
fn large_segment_size_is_configurable() {
    for (mib, asked, segment) in
        [(12, 5 * MIB, 12 * MIB), (1024, 5 * MIB, 1024 * MIB), (1024, 10 * MIB, 10 * MIB)]
    {
        let device = Device::new(1 << 40);
        let mut caching = caching(&device, &format!("large_segment_size_mb:{mib}"));
        let _taken = caching.allocate(Bytes(asked), STREAM).expect("1 TiB is free");
        assert_eq!(device.calls(), [Call::Reserve(segment)], "for {asked} of {mib} MiB");
    }
}
