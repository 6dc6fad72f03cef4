//! Invariants of the allocator.

use gpu_allocator_policy::caching::{Caching, Events, Stat};
use gpu_allocator_policy::{BlockState, Policy};
use gpu_core::DeviceMemory;

/// Checks that blocks are contiguous, that free neighbours are merged, and that the counters match
/// the blocks. Split blocks can be counted again only for ordinary segments.
pub(crate) fn check<M: DeviceMemory, E: Events>(caching: &Caching<M, E>, ordinary: bool) {
    let mut end_of_last = 0;
    let (mut reserved, mut requested) = (0, 0);
    let (mut in_use, mut active, mut split) = ((0, 0), (0, 0), (0, 0));
    let mut largest_free = 0;
    let add = |sum: &mut (u64, u64), size: u64| *sum = (sum.0 + 1, sum.1 + size);
    for segment in caching.segments() {
        assert!(segment.address >= end_of_last, "segments do not overlap");
        let mut at = segment.address;
        let mut last = None;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "blocks lie edge to edge");
            assert!(block.size.0 > 0);
            assert!(block.requested <= block.size);
            at += block.size.0;
            match block.state {
                BlockState::Active => {
                    add(&mut in_use, block.size.0);
                    add(&mut active, block.size.0);
                }
                BlockState::AwaitingFree => add(&mut active, block.size.0),
                BlockState::Free => {
                    assert_ne!(last, Some(BlockState::Free), "free neighbours are one");
                    assert_eq!(block.requested.0, 0);
                    largest_free = largest_free.max(block.size.0);
                    if ordinary && segment.blocks.len() > 1 {
                        add(&mut split, block.size.0);
                    }
                }
            }
            requested += block.requested.0;
            last = Some(block.state);
        }
        assert_eq!(at, segment.address + segment.size.0, "blocks fill their segment");
        end_of_last = at;
        reserved += segment.size.0;
    }

    let statistics = caching.statistics();
    let now = |stat: &Stat| stat.current;
    assert_eq!(now(&statistics.reserved_bytes.all), reserved);
    assert_eq!(now(&statistics.requested_bytes.all), requested);
    assert_eq!((now(&statistics.allocation.all), now(&statistics.allocated_bytes.all)), in_use);
    assert_eq!((now(&statistics.active.all), now(&statistics.active_bytes.all)), active);
    let counted = &statistics.inactive_split;
    if ordinary {
        assert_eq!((now(&counted.all), now(&statistics.inactive_split_bytes.all)), split);
    }
    let pools = [
        &statistics.allocation,
        &statistics.segment,
        &statistics.active,
        &statistics.inactive_split,
        &statistics.allocated_bytes,
        &statistics.reserved_bytes,
        &statistics.active_bytes,
        &statistics.inactive_split_bytes,
        &statistics.requested_bytes,
    ];
    for pools in pools {
        let sum = |part: fn(&Stat) -> u64| part(&pools.small_pool) + part(&pools.large_pool);
        assert_eq!(pools.all.current, sum(|stat| stat.current));
        assert_eq!(pools.all.allocated, sum(|stat| stat.allocated));
        assert_eq!(pools.all.freed, sum(|stat| stat.freed));
        for stat in [&pools.all, &pools.small_pool, &pools.large_pool] {
            assert_eq!(stat.allocated - stat.freed, stat.current);
            assert!(stat.peak >= stat.current);
        }
        assert!(pools.all.peak <= sum(|stat| stat.peak));
    }
    let usage = caching.usage();
    assert_eq!((usage.in_use.0, usage.reserved.0), (in_use.1, reserved));
    assert_eq!((usage.requested.0, usage.allocations), (requested, in_use.0));
    assert_eq!(usage.largest_free.0, largest_free);
    assert_eq!((caching.in_use(), caching.reserved()), (usage.in_use, usage.reserved));
}
