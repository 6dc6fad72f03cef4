//! One device divided into several.

use crate::fixture::Faulty;
use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::{Bfc, Direct, Logical, ModelMemory, Policy, Stream};
use gpu_core::{Bytes, DeviceFault, DeviceMemory, ErrorKind, Region};
use std::sync::Arc;

fn mib(mib: u64) -> Bytes {
    Bytes::from_mib(mib)
}

fn refusal<T: std::fmt::Debug>(done: gpu_core::Result<T>) -> ErrorKind {
    done.expect_err("it is refused").kind()
}

#[test]
fn each_logical_device_has_its_limit() {
    let memory = Arc::new(ModelMemory::new(mib(64)));
    let parts = Logical::split(Arc::clone(&memory), &[mib(20), mib(40)]).expect("they fit");
    let [a, b] = &parts[..] else { panic!("{parts:?}") };
    let first = a.reserve(mib(16)).expect("20 MiB are free");
    assert_eq!(refusal(a.reserve(mib(6))), DeviceFault::OutOfMemory.into());
    let second = b.reserve(mib(40)).expect("40 MiB are free");
    assert_eq!((a.taken(), b.taken(), memory.used()), (mib(16), mib(40), mib(56)));
    let info = a.info().expect("the device answers");
    assert_eq!((info.total, info.used), (Ok(mib(20)), Ok(mib(16))));
    assert_eq!(refusal(a.release(second)), ErrorKind::Invalid);
    a.release(first).expect("it belongs to this part");
    b.release(second).expect("it belongs to this part");
    assert_eq!(refusal(b.release(second)), ErrorKind::Invalid);
    assert_eq!((a.taken(), b.taken(), memory.used()), (mib(0), mib(0), mib(0)));
}

#[test]
fn memory_used_by_others_is_not_free() {
    let memory = Arc::new(ModelMemory::new(mib(64)));
    let parts = Logical::split(Arc::clone(&memory), &[mib(40)]).expect("they fit");
    let _other = memory.reserve(mib(30)).expect("64 MiB are free");
    let info = parts[0].info().expect("the device answers");
    assert_eq!((info.total, info.used), (Ok(mib(40)), Ok(mib(6))));
    assert_eq!(refusal(parts[0].reserve(mib(36))), DeviceFault::OutOfMemory.into());
    assert_eq!(parts[0].taken(), mib(0));
}

#[test]
fn limits_exceeding_device_are_rejected() {
    let split = |limits: &[Bytes]| Logical::split(ModelMemory::new(mib(64)), limits);
    assert!(split(&[mib(32), mib(32)]).is_ok());
    let error = split(&[mib(32), mib(33)]).expect_err("there are 64 MiB");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(split(&[Bytes(u64::MAX), Bytes(u64::MAX)]).is_err());
}

#[test]
fn mapped_pages_count_but_reserved_addresses_do_not() {
    let memory = Arc::new(ModelMemory::new(mib(64)));
    let parts = Logical::split(Arc::clone(&memory), &[mib(8), mib(8)]).expect("they fit");
    let page = parts[0].page().expect("it has pages").0;
    let range = parts[0].reserve_addresses(mib(64)).expect("addresses are free");
    let part = |first: u64, pages: u64| Region {
        address: range.address + first * page,
        size: Bytes(pages * page),
    };
    parts[0].map(part(0, 3)).expect("8 MiB are free");
    assert_eq!(refusal(parts[0].map(part(3, 2))), DeviceFault::OutOfMemory.into());
    assert_eq!(refusal(parts[1].map(part(3, 1))), ErrorKind::Invalid);
    assert_eq!(refusal(parts[1].unmap(part(0, 1))), ErrorKind::Invalid);
    assert_eq!(refusal(parts[1].release_addresses(range)), ErrorKind::Invalid);
    parts[0].unmap(part(1, 1)).expect("it is mapped");
    assert_eq!((parts[0].taken(), memory.used()), (mib(4), mib(4)));
    parts[0].release_addresses(range).expect("it belongs to this part");
    assert_eq!((parts[0].taken(), memory.used()), (mib(0), mib(0)));
}

#[test]
fn allocators_on_logical_devices_are_independent() {
    let memory = Arc::new(ModelMemory::new(mib(64)));
    let mut parts = Logical::split(Arc::clone(&memory), &[mib(32), mib(24)]).expect("they fit");
    let mut direct = Direct::new(parts.remove(1));
    let settings = Settings { limit: Some(mib(32)), ..Settings::default() };
    let mut bfc = Bfc::new(parts.remove(0), settings).expect("a limit is set");
    let all = bfc.allocate(mib(32), Stream(0)).expect("its part is free");
    assert!(direct.allocate(mib(25), Stream(0)).is_err());
    let other = direct.allocate(mib(24), Stream(0)).expect("its part is free");
    assert_eq!(memory.used(), mib(56));
    bfc.free(all).expect("it belongs to this allocator");
    direct.free(other).expect("it belongs to this policy");
    drop((bfc, direct));
    assert_eq!(memory.used(), mib(0));
}

#[test]
fn failed_reserve_is_not_charged() {
    let memory = Faulty::new(mib(64));
    let parts = Logical::split(Arc::clone(&memory), &[mib(32)]).expect("they fit");
    memory.fail(1, DeviceFault::Lost);
    assert_eq!(refusal(parts[0].reserve(mib(2))), DeviceFault::Lost.into());
    let region = parts[0].reserve(mib(2)).expect("64 MiB are free");
    memory.fail(1, DeviceFault::Lost);
    assert_eq!(refusal(parts[0].release(region)), DeviceFault::Lost.into());
    assert_eq!(parts[0].taken(), mib(2));
    parts[0].release(region).expect("it was not given back");
    assert_eq!(*memory.asked.lock().unwrap(), [2 << 20, 2 << 20]);
}
