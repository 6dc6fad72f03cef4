//! An allocator that continues from a dump.

use crate::fixture::{Faulty, Model};
use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::{Bfc, BlockState, Failure, Policy, Stream};
use gpu_allocator_policy::{RecordedBlock, Segment};
use gpu_core::{Bytes, ErrorKind};
use std::sync::Arc;

fn block(address: u64, size: u64, state: BlockState) -> RecordedBlock {
    let requested = Some(size - 6).filter(|_| state == BlockState::Active);
    RecordedBlock { address, size, requested, state }
}

fn segment(address: u64, size: u64, blocks: Vec<RecordedBlock>) -> Segment {
    Segment { address, size, blocks, ..Segment::default() }
}

fn settings() -> Settings {
    Settings { limit: Some(Bytes(64 << 20)), allow_growth: true, ..Settings::default() }
}

#[test]
fn adopted_chunks_match_dump() {
    use BlockState::{Active, AwaitingFree, Free};
    let low = vec![
        block(0x1000, 512, Free),
        block(0x1200, 256, Active),
        block(0x1300, 1024, AwaitingFree),
        // The dump omits the rest, which is free.
    ];
    let high = vec![block(0x9_0000, 4 << 20, Active)];
    let dump = [segment(0x9_0000, 4 << 20, high), segment(0x1000, 2 << 20, low)];
    let memory = Faulty::new(Bytes::from_mib(64));
    let (bfc, taken) = Bfc::adopt(Arc::clone(&memory), settings(), &dump).expect("it fits");
    let sizes: Vec<_> = taken.iter().map(|one| one.size().0).collect();
    assert_eq!(sizes, [256, 1024, 4 << 20]);
    assert_eq!(taken[0].address() + 256, taken[1].address());
    let mut model = Model::new(bfc);
    let asked = [250, 1024, (4 << 20) - 6];
    model.live = taken.into_iter().zip(asked).collect();
    model.compare();
    let hole = model.policy.allocate(Bytes(512), Stream(0)).expect("there is a hole");
    assert_eq!(hole.address() + 512, model.live[0].0.address(), "the smallest hole that suffices");
    model.live.push((hole, 512));
    model.compare();
    model.free_all(7);
    assert_eq!(model.policy.usage().largest_free, Bytes(4 << 20));
    // The next region is twice as large as the largest.
    let _ = model.policy.allocate(Bytes(5 << 20), Stream(0)).expect("64 MiB are free");
    assert_eq!(memory.asked.lock().unwrap().last(), Some(&(8 << 20)));
    drop(model);
    assert_eq!(memory.model.used(), Bytes(0));
}

#[test]
fn impossible_dump_is_rejected_without_side_effects() {
    use BlockState::Active;
    let memory = Faulty::new(Bytes::from_mib(8));
    let whole = || segment(0x10_0000, 2 << 20, vec![block(0x10_0000, 256, Active)]);
    for bad in [
        segment(0x1000, 0, vec![]),
        segment(0x1000, 100, vec![]),
        segment(u64::MAX - 255, 512, vec![]),
        segment(0x1000, 1024, vec![block(0x1000, 2048, Active)]),
        segment(0x1000, 1024, vec![block(0xf00, 256, Active)]),
        segment(0x1000, 1024, vec![block(0x1080, 256, Active)]),
        segment(0x1000, 1024, vec![block(0x1000, 512, Active), block(0x1100, 256, Active)]),
        segment(0x1000, 1024, vec![block(u64::MAX - 255, 512, Active)]),
    ] {
        let refused = Bfc::adopt(Arc::clone(&memory), settings(), &[whole(), bad.clone()]);
        let Err(Failure::Device(error)) = refused else { panic!("{bad:?}") };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(memory.model.used(), Bytes(0));
    }
    let long = segment(0x1000, 16 << 20, vec![]);
    let refused = Bfc::adopt(Arc::clone(&memory), settings(), &[whole(), long.clone()]);
    assert!(matches!(refused, Err(Failure::OutOfMemory(_))));
    let limited = Settings { limit: Some(Bytes(1 << 20)), ..settings() };
    let refused = Bfc::adopt(Arc::clone(&memory), limited, &[whole()]);
    assert!(matches!(refused, Err(Failure::OutOfMemory(_))));
    assert_eq!(memory.model.used(), Bytes(0));
}

#[test]
fn dump_as_large_as_limit_is_adopted() {
    let dump = [segment(0x1000, 2 << 20, vec![]), segment(0x90_0000, 1 << 20, vec![])];
    let adopted = |limit| {
        let limited = Settings { limit: Some(Bytes(limit)), ..settings() };
        Bfc::adopt(Faulty::new(Bytes::from_mib(8)), limited, &dump).is_ok()
    };
    assert!(adopted(3 << 20));
    assert!(!adopted((3 << 20) - 256));
}
