//! `garbage_collection_threshold`.

use crate::caching::device::{Call, Device, MIB, caching, set};
use crate::caching::invariants::check;
use gpu_allocator_policy::{Policy, Stream};
use gpu_core::Bytes;

const STREAM: Stream = Stream(0);

#[test]
fn gc_releases_blocks_older_than_mean_before_reserving() {
    let device = Device::new(200 * MIB);
    let settings = "garbage_collection_threshold:0.5,per_process_memory_fraction:1.0";
    let mut caching = caching(&device, settings);
    let taken = [20, 30, 40]
        .map(|mib| caching.allocate(Bytes(mib * MIB), STREAM).expect("200 MiB are free"));
    let [old, young, used] = taken;
    caching.free(old).expect("it belongs to this policy");
    // Searches in the large pool let the free block age.
    for _ in 0..5 {
        let again = caching.allocate(Bytes(40 * MIB), STREAM).expect("200 MiB are free");
        caching.free(again).expect("it belongs to this policy");
    }
    caching.free(young).expect("it belongs to this policy");
    assert_eq!(caching.reserved(), Bytes(130 * MIB));
    device.calls();
    let _new = caching.allocate(Bytes(60 * MIB), STREAM).expect("200 MiB are free");
    // The ages are 6, 1 and 1, with a mean of 2.7. The 20 MiB of the oldest are less than the 30
    // MiB above the threshold, so the other two, with a mean of 1, are freed too.
    let released = [20, 30, 40].map(|mib| Call::Release(mib * MIB));
    let calls = device.calls();
    assert_eq!(calls[..3], released);
    assert_eq!(calls[3..], [Call::Reserve(60 * MIB)]);
    assert_eq!(caching.statistics().num_alloc_retries, 0);
    assert_eq!(caching.statistics().num_sync_all_streams, 0);
    check(&caching, true);
    drop(used);
}

#[test]
fn gc_needs_limit_and_threshold() {
    for settings in [
        "garbage_collection_threshold:0.1",
        "garbage_collection_threshold:0.9,per_process_memory_fraction:1.0",
        "per_process_memory_fraction:1.0",
    ] {
        let device = Device::new(200 * MIB);
        let mut caching = caching(&device, settings);
        let a = caching.allocate(Bytes(50 * MIB), STREAM).expect("200 MiB are free");
        caching.free(a).expect("it belongs to this policy");
        device.calls();
        let _b = caching.allocate(Bytes(60 * MIB), STREAM).expect("200 MiB are free");
        assert_eq!(device.calls(), [Call::Reserve(60 * MIB)], "with {settings}");
    }
}

#[test]
fn gc_skips_split_and_small_blocks() {
    let device = Device::new(100 * MIB);
    let settings = "garbage_collection_threshold:0.1,per_process_memory_fraction:1.0";
    let mut caching = caching(&device, settings);
    let small = caching.allocate(Bytes(512), STREAM).expect("100 MiB are free");
    caching.free(small).expect("it belongs to this policy");
    let (a, b) = (
        caching.allocate(Bytes(5 * MIB), STREAM).expect("100 MiB are free"),
        caching.allocate(Bytes(5 * MIB), STREAM).expect("100 MiB are free"),
    );
    caching.free(a).expect("it belongs to this policy");
    device.calls();
    let _c = caching.allocate(Bytes(30 * MIB), STREAM).expect("100 MiB are free");
    assert_eq!(device.calls(), [Call::Reserve(30 * MIB)]);
    drop(b);
}

/// PyTorch's `test_garbage_collect_expandable`.
#[test]
fn gc_skips_expandable_segments() {
    let device = Device::new(1 << 30);
    let share = (120 * MIB) as f64 / (1u64 << 30) as f64;
    let settings = |expandable: &str| {
        format!(
            "expandable_segments:{expandable},garbage_collection_threshold:0.5,per_process_memory_fraction:{share}"
        )
    };
    let mut caching = caching(&device, &settings("False"));
    let a = caching.allocate(Bytes(40 * MIB), STREAM).expect("120 MiB are allowed");
    set(&mut caching, &settings("True"));
    let b = caching.allocate(Bytes(40 * MIB), STREAM).expect("80 MiB are allowed");
    caching.free(a).expect("it belongs to this policy");
    caching.free(b).expect("it belongs to this policy");
    let _c = caching.allocate(Bytes(80 * MIB), STREAM).expect("it is collected");
    assert_eq!(caching.reserved(), Bytes(80 * MIB));
    check(&caching, false);
}

#[test]
fn gc_stops_at_threshold() {
    let device = Device::new(200 * MIB);
    let settings = "garbage_collection_threshold:0.5,per_process_memory_fraction:1.0";
    let mut caching = caching(&device, settings);
    let [old, _used] =
        [20, 60].map(|mib| caching.allocate(Bytes(mib * MIB), STREAM).expect("200 MiB are free"));
    caching.free(old).expect("it belongs to this policy");
    for _ in 0..5 {
        let young = caching.allocate(Bytes(40 * MIB), STREAM).expect("200 MiB are free");
        caching.free(young).expect("it belongs to this policy");
    }
    assert_eq!(caching.reserved(), Bytes(120 * MIB), "20 MiB above the threshold");
    device.calls();
    let _new = caching.allocate(Bytes(70 * MIB), STREAM).expect("200 MiB are free");
    assert_eq!(device.calls(), [Call::Release(20 * MIB), Call::Reserve(70 * MIB)]);
}
