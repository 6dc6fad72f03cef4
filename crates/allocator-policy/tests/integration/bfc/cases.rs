//! The cases of TensorFlow's own tests, and figures from its users' logs.

use crate::fixture::Faulty;
use gpu_allocator_policy::bfc::{BackOff, Settings};
use gpu_allocator_policy::{Allocation, Bfc, Failure, ModelMemory, Policy, Stream};
use gpu_core::Bytes;
use std::sync::Arc;

fn limited(limit: u64) -> Settings {
    Settings { limit: Some(Bytes(limit)), ..Settings::default() }
}

fn bfc(limit: u64, allow_growth: bool) -> Bfc<ModelMemory> {
    let settings = Settings { allow_growth, ..limited(limit) };
    Bfc::new(ModelMemory::new(Bytes::from_mib(4096)), settings).expect("a limit is set")
}

fn take(bfc: &mut impl Policy, size: u64) -> Allocation {
    bfc.allocate(Bytes(size), Stream(0)).expect("memory suffices")
}

/// Returns the figures that TensorFlow's tests check: allocations, bytes in use, peak, largest.
fn figures(bfc: &Bfc<ModelMemory>) -> (u64, u64, u64, u64) {
    let statistics = bfc.statistics();
    let Bytes(in_use) = statistics.bytes_in_use;
    let Bytes(peak) = statistics.peak_bytes_in_use;
    (statistics.num_allocs, in_use, peak, statistics.largest_alloc_size.0)
}

#[test]
fn sizes_1_to_1023_use_654_336_bytes() {
    for growth in [false, true] {
        let mut bfc = bfc(1 << 30, growth);
        assert_eq!(figures(&bfc), (0, 0, 0, 0));
        let mut taken: Vec<_> = (1..1024).map(|size| take(&mut bfc, size)).collect();
        assert_eq!(figures(&bfc), (1023, 654_336, 654_336, 1024));
        taken.sort_by_key(Allocation::address);
        for pair in taken.windows(2) {
            assert!(pair[0].address() + pair[0].size().0 <= pair[1].address(), "{pair:?}");
        }
        for allocation in taken {
            bfc.free(allocation).expect("it belongs to this allocator");
        }
        assert_eq!(figures(&bfc), (1023, 0, 654_336, 1024));
    }
}

#[test]
fn freed_chunks_merge_into_one() {
    let mut bfc = bfc(1 << 30, false);
    let first = take(&mut bfc, 4096);
    let address = first.address();
    bfc.free(first).expect("it belongs to this allocator");
    assert_eq!(figures(&bfc), (1, 0, 4096, 4096));
    for _ in 0..1024 {
        let sizes = [4 * 1024, 8 * 1_048_576, 8 * 2048, 4 * 10_485_760];
        let taken = sizes.map(|size| take(&mut bfc, size));
        taken.into_iter().for_each(|chunk| bfc.free(chunk).expect("it belongs to this allocator"));
    }
    let peak = 4 * 1024 + 8 * 1_048_576 + 8 * 2048 + 4 * 10_485_760;
    assert_eq!(figures(&bfc), (4097, 0, peak, 41_943_040));
    assert_eq!(take(&mut bfc, 4096).address(), address);
}

#[test]
fn request_beyond_limit_fails() {
    let mut bfc = bfc(1 << 20, true);
    let first = take(&mut bfc, 4 << 6);
    let refused = bfc.allocate(Bytes(4 << 20), Stream(0));
    let Err(Failure::OutOfMemory(shortage)) = refused else { panic!("{refused:?}") };
    assert_eq!((shortage.asked, shortage.limit), (Bytes(4 << 20), Some(Bytes(1 << 20))));
    assert_eq!((shortage.reserved, shortage.in_use), (Bytes(1 << 20), Bytes(256)));
    assert_eq!(shortage.largest_free, Bytes((1 << 20) - 256));
    let refused = bfc.allocate(Bytes(1 << 20), Stream(0)).expect_err("256 bytes are taken");
    assert_eq!(refused.to_string(), "allocate 1048576 bytes: out of memory");
    bfc.free(first).expect("it belongs to this allocator");
    assert_eq!(take(&mut bfc, 1 << 20).size(), Bytes(1 << 20));
    assert_eq!(bfc.usage().out_of_memory, 2);
}

#[test]
fn in_use_follows_allocate_and_free() {
    let mut bfc = bfc(1 << 20, true);
    let first = take(&mut bfc, 1024);
    assert_eq!(figures(&bfc), (1, 1024, 1024, 1024));
    let second = take(&mut bfc, 2048);
    assert_eq!(figures(&bfc), (2, 3072, 3072, 2048));
    bfc.free(second).expect("it belongs to this allocator");
    assert_eq!(figures(&bfc), (2, 1024, 3072, 2048));
    bfc.reset_peaks();
    assert_eq!(figures(&bfc), (0, 1024, 1024, 0));
    bfc.free(first).expect("it belongs to this allocator");
}

#[test]
fn whole_chunk_is_charged() {
    let mut bfc = bfc(1 << 20, false);
    let small = take(&mut bfc, 4);
    assert_eq!((small.size(), bfc.usage().requested), (Bytes(256), Bytes(4)));
    assert_eq!(take(&mut bfc, 0).size(), Bytes(256));
    // The remainder of a chunk is split off only if it is at least as long as the request.
    let (hole, wall) = (take(&mut bfc, 2048), take(&mut bfc, 256));
    let at = hole.address();
    bfc.free(hole).expect("it belongs to this allocator");
    let most = take(&mut bfc, 1280);
    assert_eq!((most.address(), most.size()), (at, Bytes(2048)));
    bfc.free(most).expect("it belongs to this allocator");
    let half = take(&mut bfc, 1024);
    assert_eq!((half.address(), half.size()), (at, Bytes(1024)));
    assert!(wall.address() > at);
}

#[test]
fn chunk_is_split_at_128_mib_or_fragmentation_fraction() {
    const MIB: u64 = 1 << 20;
    for (fraction, asked, size) in [
        (0.0, 300 * MIB, 300 * MIB),
        (0.0, 400 * MIB, 512 * MIB),
        (0.0, 384 * MIB, 384 * MIB),
        (0.25, 400 * MIB, 512 * MIB),
        (0.0625, 400 * MIB, 400 * MIB),
        (0.0625, 488 * MIB, 512 * MIB),
    ] {
        let settings = Settings { fragmentation_fraction: fraction, ..limited(512 * MIB) };
        let memory = ModelMemory::new(Bytes(512 * MIB));
        let mut bfc = Bfc::new(memory, settings).expect("a limit is set");
        assert_eq!(take(&mut bfc, asked).size(), Bytes(size), "{fraction} {asked}");
    }
}

#[test]
fn regions_double_on_growth() {
    let memory = Faulty::new(Bytes::from_mib(4096));
    let settings = Settings { allow_growth: true, ..limited(100 << 20) };
    let mut bfc = Bfc::new(Arc::clone(&memory), settings).expect("a limit is set");
    for size in [1, 2 << 20, 3 << 20, 20 << 20, 32 << 20, 20 << 20] {
        let _ = take(&mut bfc, size);
    }
    // The first regions are 2, 4 and 8; the 20 MiB raise the size to 32, also for the next one;
    // then the rest of the limit.
    let mib = |sizes: &[u64]| sizes.iter().map(|size| size << 20).collect::<Vec<_>>();
    assert_eq!(*memory.asked.lock().unwrap(), mib(&[2, 4, 8, 32, 32, 22]));
    assert_eq!(bfc.statistics().pool_bytes, Bytes(100 << 20));
}

#[test]
fn without_growth_first_region_is_limit() {
    let memory = Faulty::new(Bytes::from_mib(4096));
    let mut bfc = Bfc::new(Arc::clone(&memory), limited((100 << 20) + 100)).expect("it is set");
    assert_eq!(bfc.usage().reserved, Bytes(0));
    let _ = take(&mut bfc, 1);
    assert_eq!(*memory.asked.lock().unwrap(), [100 << 20]);
    assert!(bfc.summary().contains("curr_region_allocation_bytes_: 209715712"));
}

/// From a user's log, on a GPU in use: a request for 15.10 GiB, then a tenth less each time.
#[test]
fn backoff_shrinks_15_10_gib_to_185_12_mib() {
    let start = 16_213_501_696; // 15.10 GiB, rounded up to 256 bytes
    let memory = Faulty::new(Bytes::from_mib(186));
    let mut bfc = Bfc::new(Arc::clone(&memory), limited(start)).expect("a limit is set");
    let _ = take(&mut bfc, 1);
    let asked = memory.asked.lock().unwrap().clone();
    let gib = |size: u64| (size as f64 / (1u64 << 30) as f64 * 100.0).round() / 100.0;
    assert_eq!(asked.len(), 43);
    assert_eq!(
        asked[..4].iter().map(|size| gib(*size)).collect::<Vec<_>>(),
        [15.1, 13.59, 12.23, 11.01]
    );
    assert_eq!(gib(asked[19]), 2.04);
    let last = *asked.last().expect("it asked") as f64 / f64::from(1 << 20);
    assert_eq!((last * 100.0).round() / 100.0, 185.12);
    assert!(asked.iter().all(|size| size.is_multiple_of(256)));
}

#[test]
fn backoff_stops_at_request_size() {
    for (back_off, second) in [(BackOff::Once, 1), (BackOff::Always, 6)] {
        let memory = Faulty::new(Bytes::from_mib(8));
        let settings = Settings { allow_growth: true, back_off, ..limited(1 << 30) };
        let mut bfc = Bfc::new(Arc::clone(&memory), settings).expect("a limit is set");
        let asked = || std::mem::take(&mut *memory.asked.lock().unwrap());
        let refused = bfc.allocate(Bytes::from_mib(20), Stream(0)).expect_err("there are 8 MiB");
        let tries = asked();
        assert_eq!(tries[0], 32 << 20);
        assert_eq!(tries.len(), 5, "{tries:?}");
        assert!(tries.iter().all(|size| *size >= 20 << 20));
        let Failure::OutOfMemory(shortage) = refused else { panic!("{refused}") };
        assert_eq!(shortage.segment.0, tries[4]);
        assert_eq!(shortage.device_free, Some(Bytes::from_mib(8)));
        bfc.allocate(Bytes::from_mib(18), Stream(0)).expect_err("there are 8 MiB");
        assert_eq!(asked().len(), second);
    }
}

#[test]
fn backoff_from_small_size_terminates() {
    let memory = Faulty::new(Bytes(0));
    let mut bfc = Bfc::new(Arc::clone(&memory), limited(2560)).expect("a limit is set");
    bfc.allocate(Bytes(1), Stream(0)).expect_err("there is no memory");
    let asked = memory.asked.lock().unwrap().clone();
    assert_eq!(asked, [2560, 2304, 2048, 1792, 1536, 1280, 1024, 768, 512, 256]);
}

#[test]
fn free_regions_are_released_if_sufficient_for_request() {
    for garbage_collection in [true, false] {
        let settings = Settings { allow_growth: true, garbage_collection, ..limited(16 << 20) };
        let memory = ModelMemory::new(Bytes::from_mib(64));
        let mut bfc = Bfc::new(memory, settings).expect("a limit is set");
        let sizes = [2, 4, 8].map(|mib| mib << 20);
        let [two, four, eight] = sizes.map(|size| take(&mut bfc, size));
        bfc.free(four).expect("it belongs to this allocator");
        bfc.free(eight).expect("it belongs to this allocator");
        assert!(bfc.allocate(Bytes(15 << 20), Stream(0)).is_err(), "2 MiB stay");
        assert_eq!(bfc.usage().segments, 3, "nothing goes back for nothing");
        let big = bfc.allocate(Bytes(12 << 20), Stream(0));
        assert_eq!(big.is_ok(), garbage_collection);
        assert_eq!(bfc.usage().segments, if garbage_collection { 2 } else { 3 });
        assert_eq!(bfc.usage().retries, u64::from(garbage_collection));
        bfc.free(two).expect("it belongs to this allocator");
    }
}

#[test]
fn adjacent_regions_merge_only_when_enabled() {
    for adjacent_regions in [true, false] {
        let settings = Settings { allow_growth: true, adjacent_regions, ..limited(64 << 20) };
        let memory = ModelMemory::new(Bytes::from_mib(64));
        let mut bfc = Bfc::new(memory, settings).expect("a limit is set");
        let taken = [2, 4, 8].map(|mib| take(&mut bfc, mib << 20));
        taken.into_iter().for_each(|chunk| bfc.free(chunk).expect("it belongs to this allocator"));
        let (segments, largest) = if adjacent_regions { (1, 14 << 20) } else { (3, 8 << 20) };
        assert_eq!(bfc.usage().segments, segments);
        assert_eq!(bfc.usage().largest_free, Bytes(largest));
        let statistics = bfc.statistics();
        let scattered = (14 << 20) - largest;
        assert_eq!(statistics.fragmentation, scattered as f64 / f64::from(14 << 20));
        assert_eq!(bfc.empty_cache().ok(), Some(Bytes(14 << 20)));
        assert_eq!((bfc.memory().used(), bfc.usage().segments), (Bytes(0), 0));
        let _ = take(&mut bfc, 1);
    }
}

#[test]
fn foreign_allocation_is_rejected() {
    let (mut one, mut other) = (bfc(1 << 20, false), bfc(1 << 20, false));
    let (a, b) = (take(&mut one, 256), take(&mut other, 256));
    assert!(matches!(other.free(a), Err(Failure::Foreign { .. })));
    let retired = other.retire(b).expect("it belongs to this allocator");
    assert!(matches!(one.complete(retired), Err(Failure::Foreign { .. })));
    assert_eq!((one.in_use(), other.in_use()), (Bytes(256), Bytes(0)));
}

#[test]
fn huge_requests_are_rejected() {
    let mut bfc = bfc(1 << 20, true);
    for size in [u64::MAX, u64::MAX - 255, 1 << 63] {
        assert!(matches!(bfc.allocate(Bytes(size), Stream(0)), Err(Failure::OutOfMemory(_))));
        assert!(matches!(bfc.allocate_behind(Bytes(size)), Err(Failure::OutOfMemory(_))));
    }
    let settings = Settings { allow_growth: true, ..limited(u64::MAX) };
    let mut endless = Bfc::new(ModelMemory::endless(), settings).expect("a limit is set");
    assert!(endless.allocate(Bytes(1), Stream(0)).is_ok());
    assert!(endless.allocate(Bytes(u64::MAX - 300), Stream(0)).is_err());
}

#[test]
fn default_limit_matches_tensorflow() {
    let memory = ModelMemory::new(Bytes::from_mib(16_000));
    let bfc = Bfc::new(memory, Settings::default()).expect("the device answers");
    assert_eq!(bfc.limit(), Bytes::from_mib(16_000 - 1536));
}

/// Like TensorFlow's `ClearStats`, which does not reset the pool.
#[test]
fn pool_peak_survives_reset_peaks() {
    let settings = Settings { allow_growth: true, ..limited(64 << 20) };
    let memory = ModelMemory::new(Bytes::from_mib(64));
    let mut bfc = Bfc::new(memory, settings).expect("a limit is set");
    let long = take(&mut bfc, 32 << 20);
    bfc.free(long).expect("it belongs to this allocator");
    let most = bfc.statistics().peak_pool_bytes;
    assert_eq!(bfc.empty_cache().ok(), Some(most));
    bfc.reset_peaks();
    assert_eq!((bfc.statistics().peak_pool_bytes, bfc.usage().peak_reserved), (most, Bytes(0)));
}
