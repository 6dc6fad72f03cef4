//! The pool of `cudaMallocAsync`.

use gpu_allocator_policy::stream_ordered::Settings;
use gpu_allocator_policy::{Allocation, Failure, ModelMemory, Policy, Stream, StreamOrdered};
use gpu_core::Bytes;

const MIB: u64 = 1 << 20;

fn pool(total: u64, settings: Settings) -> StreamOrdered<ModelMemory> {
    StreamOrdered::new(ModelMemory::new(Bytes::from_mib(total)), settings)
}

fn take(pool: &mut impl Policy, size: u64, stream: u64) -> Allocation {
    pool.allocate(Bytes(size), Stream(stream)).expect("memory suffices")
}

fn release(pool: &mut impl Policy, allocation: Allocation) {
    pool.free(allocation).expect("it belongs to this pool");
}

#[test]
fn freed_memory_is_reusable_at_once_only_by_same_stream() {
    let settings = Settings { release_threshold: Bytes::from_mib(1024), ..Settings::default() };
    let mut pool = pool(256, settings);
    let first = take(&mut pool, 32 * MIB, 1);
    let at = first.address();
    release(&mut pool, first);
    let other = take(&mut pool, 32 * MIB, 2);
    assert_ne!(other.address(), at);
    let again = take(&mut pool, 32 * MIB, 1);
    assert_eq!(again.address(), at);
    release(&mut pool, again);
    assert_eq!(pool.synchronize(Some(Stream(2))).ok(), Some(Bytes(0)));
    assert_ne!(take(&mut pool, 32 * MIB, 2).address(), at, "stream 1 was not waited for");
    assert_eq!(pool.synchronize(Some(Stream(1))).ok(), Some(Bytes(0)));
    assert_eq!(take(&mut pool, 32 * MIB, 2).address(), at);
    assert_eq!(pool.usage().segments, 3);
}

#[test]
fn synchronize_releases_memory_above_threshold() {
    for (threshold, left) in [(0, 0), (33, 64), (64, 64), (96, 96), (1000, 96)] {
        let threshold = Bytes::from_mib(threshold);
        let mut pool = pool(256, Settings { release_threshold: threshold, ..Settings::default() });
        let taken = [1, 2, 3].map(|stream| take(&mut pool, 32 * MIB, stream));
        taken.into_iter().for_each(|allocation| release(&mut pool, allocation));
        assert_eq!(pool.reserved(), Bytes::from_mib(96), "a free alone gives nothing back");
        assert_eq!(pool.synchronize(None).ok(), Some(Bytes::from_mib(96 - left)));
        assert_eq!(
            (pool.reserved(), pool.memory().used()),
            (Bytes::from_mib(left), Bytes::from_mib(left))
        );
        assert_eq!(
            pool.trim(Bytes::from_mib(40)).ok(),
            Some(Bytes::from_mib(left.saturating_sub(64)))
        );
        assert_eq!(pool.empty_cache().ok(), Some(Bytes::from_mib(left.min(64))));
        assert_eq!(pool.memory().used(), Bytes(0));
    }
}

#[test]
fn freed_pieces_of_region_merge() {
    let mut pool = pool(64, Settings::default());
    let pieces: Vec<_> = (0..4).map(|nth| take(&mut pool, 8 * MIB, nth % 2)).collect();
    assert_eq!(pool.usage().segments, 1);
    pieces.into_iter().for_each(|piece| release(&mut pool, piece));
    assert_eq!(pool.usage().largest_free, Bytes(8 * MIB), "streams alternate");
    assert_eq!(pool.empty_cache().ok(), Some(Bytes(0)), "their work has not ended");
    pool.synchronize(Some(Stream(0))).expect("the device accepts it");
    pool.synchronize(Some(Stream(1))).expect("the device accepts it");
    assert_eq!(pool.usage().segments, 0);
}

#[test]
fn stream_waits_for_another_instead_of_failing() {
    for internal_dependencies in [true, false] {
        let mut pool = pool(32, Settings { internal_dependencies, ..Settings::default() });
        let first = take(&mut pool, 20 * MIB, 1);
        release(&mut pool, first);
        let second = pool.allocate(Bytes(16 * MIB), Stream(2));
        assert_eq!(second.is_ok(), internal_dependencies);
        assert_eq!(pool.usage().retries, u64::from(internal_dependencies));
    }
}

#[test]
fn free_regions_are_released_before_oom() {
    let settings = Settings { release_threshold: Bytes::from_mib(1024), ..Settings::default() };
    let mut pool = pool(128, settings);
    let taken = [1, 1, 1].map(|stream| take(&mut pool, 32 * MIB, stream));
    taken.into_iter().for_each(|allocation| release(&mut pool, allocation));
    assert!(pool.allocate(Bytes(64 * MIB), Stream(1)).is_err(), "no work is known to have ended");
    pool.synchronize(None).expect("the device accepts it");
    assert_eq!(pool.reserved(), Bytes::from_mib(96));
    assert_eq!(take(&mut pool, 64 * MIB, 2).size(), Bytes(64 * MIB));
    assert_eq!((pool.usage().retries, pool.reserved()), (1, Bytes::from_mib(64)));
}

#[test]
fn maximum_size_is_enforced() {
    let settings = Settings { largest: Some(Bytes::from_mib(40)), ..Settings::default() };
    let mut pool = pool(256, settings);
    let _first = take(&mut pool, 30 * MIB, 0);
    let refused = pool.allocate(Bytes(3 * MIB), Stream(0)).expect_err("8 MiB are no region");
    let Failure::OutOfMemory(shortage) = refused else { panic!("{refused}") };
    assert_eq!((shortage.limit, shortage.largest_free), (settings.largest, Bytes(2 * MIB)));
    assert_eq!(shortage.segment, Bytes::from_mib(32));
    assert!(pool.allocate(Bytes(u64::MAX), Stream(0)).is_err());
}

#[test]
fn synchronize_does_not_complete_retired_memory() {
    let mut pool = pool(32, Settings::default());
    let first = take(&mut pool, 20 * MIB, 1);
    let retired = pool.retire(first).expect("it belongs to this pool");
    pool.synchronize(None).expect("the device accepts it");
    assert!(pool.allocate(Bytes(16 * MIB), Stream(1)).is_err());
    pool.complete(retired).expect("it belongs to this pool");
    assert_eq!(take(&mut pool, 32 * MIB, 2).size(), Bytes(32 * MIB));
}
