//! Starting in the middle of a job.

use crate::caching::device::{Device, MIB, caching};
use crate::caching::invariants::check;
use gpu_allocator_policy::caching::{AdoptError, PoolId};
use gpu_allocator_policy::{BlockState, Policy, Stream};
use gpu_allocator_policy::{RecordedBlock, Segment, SegmentKind};
use gpu_core::{Bytes, DeviceMemory, Region};
use proptest::prelude::*;

fn block(address: u64, size: u64, requested: u64, state: BlockState) -> RecordedBlock {
    RecordedBlock { address, size, requested: Some(requested), state }
}

fn active(address: u64, size: u64) -> RecordedBlock {
    block(address, size, size, BlockState::Active)
}

fn segment(region: Region, kind: SegmentKind, blocks: Vec<RecordedBlock>) -> Segment {
    let (address, size) = (region.address, region.size.0);
    Segment { address, size, stream: 3, kind, blocks, ..Segment::default() }
}

#[test]
fn adopted_segment_keeps_its_blocks() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let region = device.reserve(Bytes(2 * MIB)).expect("1 GiB is free");
    let at = region.address;
    let blocks = vec![
        active(at + 512, 100),
        block(at + 2048, 1024, 1000, BlockState::AwaitingFree),
        block(at + 4096, 512, 0, BlockState::Free),
    ];
    let adopted =
        caching.adopt(&segment(region, SegmentKind::Small, blocks)).expect("it is in order");
    check(&caching, true);
    let sizes: Vec<_> = adopted.allocations.iter().map(|its| (its.address(), its.size())).collect();
    assert_eq!(sizes, [(at + 512, Bytes(512))]);
    assert_eq!((caching.in_use(), caching.reserved()), (Bytes(512), Bytes(2 * MIB)));
    assert_eq!(caching.statistics().active_bytes.all.current, 1536);

    let lowest = caching.allocate(Bytes(512), Stream(3)).expect("it is cached");
    assert_eq!(lowest.address(), at);
    caching.free(lowest).expect("it belongs to this policy");
    for allocation in adopted.allocations {
        caching.free(allocation).expect("it belongs to this policy");
    }
    for retired in adopted.retired {
        caching.complete(retired).expect("it belongs to this policy");
    }
    check(&caching, true);
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(2 * MIB)));
    assert_eq!(device.model.used(), Bytes(0));
}

#[test]
fn adopts_block_with_unsplit_remainder() {
    let region = Region { address: 0, size: Bytes(200 * MIB) };
    let (small, large) = (SegmentKind::Small, SegmentKind::Large);
    for (settings, kind, expandable, request, rounded, most) in [
        ("", large, false, 5 * MIB + 1, 5 * MIB + 512, 6 * MIB + 512),
        ("", small, false, 1000, 1024, 1024 + 511),
        ("", large, true, 5 * MIB + 1, 5 * MIB + 512, 5 * MIB + 512),
        ("roundup_power2_divisions:4", large, false, 6 * MIB + 1, 7 * MIB, 8 * MIB),
        ("max_split_size_mb:30", large, false, 40 * MIB, 40 * MIB, 60 * MIB - 1),
    ] {
        let device = Device::new(1 << 30);
        let caching = caching(&device, settings);
        let segment = Segment { expandable, ..segment(region, kind, vec![]) };
        let is = |size| caching.is_block_size(&segment, request, size);
        assert!(is(rounded) && is(most), "{settings} {kind:?}");
        assert!(!is(rounded - 1) && !is(most + 1), "{settings} {kind:?}");
    }
}

#[test]
fn adopts_adjacent_and_rejects_overlapping_segments() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let region = device.reserve(Bytes(40 * MIB)).expect("1 GiB is free");
    let half = |offset: u64| Region { address: region.address + offset, size: Bytes(20 * MIB) };
    let mut adopt = |part| caching.adopt(&segment(part, SegmentKind::Large, vec![])).map(|_| ());
    assert_eq!(adopt(half(20 * MIB)), Ok(()));
    let overlaps = Err(AdoptError::Overlap(region.address + 512));
    assert_eq!(adopt(half(512)), overlaps);
    assert_eq!(adopt(half(0)), Ok(()));
    assert_eq!(caching.reserved(), Bytes(40 * MIB));
}

#[test]
fn unsplittable_gap_joins_block_below() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let region = device.reserve(Bytes(20 * MIB)).expect("1 GiB is free");
    let at = region.address;
    let blocks = vec![active(at, 5 * MIB), active(at + 6 * MIB, 5 * MIB)];
    let adopted =
        caching.adopt(&segment(region, SegmentKind::Large, blocks)).expect("it is in order");
    let sizes: Vec<_> = adopted.allocations.iter().map(|its| its.size().0 / MIB).collect();
    assert_eq!(sizes, [6, 5]);
    assert_eq!(caching.usage().largest_free, Bytes(9 * MIB));
    check(&caching, true);
}

#[test]
fn private_pool_is_adopted_with_graph() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let region = device.reserve(Bytes(20 * MIB)).expect("1 GiB is free");
    let recorded = Segment { pool: (0, 9), ..segment(region, SegmentKind::Large, vec![]) };
    caching.adopt(&recorded).expect("it is in order");
    assert_eq!(caching.private_pools().collect::<Vec<_>>(), [(PoolId(0, 9), Bytes(20 * MIB))]);
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(0)));
    caching.release_pool(PoolId(0, 9)).expect("a graph uses it");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(20 * MIB)));
}

#[test]
fn adopted_range_keeps_growing() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, "expandable_segments:True");
    let range = device.reserve_addresses(Bytes(900 * MIB)).expect("addresses are free");
    let part = |page: u64, pages: u64, blocks: Vec<RecordedBlock>| {
        let address = range.address + page * 20 * MIB;
        let region = Region { address, size: Bytes(pages * 20 * MIB) };
        device.map(region).expect("800 MiB are free");
        Segment { expandable: true, ..segment(region, SegmentKind::Large, blocks) }
    };
    let low = part(1, 1, vec![active(range.address + 20 * MIB, 15 * MIB)]);
    let high = part(3, 2, vec![active(range.address + 60 * MIB, 40 * MIB)]);
    let adopted = caching.adopt_range(range, &[low, high]).expect("it is in order");
    assert_eq!(adopted.allocations.len(), 2);
    assert_eq!((caching.reserved(), caching.usage().segments), (Bytes(60 * MIB), 1));
    check(&caching, false);
    let grown = caching.allocate(Bytes(18 * MIB), Stream(3)).expect("it is free");
    assert_eq!(grown.address(), range.address, "the lowest page is mapped");
    let behind = caching.allocate(Bytes(30 * MIB), Stream(3)).expect("it is free");
    assert_eq!(behind.address(), range.address + 100 * MIB, "25 MiB were too few");
    check(&caching, false);
    drop(caching);
    assert_eq!(device.model.used(), Bytes(0));
}

#[test]
fn invalid_segment_is_rejected_without_side_effects() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let at = 40 * MIB;
    let region = Region { address: at, size: Bytes(20 * MIB) };
    let large = |blocks| segment(region, SegmentKind::Large, blocks);
    let refused = [
        (Segment { size: 0, ..large(vec![]) }, AdoptError::Extent(at)),
        (Segment { address: u64::MAX, ..large(vec![]) }, AdoptError::Extent(u64::MAX)),
        (Segment { expandable: true, ..large(vec![]) }, AdoptError::Mixed(at)),
        (large(vec![active(at, 0)]), AdoptError::Extent(at)),
        (large(vec![active(u64::MAX, 512)]), AdoptError::Extent(u64::MAX)),
        (large(vec![active(at - 512, 1024)]), AdoptError::Outside(at - 512)),
        (large(vec![active(at + 20 * MIB - 512, 1024)]), AdoptError::Outside(at + 20 * MIB - 512)),
        (large(vec![active(at + 1024, 512), active(at, 512)]), AdoptError::Overlap(at)),
        (large(vec![active(at, 1024), active(at + 512, 512)]), AdoptError::Overlap(at + 512)),
        (large(vec![block(at, 512, 513, BlockState::Active)]), AdoptError::Requested(at)),
    ];
    for (segment, misfit) in refused {
        assert_eq!(caching.adopt(&segment).err(), Some(misfit));
    }
    assert_eq!(caching.segments(), []);

    let range = Region { address: at, size: Bytes(200 * MIB) };
    let part =
        |address: u64, size: u64| Segment { expandable: true, address, size, ..large(vec![]) };
    let page = 20 * MIB;
    let other = Segment { stream: 4, ..part(at + 2 * page, page) };
    for (parts, misfit) in [
        (vec![], AdoptError::Extent(at)),
        (vec![part(at, page), other.clone()], AdoptError::Mixed(other.address)),
        (vec![large(vec![])], AdoptError::Mixed(at)),
        (vec![part(at, page), part(at + page, page)], AdoptError::Overlap(at + page)),
        (vec![part(at + 512, page)], AdoptError::Pages(at + 512)),
        (vec![part(at, 11 * page)], AdoptError::Outside(at)),
    ] {
        assert_eq!(caching.adopt_range(range, &parts).err(), Some(misfit));
    }
    assert_eq!(caching.segments(), []);

    let real = device.reserve(Bytes(20 * MIB)).expect("1 GiB is free");
    caching.adopt(&segment(real, SegmentKind::Large, vec![])).expect("it is in order");
    let inside = Region { address: real.address + 512, size: Bytes(512) };
    let again = caching.adopt(&segment(inside, SegmentKind::Small, vec![]));
    assert_eq!(again.err(), Some(AdoptError::Overlap(inside.address)));
}

proptest! {
    /// Every recording is either rejected or results in a consistent state.
    #[test]
    fn arbitrary_segment_is_adopted_soundly_or_rejected(
        start in 0u64..64,
        pages in 0u64..4,
        large in any::<bool>(),
        blocks in proptest::collection::vec((0u64..8192, 0u64..4096, 0u64..5000, 0u8..3), 0..8),
    ) {
        let device = Device::new(1 << 30);
        let mut caching = caching(&device, "");
        let address = start * 2 * MIB;
        let region = Region { address, size: Bytes(pages * 2 * MIB) };
        let kind = if large { SegmentKind::Large } else { SegmentKind::Small };
        let mut blocks: Vec<_> = blocks
            .into_iter()
            .map(|(at, size, requested, state)| {
                let states = [BlockState::Active, BlockState::AwaitingFree, BlockState::Free];
                let state = states[usize::from(state)];
                block(address + at * 512, size * 512, (requested * 512).min(size * 512), state)
            })
            .collect();
        blocks.sort_by_key(|block| block.address);
        match caching.adopt(&segment(region, kind, blocks)) {
            Ok(adopted) => {
                check(&caching, true);
                for allocation in adopted.allocations {
                    caching.free(allocation).expect("it belongs to this policy");
                    check(&caching, true);
                }
                for retired in adopted.retired {
                    caching.complete(retired).expect("it belongs to this policy");
                }
                check(&caching, true);
                prop_assert_eq!(caching.usage().largest_free, region.size);
            }
            Err(_) => prop_assert_eq!(caching.segments(), []),
        }
    }
}
