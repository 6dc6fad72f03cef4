//! The statistics and their text.

use crate::caching::device::{Device, MIB, caching, set};
use gpu_allocator_policy::caching::Stat;
use gpu_allocator_policy::{Policy, Stream};
use gpu_core::Bytes;

const STREAM: Stream = Stream(0);

#[test]
fn statistics_are_kept_per_pool_with_peaks_and_totals() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let a = caching.allocate(Bytes(1000), STREAM).expect("1 GiB is free");
    let b = caching.allocate(Bytes(5_000_000), STREAM).expect("1 GiB is free");
    caching.free(a).expect("it belongs to this policy");
    let statistics = caching.statistics();
    let stat = |current, peak, allocated, freed| Stat { current, peak, allocated, freed };
    assert_eq!(statistics.allocation.all, stat(1, 2, 2, 1));
    assert_eq!(statistics.allocation.small_pool, stat(0, 1, 1, 1));
    assert_eq!(statistics.allocated_bytes.small_pool, stat(0, 1024, 1024, 1024));
    let large = 5_000_000u64.next_multiple_of(512);
    assert_eq!(statistics.allocated_bytes.large_pool, stat(large, large, large, 0));
    assert_eq!(statistics.requested_bytes.all, stat(5_000_000, 5_001_000, 5_001_000, 1000));
    assert_eq!(statistics.segment.all, stat(2, 2, 2, 0));
    assert_eq!(statistics.reserved_bytes.all, stat(22 * MIB, 22 * MIB, 22 * MIB, 0));
    assert_eq!(statistics.inactive_split.large_pool, stat(1, 1, 1, 0));
    assert_eq!(statistics.inactive_split_bytes.large_pool.current, 20 * MIB - large);
    assert_eq!(statistics.inactive_split.small_pool, stat(0, 1, 1, 1));
    assert_eq!(caching.max_memory_allocated(), Bytes(large + 1024));
    assert_eq!(
        (caching.memory_allocated(), caching.memory_reserved()),
        (Bytes(large), Bytes(22 * MIB))
    );
    drop(b);
}

#[test]
fn peaks_and_totals_can_be_reset() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let a = caching.allocate(Bytes(5 * MIB), STREAM).expect("1 GiB is free");
    let b = caching.allocate(Bytes(5 * MIB), STREAM).expect("1 GiB is free");
    caching.free(a).expect("it belongs to this policy");
    caching.reset_peaks();
    assert_eq!(caching.usage().peak_in_use, Bytes(5 * MIB));
    assert_eq!(caching.max_memory_reserved(), Bytes(20 * MIB));
    assert_eq!(caching.statistics().allocation.all.allocated, 2);
    caching.reset_accumulated();
    caching.free(b).expect("it belongs to this policy");
    let all = caching.statistics().allocated_bytes.all;
    assert_eq!((all.allocated, all.freed, all.current), (0, 5 * MIB, 0));
    assert_eq!(caching.statistics().num_device_alloc, 0);
}

#[test]
fn pending_free_is_active_but_not_allocated() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let stat = |current, peak, allocated, freed| Stat { current, peak, allocated, freed };
    let a = caching.allocate(Bytes(512), STREAM).expect("1 GiB is free");
    let waiting = caching.retire(a).expect("it belongs to this policy");
    let b = caching.allocate(Bytes(1024), STREAM).expect("1 GiB is free");
    let statistics = caching.statistics();
    assert_eq!(statistics.allocation.all, stat(1, 1, 2, 1));
    assert_eq!(statistics.active.all, stat(2, 2, 2, 0));
    assert_eq!(statistics.active_bytes.small_pool, stat(1536, 1536, 1536, 0));
    assert_eq!(statistics.active_bytes.large_pool, Stat::default());
    caching.complete(waiting).expect("it belongs to this policy");
    assert_eq!(caching.statistics().active.all, stat(1, 2, 2, 1));
    caching.reset_peaks();
    assert_eq!(caching.statistics().active_bytes.all, stat(1024, 1024, 1536, 512));

    let waiting = caching.retire(b).expect("it belongs to this policy");
    caching.reset_peaks();
    caching.reset_accumulated();
    assert_eq!(caching.statistics().active_bytes.all, stat(1024, 1024, 0, 0));
    assert_eq!(caching.statistics().allocated_bytes.all, Stat::default());
    caching.complete(waiting).expect("it belongs to this policy");
    assert_eq!(caching.statistics().active_bytes.all, stat(0, 1024, 0, 1024));
}

#[test]
fn memory_stats_has_pytorch_keys() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let _a = caching.allocate(Bytes(1000), STREAM).expect("1 GiB is free");
    let flat = caching.memory_stats();
    assert_eq!(flat.len(), 9 * 3 * 4 + 2 * 4 + 6);
    for (key, value) in [
        ("active.all.current", 1),
        ("active_bytes.small_pool.peak", 1024),
        ("allocated_bytes.large_pool.freed", 0),
        ("allocation.all.allocated", 1),
        ("inactive_split_bytes.all.current", 2 * MIB as i64 - 1024),
        ("max_split_size", -1),
        ("num_alloc_retries", 0),
        ("num_device_alloc", 1),
        ("oversize_segments.peak", 0),
        ("requested_bytes.all.current", 1000),
        ("reserved_bytes.all.current", 2 * MIB as i64),
        ("segment.small_pool.current", 1),
    ] {
        assert_eq!(flat.get(key), Some(&value), "{key}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn statistics_serialize_under_pytorch_names() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let _a = caching.allocate(Bytes(1000), STREAM).expect("1 GiB is free");
    let nested = serde_json::to_value(caching.statistics()).expect("it can be written");
    assert_eq!(nested["requested_bytes"]["all"]["current"], 1000);
}

/// PyTorch's `test_allocator_settings`: sizes of 84 MiB under several settings.
#[test]
fn sizes_round_up_to_power2_divisions() {
    let device = Device::new(8 << 30);
    let mut caching = caching(&device, "");
    for (settings, asked, given) in [
        ("", 84 * MIB, 84 * MIB),
        ("roundup_power2_divisions:4", 84 * MIB, 96 * MIB),
        ("garbage_collection_threshold:0.5", 84 * MIB, 84 * MIB),
        ("garbage_collection_threshold:0.5,max_split_size_mb:40", 84 * MIB, 84 * MIB),
        ("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]", 84 * MIB, 88 * MIB),
        ("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]", 400 * MIB, 448 * MIB),
        ("roundup_power2_divisions:8", 64 * MIB, 64 * MIB),
        ("roundup_power2_divisions:4", 1200, 1536),
        ("roundup_power2_divisions:4", 5000, 5120),
        ("roundup_power2_divisions:1", 84 * MIB + 1, 84 * MIB + 512),
    ] {
        set(&mut caching, settings);
        let before = caching.memory_allocated().0;
        let _a = caching.allocate(Bytes(asked), STREAM).expect("8 GiB are free");
        assert_eq!(caching.memory_allocated().0 - before, given, "{asked} with '{settings}'");
    }
}

/// The last interval has no upper end.
#[test]
fn power2_divisions_of_last_interval_begin_at_32_gib() {
    let device = Device::new(1 << 40);
    let mut caching = caching(&device, "");
    set(&mut caching, "roundup_power2_divisions:[16384:1,>:4]");
    for (asked, given) in [(31 << 10, 31 << 10), (33 << 10, 40 << 10), (65 << 10, 80 << 10)] {
        let before = caching.memory_allocated().0;
        let _a = caching.allocate(Bytes(asked * MIB), STREAM).expect("1 TiB is free");
        assert_eq!(caching.memory_allocated().0 - before, given * MIB, "{asked} MiB");
    }
}

#[test]
fn memory_summary_has_pytorch_layout() {
    let device = Device::new(8 << 30);
    let mut caching = caching(&device, "");
    let _a = caching.allocate(Bytes(3 << 30), STREAM).expect("8 GiB are free");
    let _b = caching.allocate(Bytes(700 << 10), STREAM).expect("5 GiB are free");
    let table = caching.memory_summary(Some(3), false);
    assert!(table.lines().all(|line| line.len() == 77 && line.starts_with('|')), "{table}");
    for row in [
        "|                  PyTorch CUDA memory summary, device ID 3                 |",
        "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |",
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
        "| Allocated memory      |   3072 MiB |   3072 MiB |   3072 MiB |      0 B   |",
        "|       from small pool |      0 MiB |      0 MiB |      0 MiB |      0 B   |",
        "| Non-releasable memory |   1348 KiB |   1348 KiB |   1348 KiB |      0 B   |",
        "| Allocations           |       2    |       2    |       2    |       0    |",
        "| Oversize GPU segments |       0    |       0    |       0    |       0    |",
    ] {
        assert!(table.contains(row), "{row}\n{table}");
    }
    let short = caching.memory_summary(None, true);
    assert!(!short.contains("pool") && !short.contains("device ID"), "{short}");
    assert_eq!(caching.summary(), caching.memory_summary(None, false));
}
