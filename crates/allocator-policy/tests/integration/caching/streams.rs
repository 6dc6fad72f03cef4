//! Memory used by several streams, and memory that the caller completes.

use crate::caching::device::{Device, MIB, Work};
use crate::caching::invariants::check;
use gpu_allocator_policy::caching::{Caching, PoolId, Settings};
use gpu_allocator_policy::{BlockState, Failure, Policy, Stream};
use gpu_core::Bytes;
use std::sync::Arc;

const OWN: Stream = Stream(0);
const OTHER: Stream = Stream(7);

fn sharing(device: &Arc<Device>, work: &Work) -> Caching<Arc<Device>, Work> {
    Caching::with_events(device.clone(), Settings::default(), work.clone())
        .expect("no limit is set")
}

/// PyTorch's `test_record_stream`.
#[test]
fn recorded_block_is_reused_only_after_work_on_other_stream() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    let address = a.address();
    caching.record_stream(&a, OTHER).expect("it belongs to this policy");
    caching.free(a).expect("it belongs to this policy");
    assert_eq!(caching.in_use(), Bytes(0));
    assert_eq!(caching.statistics().active_bytes.all.current, 512);
    assert_eq!(caching.segments()[0].blocks[0].state, BlockState::AwaitingFree);
    check(&caching, true);

    let b = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_ne!(b.address(), address);
    work.end(OTHER);
    let c = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_eq!(c.address(), address);
    assert_eq!(work.waits(), 0);
    check(&caching, true);
}

#[test]
fn own_stream_needs_no_event() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    caching.record_stream(&a, OWN).expect("it belongs to this policy");
    caching.free(a).expect("it belongs to this policy");
    assert_eq!(caching.statistics().active.all.current, 0);
}

#[test]
fn block_waits_for_all_recorded_streams() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    let address = a.address();
    for stream in [OTHER, Stream(8), OTHER] {
        caching.record_stream(&a, stream).expect("it belongs to this policy");
    }
    caching.free(a).expect("it belongs to this policy");
    work.end(OTHER);
    let b = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_ne!(b.address(), address);
    work.end(Stream(8));
    let c = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_eq!(c.address(), address);
    assert_eq!(caching.statistics().active.all.current, 2);
}

/// PyTorch's `test_caching_allocator_record_stream_oom`.
#[test]
fn oom_waits_for_blocks_used_by_other_streams() {
    let (device, work) = (Device::new(100 * MIB), Work::default());
    let mut caching = sharing(&device, &work);
    for round in 0..100 {
        let block = caching.allocate(Bytes(40 * MIB), OWN);
        let block = block.unwrap_or_else(|error| panic!("round {round}: {error}"));
        caching.record_stream(&block, OTHER).expect("it belongs to this policy");
        caching.free(block).expect("it belongs to this policy");
    }
    assert!(work.waits() >= 48, "every other round waits");
    assert_eq!(caching.statistics().num_ooms, 0);
    check(&caching, true);
}

#[test]
fn empty_cache_waits_for_other_streams() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(30 * MIB), OWN).expect("1 GiB is free");
    caching.record_stream(&a, OTHER).expect("it belongs to this policy");
    caching.free(a).expect("it belongs to this policy");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(30 * MIB)));
    assert_eq!((work.waits(), device.model.used()), (1, Bytes(0)));
}

#[test]
fn unrecordable_event_defers_block_without_blocking_others() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let [a, b] = [(); 2].map(|()| caching.allocate(Bytes(512), OWN).expect("1 GiB is free"));
    let at = [a.address(), b.address()];
    for stream in [OTHER, Stream(9)] {
        caching.record_stream(&a, stream).expect("it belongs to this policy");
    }
    caching.record_stream(&b, OTHER).expect("it belongs to this policy");
    work.destroy(Stream(9));
    assert!(matches!(caching.free(a), Err(Failure::Device(_))));
    caching.free(b).expect("its stream is there");
    check(&caching, true);
    work.end(OTHER);
    let again = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_eq!(again.address(), at[1], "memory that stream 9 may use is not reused");
    assert_eq!(caching.statistics().active.all.current, 2);
    assert_eq!((caching.empty_cache().ok(), work.waits()), (Some(Bytes(0)), 1));
    let first = caching.allocate(Bytes(512), OWN).expect("it is cached");
    assert_eq!(first.address(), at[0], "the device had no work");
    check(&caching, true);
    caching.free(first).expect("nothing else uses it");
    caching.free(again).expect("nothing else uses it");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(2 * MIB)));
}

#[test]
fn oom_frees_block_with_unrecordable_event() {
    let (device, work) = (Device::new(100 * MIB), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(60 * MIB), OWN).expect("100 MiB are free");
    caching.record_stream(&a, OTHER).expect("it belongs to this policy");
    work.refuse(true);
    assert!(caching.free(a).is_err());
    assert!(caching.allocate(Bytes(80 * MIB), OWN).is_ok());
    check(&caching, true);
}

#[test]
fn captured_use_is_deferred_until_capture_ends() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let pool = PoolId(0, 1);
    let a = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    caching.begin_capture(pool, Some(OTHER)).expect("it is free");
    caching.record_stream(&a, OTHER).expect("it belongs to this policy");
    caching.free(a).expect("it belongs to this policy");
    let b = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_eq!(caching.statistics().active.all.current, 2, "no event is asked for in a capture");
    caching.end_capture(pool).expect("it is under way");
    let c = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert!(c.address() < b.address(), "the captured use is not waited for");
    check(&caching, true);
}

#[test]
fn captured_use_freed_after_capture_is_waited_for() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let pool = PoolId(0, 1);
    let a = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    let address = a.address();
    caching.begin_capture(pool, Some(OTHER)).expect("it is free");
    caching.record_stream(&a, OTHER).expect("it belongs to this policy");
    caching.end_capture(pool).expect("it is under way");
    caching.free(a).expect("it belongs to this policy");
    let b = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_ne!(b.address(), address);
    work.end(OTHER);
    let c = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_eq!(c.address(), address);
}

#[test]
fn empty_cache_has_no_effect_during_capture() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(30 * MIB), OWN).expect("1 GiB is free");
    let b = caching.allocate(Bytes(30 * MIB), OWN).expect("1 GiB is free");
    caching.record_stream(&a, OTHER).expect("it belongs to this policy");
    caching.free(a).expect("it belongs to this policy");
    caching.free(b).expect("it belongs to this policy");
    caching.begin_capture(PoolId(0, 1), Some(OTHER)).expect("it is free");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(0)));
    assert_eq!((work.waits(), device.model.used()), (0, Bytes(60 * MIB)));
    caching.end_capture(PoolId(0, 1)).expect("it is under way");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(60 * MIB)));
    assert_eq!(work.waits(), 1);
}

#[test]
fn retired_block_is_free_after_completion() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    let address = a.address();
    let retired = caching.retire(a).expect("it belongs to this policy");
    assert_eq!(caching.in_use(), Bytes(0));
    check(&caching, true);
    let b = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_ne!(b.address(), address);
    caching.complete(retired).expect("it belongs to this policy");
    let c = caching.allocate(Bytes(512), OWN).expect("1 GiB is free");
    assert_eq!(c.address(), address);
}

#[test]
fn completed_retired_block_is_not_freed_twice() {
    let (device, work) = (Device::new(1 << 30), Work::default());
    let mut caching = sharing(&device, &work);
    let a = caching.allocate(Bytes(30 * MIB), OWN).expect("1 GiB is free");
    let retired = caching.retire(a).expect("it belongs to this policy");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(30 * MIB)));
    let b = caching.allocate(Bytes(30 * MIB), OWN).expect("1 GiB is free");
    let again = caching.retire(b).expect("it belongs to this policy");
    caching.complete(retired).expect("that is known");
    assert_eq!(caching.statistics().active.all.current, 1, "the second still waits");
    caching.complete(again).expect("it belongs to this policy");
    assert_eq!(caching.statistics().active.all.current, 0);
    check(&caching, true);
}
