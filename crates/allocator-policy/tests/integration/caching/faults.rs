//! A device that fails at any call: memory does not leak, and the state stays consistent.

use crate::caching::device::{Device, MIB, caching};
use crate::caching::invariants::check;
use gpu_allocator_policy::{Policy, Stream};
use gpu_core::{Bytes, DeviceFault, ErrorKind};

/// Runs a job that exercises every call of the device, and returns the number of calls.
fn job(settings: &str, failing: Option<(usize, ErrorKind)>) -> usize {
    let ordinary = !settings.contains("expandable");
    let device = Device::new(256 * MIB);
    let mut calls = 0;
    {
        let mut caching = caching(&device, settings);
        if let Some((after, kind)) = failing {
            device.fail_after(after, kind);
        }
        let mut held = Vec::new();
        for round in 0u64..6 {
            for mib in [1, 15, 30, 60, 3, 45] {
                let size = Bytes(mib * MIB + round * 3 * MIB / 2);
                if let Ok(allocation) = caching.allocate(size, Stream(round % 2)) {
                    held.push(allocation);
                }
                check(&caching, ordinary);
                if held.len() > 4 {
                    let index = (round as usize + held.len()) % held.len();
                    caching.free(held.swap_remove(index)).expect("it belongs to this policy");
                    check(&caching, ordinary);
                }
            }
            if round % 3 == 2 {
                let _ = caching.empty_cache();
                check(&caching, ordinary);
            }
        }
        assert_eq!(device.model.used(), caching.reserved());
        for allocation in held {
            caching.free(allocation).expect("it belongs to this policy");
        }
        check(&caching, ordinary);
        let _ = caching.empty_cache();
        caching.empty_cache().expect("the fault is over");
        assert_eq!((caching.reserved(), device.model.used()), (Bytes(0), Bytes(0)));
        calls += device.calls().len();
        // This one is freed by the drop at the end.
        let _left = caching.allocate(Bytes(512), Stream(0));
    }
    assert_eq!(device.model.used(), Bytes(0));
    calls
}

#[test]
fn no_fault_leaks_memory_or_breaks_invariants() {
    for settings in [
        "",
        "max_split_size_mb:20",
        "expandable_segments:True",
        "garbage_collection_threshold:0.3,per_process_memory_fraction:0.9",
    ] {
        let calls = job(settings, None);
        assert!(calls > 20, "{calls} calls with '{settings}'");
        for kind in [DeviceFault::OutOfMemory, DeviceFault::Lost] {
            for after in 0..calls {
                job(settings, Some((after, kind.into())));
            }
        }
    }
}
