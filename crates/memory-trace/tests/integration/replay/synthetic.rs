//! Recordings of PyTorch's policy itself, with streams, retries and failures.

use crate::replay::recorder::Recorder;
use gpu_allocator_policy::caching::Settings;
use gpu_core::Bytes;
use gpu_memory_trace::trace::{Action, DeviceTrace, Event, SegmentKind, Stacks};
use gpu_memory_trace::{Workload, compare};
use proptest::prelude::*;

const SETTINGS: [&str; 4] =
    ["", "max_split_size_mb:20", "roundup_power2_divisions:4", "expandable_segments:True"];

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1u64..4_096,
        2 => 4_096u64..(1 << 20),
        3 => (1u64 << 20)..(10 << 20),
        2 => (10u64 << 20)..(40 << 20),
    ]
}

/// Returns the address and end of each block in the large pool that is larger than a new block for
/// its request would be, because it was free before and its remainder was too small to split off.
fn longer_blocks(recorder: &Recorder, settings: &Settings) -> Vec<(u64, u64)> {
    let new_length = |request| {
        let mut fresh = Recorder::new(settings, Bytes(1 << 40));
        fresh.allocate(request, 0);
        let segments = fresh.snapshot(false).segments.unwrap_or_default();
        segments.first().map(|segment| segment.blocks[0].size)
    };
    let segments = recorder.snapshot(false).segments.unwrap_or_default();
    let large = segments.iter().filter(|segment| segment.kind == SegmentKind::Large);
    let blocks = large.flat_map(|segment| &segment.blocks);
    let longer = blocks.filter(|block| {
        let new = block.requested.and_then(new_length);
        new.is_some_and(|new| block.size > new)
    });
    longer.map(|block| (block.address, block.address + block.size)).collect()
}

/// Returns whether a recording hides the end of a block: the block is not held at the end, and no
/// memory is allocated behind it before it is freed.
fn hides_end(trace: &DeviceTrace, (address, end): (u64, u64)) -> bool {
    let is_free = |event: &Event| event.action == Action::FreeCompleted && event.address == address;
    let follows = |event: &Event| event.action == Action::Alloc && event.address == end;
    let freed = trace.events.iter().position(is_free);
    freed.is_some_and(|freed| !trace.events[..freed].iter().any(follows))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn replay_agrees_when_recording_starts_midway(
        before in proptest::collection::vec((0u8..5, size(), 0usize..1000, 0u64..3), 0..60),
        after in proptest::collection::vec((0u8..5, size(), 0usize..1000, 0u64..3), 1..150),
        setting in proptest::sample::select(SETTINGS.to_vec()),
    ) {
        let settings: Settings = setting.parse().expect("PyTorch accepts it");
        // Without stacks, pages that are unmapped for a request that then needs no new pages look
        // like an emptied cache.
        let total = if settings.expandable_segments() { 1 << 40 } else { 240 << 20 };
        let mut recorder = Recorder::new(&settings, Bytes(total));
        // With oversize blocks it matters whether a completion was found before a request or after
        // the device refused it, and a recording does not show which.
        let retires = !setting.starts_with("max_split");
        let run = |recorder: &mut Recorder, steps: &[(u8, u64, usize, u64)]| {
            for &(kind, size, index, stream) in steps {
                match kind {
                    0..=2 => recorder.allocate(size, stream),
                    3 => recorder.free(index, !retires || !index.is_multiple_of(4)),
                    _ => recorder.complete(index),
                }
            }
        };
        run(&mut recorder, &before);
        recorder.begin();
        let retries = recorder.retries();
        let is_expandable = settings.expandable_segments();
        let longer = if is_expandable { vec![] } else { longer_blocks(&recorder, &settings) };
        run(&mut recorder, &after);
        let trace = recorder.snapshot(is_expandable);
        prop_assume!(!longer.iter().any(|block| hides_end(&trace, *block)));
        let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
        let agreement = compare(&trace, &workload, &settings).expect("the recording is complete");
        prop_assert!(agreement.is_complete(), "{agreement:?}");
        prop_assert_eq!(agreement.retries, recorder.retries() - retries);
    }
}

#[test]
fn recording_of_different_policy_is_detected() {
    let mut recorder = Recorder::new(&Settings::default(), Bytes::from_mib(240));
    recorder.allocate(3 << 20, 0);
    recorder.allocate(5 << 20, 0);
    let mut trace = recorder.snapshot(false);
    for event in trace.events.iter_mut().rev().take(1) {
        event.address += 4096;
    }
    trace.segments = Some(Vec::new());
    let error = Workload::of(&trace, &Stacks::default()).expect_err("the end does not follow");
    assert!(error.to_string().contains("reconstruct the initial state"), "{error}");

    let mut trace = recorder.snapshot(false);
    let moved = trace.events.last_mut().expect("two were handed out");
    moved.address += 2 << 20;
    let block = trace.segments.as_mut().expect("it has segments")[0]
        .blocks
        .iter_mut()
        .rfind(|block| block.requested == Some(5 << 20))
        .expect("it is the second");
    block.address += 2 << 20;
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    let agreement =
        compare(&trace, &workload, &Settings::default()).expect("the recording is complete");
    assert_eq!((agreement.addresses.predicted, agreement.addresses.of), (1, 2));
    let first = agreement.first.expect("one differs");
    assert!(first.what.contains("5242880 bytes allocated"), "{first:?}");
}

#[test]
fn replay_predicts_explicit_empty_cache() {
    let mut recorder = Recorder::new(&Settings::default(), Bytes::from_mib(240));
    recorder.allocate(3 << 20, 0);
    recorder.allocate(100, 0);
    recorder.allocate(30 << 20, 0);
    recorder.free(2, true);
    recorder.begin();
    recorder.empty_cache();
    let trace = recorder.snapshot(false);
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    let agreement =
        compare(&trace, &workload, &Settings::default()).expect("the recording is complete");
    assert!(agreement.is_complete(), "{agreement:?}");
    assert_eq!((agreement.segments_freed.of, agreement.retries), (1, 0));
}

#[test]
fn captured_allocations_replay_from_private_pool() {
    let mut recorder = Recorder::new(&Settings::default(), Bytes::from_mib(240));
    recorder.allocate(30 << 20, 0);
    recorder.free(0, true);
    recorder.draw_from((0, 1));
    recorder.allocate(12 << 20, 0);
    recorder.begin();
    // The common pool has 30 MiB in its cache, which a capture must not use.
    recorder.allocate(14 << 20, 0);
    recorder.draw_from((0, 0));
    recorder.allocate(16 << 20, 0);
    let mut trace = recorder.snapshot(false);
    for segment in trace.segments.iter_mut().flatten().filter(|segment| segment.size < 20 << 20) {
        segment.pool = (0, 1);
    }
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    assert_eq!(workload.pools, [(0, 1), (0, 0)]);
    let agreement =
        compare(&trace, &workload, &Settings::default()).expect("the recording is complete");
    assert!(agreement.is_complete(), "{agreement:?}");
    assert_eq!((agreement.addresses.of, agreement.segments.of), (2, 1));

    trace.segments.iter_mut().flatten().for_each(|segment| segment.pool = (0, 0));
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    let common =
        compare(&trace, &workload, &Settings::default()).expect("the recording is complete");
    assert!(!common.is_complete(), "from the common pool it would have come out otherwise");
}

#[test]
fn block_keeps_unsplit_remainder() {
    // With 4 divisions, 6.1 MiB are rounded to 7 MiB, and the remaining half MiB is not split off.
    let settings: Settings = "roundup_power2_divisions:4".parse().expect("PyTorch accepts it");
    let mut recorder = Recorder::new(&settings, Bytes::from_mib(240));
    let mib = |tenths: u64| tenths * (1 << 20) / 10;
    for tenths in [34, 39, 50] {
        recorder.allocate(mib(tenths), 0);
    }
    // The first two are freed, their memory serves a request, and then the third is freed.
    recorder.free(0, true);
    recorder.free(1, true);
    recorder.allocate(mib(61), 0);
    recorder.free(0, true);
    recorder.begin();
    // The new block starts behind the block of unknown size, which is then freed.
    recorder.allocate(mib(50), 0);
    recorder.free(0, true);
    let trace = recorder.snapshot(false);
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    let agreement = compare(&trace, &workload, &settings).expect("the recording is complete");
    assert!(agreement.is_complete(), "{agreement:?}");
}

#[test]
fn detects_region_of_different_size() {
    let mut recorder = Recorder::new(&Settings::default(), Bytes::from_mib(240));
    recorder.allocate(3 << 20, 0);
    let trace = recorder.snapshot(false);
    let workload = Workload::of(&trace, &Stacks::default()).expect("it is consistent");
    let settings: Settings = "large_segment_size_mb:40".parse().expect("PyTorch accepts it");
    let agreement = compare(&trace, &workload, &settings).expect("the recording is complete");
    let tallies =
        [agreement.addresses, agreement.segments].map(|tally| (tally.predicted, tally.of));
    assert_eq!((tallies, agreement.unrecorded), ([(0, 1), (0, 1)], 1));
    let first = agreement.first.expect("it differs");
    assert!(first.what.contains("41943040 bytes are taken"), "{first:?}");
}
