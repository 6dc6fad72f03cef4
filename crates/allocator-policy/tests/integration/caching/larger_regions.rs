//! A device that returns more than requested, and keeps a reserve.

use crate::caching::invariants::check;
use gpu_allocator_policy::caching::{Caching, Settings};
use gpu_allocator_policy::{Failure, ModelMemory, Policy, Stream};
use gpu_core::{Bytes, DeviceMemory, MemoryInfo, Region, Result};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

#[derive(Debug)]
struct Generous(Arc<ModelMemory>);

impl DeviceMemory for Generous {
    fn info(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { reserved: Ok(Bytes(5 * MIB)), ..self.0.info()? })
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        self.0.reserve(size + Bytes(4 * MIB))
    }

    fn release(&self, region: Region) -> Result<()> {
        self.0.release(region)
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        self.0.reserve_addresses(size + Bytes(4 * MIB))
    }

    fn map(&self, part: Region) -> Result<()> {
        self.0.map(part)
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.0.unmap(part)
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.0.release_addresses(range)
    }
}

fn caching(settings: &str) -> (Arc<ModelMemory>, Caching<Generous>) {
    let model = Arc::new(ModelMemory::new(Bytes(160 * MIB)));
    let settings: Settings = settings.parse().expect("they are settings");
    let caching = Caching::new(Generous(model.clone()), settings);
    (model, caching.expect("the device reports its memory"))
}

#[test]
fn larger_region_than_requested_is_used_and_released() {
    let (model, mut caching) = caching("");
    let a = caching.allocate(Bytes(30 * MIB), Stream(0)).expect("160 MiB are free");
    let b = caching.allocate(Bytes(4 * MIB), Stream(0)).expect("4 MiB are left over");
    assert_eq!((b.address(), caching.reserved()), (a.address() + 30 * MIB, Bytes(34 * MIB)));
    check(&caching, true);
    caching.free(a).expect("it belongs to this policy");
    caching.free(b).expect("it belongs to this policy");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(34 * MIB)));
    assert_eq!(model.used(), Bytes(0));
    let _left = caching.allocate(Bytes(512), Stream(0)).expect("160 MiB are free");
    drop(caching);
    assert_eq!(model.used(), Bytes(0));
}

#[test]
fn larger_range_than_requested_uses_whole_pages() {
    let (model, mut caching) = caching("expandable_segments:True");
    let all = caching.allocate(Bytes(160 * MIB), Stream(0)).expect("160 MiB are free");
    check(&caching, false);
    caching.free(all).expect("it belongs to this policy");
    assert_eq!(caching.empty_cache().ok(), Some(Bytes(160 * MIB)));
    assert_eq!((caching.usage().segments, model.used()), (0, Bytes(0)));
    let beyond = caching.allocate(Bytes(180 * MIB), Stream(0));
    assert!(matches!(beyond, Err(Failure::OutOfMemory(_))));
    check(&caching, false);
}

#[test]
fn memory_reserved_by_driver_is_not_free() {
    let (_, mut caching) = caching("");
    let _a = caching.allocate(Bytes(96 * MIB), Stream(0)).expect("160 MiB are free");
    let failure = caching.allocate(Bytes(60 * MIB), Stream(0)).expect_err("60 MiB are free");
    let Failure::OutOfMemory(shortage) = failure else { panic!("{failure}") };
    assert_eq!(shortage.device_free, Some(Bytes(55 * MIB)));
}
