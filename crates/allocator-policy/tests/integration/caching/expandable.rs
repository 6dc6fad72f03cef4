//! Expandable segments.

use crate::caching::device::{Call, Device, MIB, Work, caching, out_of_memory, set};
use crate::caching::invariants::check;
use gpu_allocator_policy::caching::{Caching, Settings};
use gpu_allocator_policy::{Policy, Stream};
use gpu_core::{Bytes, DeviceFault};

const STREAM: Stream = Stream(0);
const EXPANDABLE: &str = "expandable_segments:True";

#[test]
fn range_of_nine_eighths_grows_in_2_and_20_mib_pages() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let small = caching.allocate(Bytes(512), STREAM).expect("800 MiB are free");
    assert_eq!(device.calls(), [Call::ReserveAddresses(900 * MIB), Call::Map(2 * MIB)]);
    let large = caching.allocate(Bytes(30 * MIB), STREAM).expect("798 MiB are free");
    let pages = [Call::Map(20 * MIB), Call::Map(20 * MIB)];
    assert_eq!(device.calls()[..], [&[Call::ReserveAddresses(900 * MIB)], &pages[..]].concat());
    let next = caching.allocate(Bytes(15 * MIB), STREAM).expect("758 MiB are free");
    assert_eq!(device.calls(), [Call::Map(20 * MIB)]);
    assert_eq!(
        next.address(),
        large.address() + 30 * MIB,
        "it begins in the page that was left over"
    );
    assert_eq!(caching.reserved(), Bytes(62 * MIB));
    assert_eq!(device.model.used(), Bytes(62 * MIB));
    let statistics = caching.statistics();
    assert_eq!((statistics.segment.all.current, statistics.num_device_alloc), (0, 3));
    assert_eq!(statistics.inactive_split.all.allocated, 0);
    check(&caching, false);
    drop((small, caching));
    assert_eq!(device.calls(), [Call::ReleaseAddresses(900 * MIB); 2]);
    assert_eq!(device.model.used(), Bytes(0));
}

#[test]
fn each_stream_has_its_own_range() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(5 * MIB), Stream(1)).expect("800 MiB are free");
    let b = caching.allocate(Bytes(5 * MIB), Stream(2)).expect("780 MiB are free");
    assert_eq!(b.address() - a.address(), 900 * MIB);
    check(&caching, false);
}

#[test]
fn blocks_are_split_down_to_512_bytes() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(20 * MIB - 512), STREAM).expect("800 MiB are free");
    assert_eq!(a.size(), Bytes(20 * MIB - 512));
    check(&caching, false);
}

#[test]
fn free_pages_are_unmapped_and_refilled_first() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let mut take = |mib: u64| caching.allocate(Bytes(mib * MIB), STREAM).expect("it is free");
    let (a, b, c) = (take(10), take(70), take(20));
    let start = a.address();
    caching.free(b).expect("it belongs to this policy");
    device.calls();
    // The full pages between 10 and 80 MiB are those from 20 to 80.
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(60 * MIB)));
    assert_eq!(device.calls(), [Call::Unmap(20 * MIB); 3]);
    assert_eq!(caching.segments().len(), 2);
    check(&caching, false);
    let statistics = caching.statistics();
    assert_eq!(statistics.num_device_free, 1, "adjacent pages count once");

    let filled = caching.allocate(Bytes(25 * MIB), STREAM).expect("it is free");
    assert_eq!(filled.address(), start + 10 * MIB);
    assert_eq!(device.calls(), [Call::Map(20 * MIB)]);
    let above = caching.allocate(Bytes(60 * MIB), STREAM).expect("it is free");
    assert_eq!(above.address(), start + 100 * MIB, "the gap of 45 MiB is too short");
    check(&caching, false);
    drop(c);
}

#[test]
fn empty_range_is_released() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(30 * MIB), STREAM).expect("800 MiB are free");
    caching.free(a).expect("it belongs to this policy");
    device.calls();
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(40 * MIB)));
    let calls = device.calls();
    assert_eq!(calls.last(), Some(&Call::ReleaseAddresses(900 * MIB)));
    assert_eq!((caching.usage().segments, device.model.used()), (0, Bytes(0)));
    let _b = caching.allocate(Bytes(30 * MIB), STREAM).expect("800 MiB are free");
    check(&caching, false);
}

#[test]
fn oom_moves_pages_between_streams() {
    let device = Device::new(100 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(80 * MIB), Stream(1)).expect("100 MiB are free");
    caching.free(a).expect("it belongs to this policy");
    let _b = caching.allocate(Bytes(60 * MIB), Stream(2)).expect("pages of stream 1 go back");
    assert_eq!((caching.reserved(), device.model.used()), (Bytes(60 * MIB), Bytes(60 * MIB)));
    assert_eq!(caching.statistics().num_alloc_retries, 1);
    check(&caching, false);
}

#[test]
fn pages_mapped_by_failed_request_stay_consistent() {
    let device = Device::new(100 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(30 * MIB), STREAM).expect("100 MiB are free");
    assert!(out_of_memory(caching.allocate(Bytes(90 * MIB), STREAM)));
    assert_eq!(device.model.used(), Bytes(40 * MIB), "mapped pages are unmapped");
    check(&caching, false);
    caching.free(a).expect("it belongs to this policy");
    assert!(caching.allocate(Bytes(90 * MIB), STREAM).is_ok());
}

#[test]
fn pages_that_fail_to_unmap_stay_free() {
    let device = Device::new(100 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(20 * MIB), STREAM).expect("100 MiB are free");
    // 4 of 5 pages stay mapped: the fifth call fails, and so does the first undo.
    device.fail_after(5, DeviceFault::Lost);
    let failed = caching.allocate(Bytes(100 * MIB), STREAM);
    assert!(failed.is_err());
    check(&caching, false);
    assert_eq!(caching.reserved(), device.model.used());
    caching.free(a).expect("it belongs to this policy");
    caching.empty_cache().expect("the device accepts it");
    assert_eq!(device.model.used(), Bytes(0));
}

/// A block that can grow is ranked by the size to which it can grow.
#[test]
fn growable_end_block_is_used_last() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let mut take = |mib: u64| caching.allocate(Bytes(mib * MIB), STREAM).expect("it is free");
    let (a, b, c) = (take(15), take(10), take(5));
    let first = a.address();
    caching.free(a).expect("it belongs to this policy");
    // 15 MiB are free at the bottom and 10 MiB at the end, which is the smaller block.
    let d = caching.allocate(Bytes(10 * MIB), STREAM).expect("it is cached");
    assert_eq!(d.address(), first);
    check(&caching, false);
    drop((b, c));
}

#[test]
fn disabling_keeps_existing_ranges() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let a = caching.allocate(Bytes(40 * MIB), STREAM).expect("800 MiB are free");
    caching.free(a).expect("it belongs to this policy");
    set(&mut caching, "");
    device.calls();
    let b = caching.allocate(Bytes(30 * MIB), STREAM).expect("760 MiB are free");
    assert_eq!(device.calls(), [Call::Reserve(30 * MIB)]);
    caching.free(b).expect("it belongs to this policy");
    let _c = caching.allocate(Bytes(30 * MIB), STREAM).expect("it is cached");
    assert_eq!(device.calls(), []);
    check(&caching, false);
}

#[test]
fn pages_are_unmapped_after_stream_wait() {
    let (device, work) = (Device::new(800 * MIB), Work::default());
    let settings: Settings = EXPANDABLE.parse().expect("it is a setting");
    let mut caching = Caching::with_events(device.clone(), settings, work.clone())
        .expect("the device reports its memory");
    let a = caching.allocate(Bytes(40 * MIB), STREAM).expect("800 MiB are free");
    caching.free(a).expect("it belongs to this policy");
    work.refuse(true);
    assert!(caching.empty_cache().is_err());
    assert_eq!(device.model.used(), Bytes(40 * MIB), "memory in use is not taken away");
    work.refuse(false);
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(40 * MIB)));
    assert_eq!(work.waits(), 1);
}

#[test]
fn request_larger_than_range_reserves_no_addresses() {
    let device = Device::new(80 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    assert!(out_of_memory(caching.allocate(Bytes(110 * MIB), STREAM)));
    assert_eq!(device.calls(), []);
}

#[test]
fn lowest_of_equal_blocks_is_used() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, EXPANDABLE);
    let mut take = |mib: u64| caching.allocate(Bytes(mib * MIB), STREAM).expect("it is free");
    let (a, b, c, d) = (take(15), take(5), take(15), take(5));
    let lowest = a.address();
    caching.free(c).expect("it belongs to this policy");
    caching.free(a).expect("it belongs to this policy");
    let again = caching.allocate(Bytes(10 * MIB), STREAM).expect("it is cached");
    assert_eq!(again.address(), lowest);
    drop((b, d));
}

#[test]
fn drop_waits_for_all_work_before_unmapping() {
    for (settings, waits) in [("", 0), (EXPANDABLE, 1)] {
        let (device, work) = (Device::new(800 * MIB), Work::default());
        let settings: Settings = settings.parse().expect("they are settings");
        let mut caching = Caching::with_events(device.clone(), settings, work.clone())
            .expect("the device reports its memory");
        let _used = caching.allocate(Bytes(40 * MIB), STREAM).expect("800 MiB are free");
        drop(caching);
        assert_eq!((work.waits(), device.model.used()), (waits, Bytes(0)));
    }
}

#[test]
fn page_size_is_fixed_when_range_is_reserved() {
    let device = Device::new(800 * MIB);
    let mut caching = caching(&device, "expandable_segments:True,large_segment_size_mb:12");
    let a = caching.allocate(Bytes(30 * MIB), STREAM).expect("800 MiB are free");
    let taken = [Call::ReserveAddresses(900 * MIB), Call::Map(12 * MIB)];
    let page = taken[1];
    assert_eq!(device.calls(), [&taken[..], &[page; 2]].concat());
    set(&mut caching, "expandable_segments:True,large_segment_size_mb:64");
    let b = caching.allocate(Bytes(10 * MIB), STREAM).expect("764 MiB are free");
    assert_eq!(device.calls(), [page]);
    caching.free(a).expect("it belongs to this policy");
    caching.free(b).expect("it belongs to this policy");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(48 * MIB)));
    assert_eq!(device.calls()[..4], [Call::Unmap(12 * MIB); 4]);
    let _c = caching.allocate(Bytes(10 * MIB), STREAM).expect("800 MiB are free");
    assert_eq!(device.calls(), [Call::ReserveAddresses(960 * MIB), Call::Map(64 * MIB)]);
    check(&caching, false);
}
