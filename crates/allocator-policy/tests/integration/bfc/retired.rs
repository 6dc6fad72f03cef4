//! Memory that is freed before the work that uses it has ended.

use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::{Allocation, Bfc, BlockState, ModelMemory, Policy, Stream};
use gpu_core::Bytes;

const KIB: u64 = 1024;

fn bfc(limit: u64) -> Bfc<ModelMemory> {
    let settings = Settings { limit: Some(Bytes(limit)), ..Settings::default() };
    Bfc::new(ModelMemory::new(Bytes(limit)), settings).expect("a limit is set")
}

fn fill(bfc: &mut Bfc<ModelMemory>, size: u64) -> Vec<Allocation> {
    let next = |_| bfc.allocate(Bytes(size), Stream(0)).ok();
    (0..).map_while(next).collect()
}

fn states(bfc: &Bfc<ModelMemory>) -> Vec<(BlockState, u64)> {
    let segments = bfc.segments();
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    blocks.map(|block| (block.state, block.size.0 / KIB)).collect()
}

#[test]
fn retired_memory_is_reusable_after_completion() {
    let mut bfc = bfc(64 * KIB);
    let mut all = fill(&mut bfc, 16 * KIB);
    assert_eq!(all.len(), 4);
    let at = all[1].address();
    let retired = bfc.retire(all.remove(1)).expect("it belongs to this allocator");
    assert_eq!((retired.address(), bfc.in_use()), (at, Bytes(48 * KIB)));
    assert!(bfc.allocate(Bytes(1), Stream(0)).is_err());
    assert_eq!(bfc.empty_cache().ok(), Some(Bytes(0)));
    bfc.complete(retired).expect("it belongs to this allocator");
    assert_eq!(bfc.allocate(Bytes(16 * KIB), Stream(0)).map(|one| one.address()).ok(), Some(at));
}

#[test]
fn retired_memory_does_not_merge_before_completion() {
    use BlockState::{Active, AwaitingFree, Free};
    let mut bfc = bfc(64 * KIB);
    let mut all = fill(&mut bfc, 16 * KIB);
    let c = bfc.retire(all.remove(2)).expect("it belongs to this allocator");
    bfc.free(all.remove(1)).expect("it belongs to this allocator");
    assert_eq!(states(&bfc), [(Active, 16), (Free, 16), (AwaitingFree, 16), (Active, 16)]);
    bfc.complete(c).expect("it belongs to this allocator");
    assert_eq!(states(&bfc), [(Active, 16), (Free, 32), (Active, 16)]);
}

#[test]
fn allocate_behind_takes_retired_memory_immediately() {
    let mut bfc = bfc(64 * KIB);
    let mut all = fill(&mut bfc, 16 * KIB);
    let at = all[1].address();
    let b = bfc.retire(all.remove(1)).expect("it belongs to this allocator");
    let part = bfc.allocate_behind(Bytes(4 * KIB)).expect("16 KiB wait");
    assert_eq!((part.address(), part.size()), (at, Bytes(4 * KIB)));
    let waits = (BlockState::AwaitingFree, 12);
    assert_eq!(states(&bfc)[2], waits, "the rest still waits");
    assert!(bfc.allocate(Bytes(1), Stream(0)).is_err());
    bfc.complete(b).expect("it belongs to this allocator");
    let rest = bfc.allocate(Bytes(12 * KIB), Stream(0)).expect("it is no longer in use");
    assert_eq!(rest.address(), at + 4 * KIB);
}

#[test]
fn stale_stamp_does_not_complete_reused_memory() {
    let mut bfc = bfc(64 * KIB);
    let mut all = fill(&mut bfc, 16 * KIB);
    let old = bfc.retire(all.remove(1)).expect("it belongs to this allocator");
    let again = bfc.allocate_behind(Bytes(16 * KIB)).expect("16 KiB wait");
    let new = bfc.retire(again).expect("it belongs to this allocator");
    bfc.complete(old).expect("it belongs to this allocator");
    assert!(bfc.allocate(Bytes(1), Stream(0)).is_err(), "the newer work has not ended");
    bfc.complete(new).expect("it belongs to this allocator");
    assert!(bfc.allocate(Bytes(16 * KIB), Stream(0)).is_ok());
}

#[test]
fn allocate_behind_merges_retired_chunks_until_large_enough() {
    use BlockState::{Active, AwaitingFree};
    let mut bfc = bfc(128 * KIB);
    let mut all = fill(&mut bfc, 16 * KIB);
    assert_eq!(all.len(), 8);
    // 1, 2, 3 and 5, 6: oldest first, so 5 and 6 are merged before 1 to 3.
    let mut retired = Vec::new();
    for (nth, left) in [(6, 7), (5, 6), (3, 5), (2, 4), (1, 3)] {
        retired.push(bfc.retire(all.remove(nth)).expect("it belongs to this allocator"));
        assert_eq!(all.len(), left);
    }
    assert!(bfc.allocate(Bytes(32 * KIB), Stream(0)).is_err());
    let pair = bfc.allocate_behind(Bytes(32 * KIB)).expect("80 KiB wait");
    let five = [(Active, 16), (AwaitingFree, 16), (AwaitingFree, 16), (AwaitingFree, 16)];
    assert_eq!(states(&bfc)[..4], five);
    assert_eq!(states(&bfc)[4..], [(Active, 16), (Active, 32), (Active, 16)]);
    // A merged chunk waits for the work of all its parts.
    bfc.allocate_behind(Bytes(64 * KIB)).expect_err("48 KiB wait");
    assert_eq!(states(&bfc)[1], (AwaitingFree, 48));
    bfc.free(pair).expect("it belongs to this allocator");
    let mut order = retired.drain(2..);
    for _ in 0..2 {
        bfc.complete(order.next().expect("there are three")).expect("it belongs to this allocator");
        assert!(bfc.allocate(Bytes(40 * KIB), Stream(0)).is_err());
    }
    bfc.complete(order.next().expect("there are three")).expect("it belongs to this allocator");
    assert!(bfc.allocate(Bytes(48 * KIB), Stream(0)).is_ok());
}

#[test]
fn region_with_retired_memory_is_kept() {
    let settings =
        Settings { limit: Some(Bytes(8 << 20)), allow_growth: true, ..Settings::default() };
    let memory = ModelMemory::new(Bytes(8 << 20));
    let mut bfc = Bfc::new(memory, settings).expect("a limit is set");
    let first = bfc.allocate(Bytes(2 << 20), Stream(0)).expect("8 MiB are free");
    let retired = bfc.retire(first).expect("it belongs to this allocator");
    assert!(bfc.allocate(Bytes(8 << 20), Stream(0)).is_err());
    assert_eq!(bfc.usage().reserved, Bytes(2 << 20));
    bfc.complete(retired).expect("it belongs to this allocator");
    assert!(bfc.allocate(Bytes(8 << 20), Stream(0)).is_ok());
}

/// If each merge visited every timestamp, this test would not end in reasonable time.
#[test]
fn merging_many_retired_chunks_is_not_quadratic() {
    const CHUNKS: u64 = 1 << 16;
    for descending in [false, true] {
        let mut bfc = bfc(CHUNKS * 256);
        let mut all = fill(&mut bfc, 256);
        assert_eq!(all.len() as u64, CHUNKS);
        if descending {
            all.reverse();
        }
        let retire = |chunk| bfc.retire(chunk).expect("it belongs to this allocator");
        let retired: Vec<_> = all.into_iter().map(retire).collect();
        let whole = bfc.allocate_behind(Bytes(CHUNKS * 256)).expect("all of it waits");
        assert_eq!(bfc.usage().largest_free, Bytes(0));
        let again = bfc.retire(whole).expect("it belongs to this allocator");
        for old in retired {
            bfc.complete(old).expect("it belongs to this allocator");
        }
        assert!(bfc.allocate(Bytes(1), Stream(0)).is_err(), "the newer work has not ended");
        bfc.complete(again).expect("it belongs to this allocator");
        assert!(bfc.allocate(Bytes(CHUNKS * 256), Stream(0)).is_ok());
    }
}
