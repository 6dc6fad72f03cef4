//! Memory on a driver with one failing call.

use crate::stand_in::{StandIn, device, failing, failing_code, on, on_each};
use gpu_core::{Bytes, DeviceFault, DeviceMemory, ErrorKind, Region};
use gpu_cuda::CudaMemory;

/// The stand-in aborts if its context is destroyed while memory is allocated.
#[test]
fn drop_releases_remaining_memory() {
    on(StandIn::default(), "failures::drop_releases_remaining_memory", || {
        let memory = CudaMemory::open(&device(0)).unwrap();
        memory.reserve(Bytes(1000)).unwrap();
        let range = memory.reserve_addresses(Bytes(8 << 20)).unwrap();
        memory.map(Region { size: Bytes(4 << 20), ..range }).unwrap();
        memory.unmap(Region { size: Bytes(2 << 20), ..range }).unwrap();
        drop(memory);
        let again = CudaMemory::open(&device(0)).unwrap();
        assert_eq!(again.info().unwrap().used, Ok(Bytes(0)));
    });
}

#[test]
fn misuse_of_memory_is_rejected_without_effect() {
    on(StandIn::default(), "failures::misuse_of_memory_is_rejected_without_effect", || {
        let memory = CudaMemory::open(&device(0)).unwrap();
        let page = memory.page().unwrap().0;
        let at = |address, pages: u64| Region { address, size: Bytes(pages * page) };
        let region = memory.reserve(Bytes(page)).unwrap();
        let range = memory.reserve_addresses(Bytes(4 * page)).unwrap();
        let second = range.address + page;
        memory.map(at(second, 2)).unwrap();
        let before = memory.info().unwrap();
        assert_eq!(before.used, Ok(Bytes(3 * page)));
        for (what, result) in [
            ("no memory", memory.reserve(Bytes(0)).map(drop)),
            ("no addresses", memory.reserve_addresses(Bytes(0)).map(drop)),
            ("half a page of addresses", memory.reserve_addresses(Bytes(page / 2)).map(drop)),
            ("region of another size", memory.release(Region { size: Bytes(1), ..region })),
            ("no region", memory.release(at(region.address + page, 1))),
            ("no pages", memory.map(at(range.address, 0))),
            ("half a page", memory.map(Region { size: Bytes(page / 2), ..range })),
            ("between pages", memory.map(at(range.address + page / 2, 1))),
            ("before the range", memory.map(at(range.address - page, 1))),
            ("beyond the range", memory.map(at(range.address + 3 * page, 2))),
            ("mapped before", memory.map(at(range.address, 2))),
            ("not mapped", memory.unmap(at(range.address, 1))),
            ("partly mapped", memory.unmap(at(second, 3))),
            ("none of it", memory.unmap(at(second, 0))),
            ("range of another size", memory.release_addresses(at(range.address, 3))),
            ("inside a range", memory.release_addresses(at(second, 3))),
        ] {
            assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::Invalid), "{what}");
        }
        assert_eq!(memory.info().unwrap(), before);
        memory.map(at(range.address + 3 * page, 1)).unwrap();
        memory.map(at(range.address, 1)).unwrap();
        assert_eq!(memory.info().unwrap().used, Ok(Bytes(5 * page)), "every page of the range");
        memory.unmap(range).unwrap();
        assert_eq!(memory.info().unwrap().used, Ok(Bytes(page)));
        memory.release_addresses(range).unwrap();
        memory.release(region).unwrap();
    });
}

/// Each function fails in turn, in a separate process.
#[test]
fn failed_driver_call_has_no_effect_and_is_reported() {
    let name = "failures::failed_driver_call_has_no_effect_and_is_reported";
    let calls = [
        "cuMemAlloc_v2 1 700",
        "cuMemAlloc_v2 1 2",
        "cuMemFree_v2 1 700",
        "cuMemGetInfo_v2 2 700",
        "cuMemAddressReserve 1 2",
        "cuMemCreate 2 2",
        "cuMemCreate 1 801",
        "cuMemRelease 1 700",
        "cuMemRelease 3 2",
        "cuMemMap 2 700",
        "cuMemMap 1 1",
        "cuMemSetAccess 1 700",
        "cuMemUnmap 1 700",
        "cuMemAddressFree 1 700",
    ];
    on_each(&failing(calls), name, fail_once);
}

fn fail_once() {
    let memory = CudaMemory::open(&device(0)).unwrap();
    let used = |memory: &CudaMemory| memory.info().map(|info| info.used.unwrap());
    assert_eq!(used(&memory).unwrap(), Bytes(0));
    let mut failures = Vec::new();
    let region = again(&mut failures, || memory.reserve(Bytes(1 << 20)));
    again(&mut failures, || used(&memory));
    let range = again(&mut failures, || memory.reserve_addresses(Bytes(8 << 20)));
    let part = Region { size: Bytes(6 << 20), ..range };
    let before = used(&memory).unwrap();
    again(&mut failures, || {
        memory.map(part).inspect_err(|_| assert_eq!(used(&memory).unwrap(), before))
    });
    again(&mut failures, || memory.unmap(Region { size: Bytes(2 << 20), ..part }));
    again(&mut failures, || memory.release_addresses(range));
    again(&mut failures, || memory.release(region));
    assert_eq!(used(&memory).unwrap(), Bytes(0));

    let kind = match failing_code() {
        1 => ErrorKind::Invalid,
        2 => DeviceFault::OutOfMemory.into(),
        801 => ErrorKind::Unsupported,
        code => DeviceFault::Unknown(code).into(),
    };
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(failure.kind(), kind);
    assert!(failure.fault().text.ends_with(&format!("CUDA error {}", failing_code())));
}

/// Retries once: the second attempt succeeds.
fn again<T>(failures: &mut Vec<gpu_core::Error>, work: impl Fn() -> gpu_core::Result<T>) -> T {
    work().unwrap_or_else(|error| {
        failures.push(error);
        work().unwrap()
    })
}
