//! Memory directly from the device.

use crate::fixture::Faulty;
use gpu_allocator_policy::{Allocation, Direct, Failure, ModelMemory, Policy, Stream};
use gpu_core::{Bytes, DeviceFault};
use std::sync::Arc;

fn take(direct: &mut impl Policy, size: u64) -> Allocation {
    direct.allocate(Bytes(size), Stream(0)).expect("memory suffices")
}

#[test]
fn allocations_are_charged_in_driver_granularity() {
    let mut direct = Direct::new(ModelMemory::new(Bytes::from_mib(64)));
    let sizes = [0, 1, 512, 513, (1 << 20) - 1, 1 << 20, (2 << 20) + 1];
    let charged: Vec<_> = sizes.map(|size| take(&mut direct, size).size().0).into();
    assert_eq!(charged, [512, 512, 512, 1024, 2 << 20, 2 << 20, 4 << 20]);
    assert_eq!(direct.in_use().0, charged.iter().sum::<u64>());
    assert_eq!(direct.reserved(), direct.in_use());
    assert_eq!(direct.usage().device_allocations, 7);
}

#[test]
fn freed_memory_is_not_cached() {
    let mut direct = Direct::new(ModelMemory::new(Bytes::from_mib(4)));
    let first = take(&mut direct, 3 << 20);
    let refused = direct.allocate(Bytes(1), Stream(0)).expect_err("4 MiB are taken");
    let Failure::OutOfMemory(shortage) = refused else { panic!("{refused}") };
    assert_eq!((shortage.device_free, shortage.cached()), (Some(Bytes(0)), Bytes(0)));
    direct.free(first).expect("it belongs to this policy");
    assert_eq!((direct.memory().used(), direct.usage().segments), (Bytes(0), 0));
    let huge = direct.allocate(Bytes(u64::MAX), Stream(0));
    assert!(matches!(huge, Err(Failure::OutOfMemory(_))));
}

#[test]
fn retired_memory_is_released_on_completion() {
    let mut direct = Direct::new(ModelMemory::new(Bytes::from_mib(4)));
    let first = take(&mut direct, 4 << 20);
    let retired = direct.retire(first).expect("it belongs to this policy");
    assert_eq!((direct.in_use(), direct.memory().used()), (Bytes(0), Bytes::from_mib(4)));
    assert_eq!(direct.empty_cache().ok(), Some(Bytes(0)));
    direct.complete(retired).expect("it belongs to this policy");
    assert_eq!(direct.memory().used(), Bytes(0));
}

#[test]
fn failed_release_is_retried() {
    let memory = Faulty::new(Bytes::from_mib(64));
    let mut direct = Direct::new(Arc::clone(&memory));
    let (a, b) = (take(&mut direct, 1 << 20), take(&mut direct, 1 << 20));
    memory.fail(1, DeviceFault::InUse);
    assert!(matches!(direct.free(a), Err(Failure::Device(_))));
    assert_eq!((direct.in_use(), direct.reserved()), (Bytes(2 << 20), Bytes(4 << 20)));
    assert_eq!(direct.usage().largest_free, Bytes(2 << 20));
    assert_eq!(direct.empty_cache().ok(), Some(Bytes(2 << 20)));
    memory.fail(1, DeviceFault::InUse);
    assert!(matches!(direct.free(b), Err(Failure::Device(_))));
    drop(direct);
    assert_eq!(memory.model.used(), Bytes(0));
}

#[test]
fn foreign_allocation_is_rejected() {
    let mut one = Direct::new(ModelMemory::new(Bytes::from_mib(4)));
    let mut other = Direct::new(ModelMemory::new(Bytes::from_mib(4)));
    let (a, _b) = (take(&mut one, 1), take(&mut other, 1));
    assert!(matches!(other.free(a), Err(Failure::Foreign { .. })));
    assert_eq!((one.in_use(), other.in_use()), (Bytes(512), Bytes(512)));
}
