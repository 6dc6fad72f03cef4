//! Private pools of CUDA graphs.

use crate::caching::device::{Device, MIB, caching, out_of_memory};
use crate::caching::invariants::check;
use gpu_allocator_policy::caching::{PoolError, PoolId};
use gpu_allocator_policy::{Policy, Stream};
use gpu_core::Bytes;

const POOL: PoolId = PoolId(0, 1);

#[test]
fn capture_allocates_from_private_pool() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let a = caching.allocate(Bytes(512), Stream(0)).expect("1 GiB is free");
    let address = a.address();
    caching.free(a).expect("it belongs to this policy");
    caching.begin_capture(POOL, Some(Stream(0))).expect("it is free");
    let captured = caching.allocate(Bytes(512), Stream(0)).expect("1 GiB is free");
    assert_ne!(captured.address(), address);
    let other = caching.allocate(Bytes(512), Stream(3)).expect("1 GiB is free");
    caching.end_capture(POOL).expect("it is under way");
    assert_eq!(caching.private_pools().collect::<Vec<_>>(), [(POOL, Bytes(2 * MIB))]);
    let after = caching.allocate(Bytes(512), Stream(0)).expect("it is cached");
    assert_eq!(after.address(), address);
    check(&caching, true);
    drop((captured, other));
}

#[test]
fn pool_keeps_memory_while_graph_uses_it() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    caching.begin_capture(POOL, None).expect("it is free");
    let a = caching.allocate(Bytes(30 * MIB), Stream(0)).expect("1 GiB is free");
    caching.end_capture(POOL).expect("it is under way");
    caching.begin_capture(POOL, None).expect("a second graph may share it");
    caching.end_capture(POOL).expect("it is under way");
    caching.free(a).expect("it belongs to this policy");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(0)));
    caching.release_pool(POOL).expect("two graphs use it");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(0)));
    caching.release_pool(POOL).expect("one graph uses it");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(30 * MIB)));
    assert_eq!(device.model.used(), Bytes(0));
}

#[test]
fn capture_does_not_empty_cache() {
    let device = Device::new(100 * MIB);
    let mut caching = caching(&device, "");
    let a = caching.allocate(Bytes(60 * MIB), Stream(0)).expect("100 MiB are free");
    caching.free(a).expect("it belongs to this policy");
    caching.begin_capture(POOL, None).expect("it is free");
    assert!(out_of_memory(caching.allocate(Bytes(60 * MIB), Stream(0))));
    assert_eq!(caching.statistics().num_alloc_retries, 0);
    caching.end_capture(POOL).expect("it is under way");
    assert!(caching.allocate(Bytes(80 * MIB), Stream(0)).is_ok());
}

#[test]
fn invalid_pool_operations_are_rejected() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "");
    let common = PoolId::default();
    assert_eq!(caching.begin_capture(common, None), Err(PoolError::Common));
    assert_eq!(caching.release_pool(common), Err(PoolError::Common));
    assert_eq!(caching.end_capture(POOL), Err(PoolError::Unused(POOL)));
    assert_eq!(caching.release_pool(POOL), Err(PoolError::Unused(POOL)));
    caching.begin_capture(POOL, None).expect("it is free");
    assert_eq!(caching.begin_capture(POOL, None), Err(PoolError::Busy(POOL)));
    let busy = PoolError::Busy(PoolId(3, 4)).to_string();
    assert_eq!(busy, "begin capture into pool (3, 4): already capturing");
}

#[test]
fn expandable_segments_serve_private_pools() {
    let device = Device::new(1 << 30);
    let mut caching = caching(&device, "expandable_segments:True");
    caching.begin_capture(POOL, None).expect("it is free");
    let a = caching.allocate(Bytes(30 * MIB), Stream(0)).expect("1 GiB is free");
    caching.end_capture(POOL).expect("it is under way");
    caching.free(a).expect("it belongs to this policy");
    caching.release_pool(POOL).expect("a graph uses it");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(40 * MIB)));
    assert_eq!(caching.private_pools().collect::<Vec<_>>(), [(POOL, Bytes(0))]);
    check(&caching, false);
}
