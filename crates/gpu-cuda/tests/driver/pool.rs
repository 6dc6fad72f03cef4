//! Memory of the driver's pool, and cudarc's streams and events on an opened context.

use crate::stand_in::{StandIn, device, failing, failing_code, log, on, on_each};
use gpu_core::{Bytes, DeviceFault, DeviceMemory, ErrorKind, Region};
use gpu_cuda::CudaPool;

/// The stand-in aborts if its context is destroyed while memory is allocated.
#[test]
fn drop_returns_regions_of_the_pool() {
    on(StandIn::default(), "pool::drop_returns_regions_of_the_pool", || {
        let pool = CudaPool::open(&device(0)).unwrap();
        let kept = pool.reserve(Bytes(1000)).unwrap();
        let freed = pool.reserve(Bytes(4096)).unwrap();
        assert_ne!(kept.address, freed.address);
        pool.release(freed).unwrap();
        assert_eq!(pool.info().unwrap().used, Ok(Bytes(1000)));
        drop(pool);
        assert_eq!(log(), ["retain 7", "stream 1", "no stream 1", "release 7"]);
    });
}

#[test]
fn misuse_of_pool_is_rejected_without_effect() {
    on(StandIn::default(), "pool::misuse_of_pool_is_rejected_without_effect", || {
        let pool = CudaPool::open(&device(0)).unwrap();
        let region = pool.reserve(Bytes(1 << 20)).unwrap();
        let before = pool.info().unwrap();
        for (result, kind) in [
            (pool.reserve(Bytes(0)).map(drop), ErrorKind::Invalid),
            (pool.release(Region { size: Bytes(1), ..region }), ErrorKind::Invalid),
            (pool.release(Region { address: 1, ..region }), ErrorKind::Invalid),
            (pool.page().map(drop), ErrorKind::Unsupported),
            (pool.reserve_addresses(Bytes(2 << 20)).map(drop), ErrorKind::Unsupported),
            (pool.map(region), ErrorKind::Unsupported),
            (pool.unmap(region), ErrorKind::Unsupported),
            (pool.release_addresses(region), ErrorKind::Unsupported),
        ] {
            assert_eq!(result.unwrap_err().kind(), kind);
        }
        assert_eq!(pool.info().unwrap(), before);
        assert_eq!(before.used, Ok(Bytes(1 << 20)));
        pool.release(region).unwrap();
        assert_eq!(pool.release(region).unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn failed_pool_call_has_no_effect_and_is_reported() {
    let name = "pool::failed_pool_call_has_no_effect_and_is_reported";
    on_each(&failing(["cuMemAllocAsync 1 2", "cuStreamSynchronize 1 700"]), name, || {
        let pool = CudaPool::open(&device(0)).unwrap();
        let error = pool.reserve(Bytes(1 << 20)).unwrap_err();
        let kind = match failing_code() {
            2 => DeviceFault::OutOfMemory,
            code => DeviceFault::Unknown(code),
        };
        assert_eq!(error.kind(), kind.into());
        assert_eq!(pool.info().unwrap().used, Ok(Bytes(0)));
        let region = pool.reserve(Bytes(1 << 20)).unwrap();
        pool.release(region).unwrap();
    });
}

#[test]
fn opened_context_has_streams_and_events() {
    on(StandIn::default(), "pool::opened_context_has_streams_and_events", || {
        let context = gpu_cuda::open(&device(1)).unwrap();
        assert_eq!(context.ordinal(), 1);
        let stream = context.new_stream().unwrap();
        let [begin, end] = [(); 2].map(|()| stream.record_event(None).unwrap());
        assert!(begin.is_complete());
        assert_eq!(begin.elapsed_ms(&end), Ok(0.5));
        drop((begin, end, stream, context));
        let log = log();
        assert_eq!(log[..2], ["retain 8", "stream 1"]);
        assert_eq!(log.last().unwrap(), "release 8");
    });
}
