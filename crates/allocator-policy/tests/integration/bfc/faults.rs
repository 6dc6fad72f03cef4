//! A failing device.

use crate::fixture::Faulty;
use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::{Bfc, Failure, Policy, Stream};
use gpu_core::{Bytes, DeviceFault};
use std::sync::Arc;

fn growing(limit: u64) -> Settings {
    Settings { limit: Some(Bytes(limit)), allow_growth: true, ..Settings::default() }
}

#[test]
fn lost_device_is_not_reported_as_out_of_memory() {
    let memory = Faulty::new(Bytes::from_mib(64));
    let mut bfc = Bfc::new(Arc::clone(&memory), growing(64 << 20)).expect("a limit is set");
    memory.fail(1, DeviceFault::Lost);
    let failure = bfc.allocate(Bytes(1), Stream(0)).expect_err("the device is lost");
    assert!(matches!(failure, Failure::Device(error) if error.kind() == DeviceFault::Lost.into()));
    assert_eq!(memory.asked.lock().unwrap().len(), 1, "it does not back off");
    assert_eq!((bfc.usage().out_of_memory, bfc.usage().segments), (0, 0));
    assert!(bfc.allocate(Bytes(1), Stream(0)).is_ok());
}

#[test]
fn default_limit_fails_if_device_query_fails() {
    let memory = Faulty::new(Bytes::from_mib(64));
    memory.fail(1, DeviceFault::Lost);
    let unlimited = Settings::default();
    assert!(matches!(Bfc::new(Arc::clone(&memory), unlimited), Err(Failure::Device(_))));
}

#[test]
fn failed_region_release_keeps_only_that_region() {
    for adjacent_regions in [false, true] {
        let memory = Faulty::new(Bytes::from_mib(64));
        let settings = Settings { adjacent_regions, ..growing(64 << 20) };
        let mut bfc = Bfc::new(Arc::clone(&memory), settings).expect("a limit is set");
        // A gap between regions keeps adjacent regions apart.
        let taken = [2, 4, 8].map(|mib| bfc.allocate(Bytes(mib << 20), Stream(0)));
        for chunk in taken {
            bfc.free(chunk.expect("64 MiB are free")).expect("it belongs to this allocator");
        }
        memory.fail(1, DeviceFault::InUse);
        assert!(matches!(bfc.empty_cache(), Err(Failure::Device(_))));
        let kept = if adjacent_regions { 14 } else { 2 };
        assert_eq!(bfc.usage().reserved, Bytes::from_mib(kept));
        assert_eq!(memory.model.used(), Bytes::from_mib(kept));
        assert!(bfc.allocate(Bytes(2 << 20), Stream(0)).is_ok());
        drop(bfc);
        assert_eq!(memory.model.used(), Bytes(0));
    }
}

#[test]
fn adjacent_regions_require_virtual_memory() {
    /// A device with only the required methods of the port.
    struct Plain(Arc<Faulty>);
    impl gpu_core::DeviceMemory for Plain {
        fn info(&self) -> gpu_core::Result<gpu_core::MemoryInfo> {
            self.0.info()
        }
        fn reserve(&self, size: Bytes) -> gpu_core::Result<gpu_core::Region> {
            self.0.reserve(size)
        }
        fn release(&self, region: gpu_core::Region) -> gpu_core::Result<()> {
            self.0.release(region)
        }
    }
    let settings = Settings { adjacent_regions: true, ..growing(64 << 20) };
    let plain = Plain(Faulty::new(Bytes::from_mib(64)));
    let mut bfc = Bfc::new(plain, settings).expect("a limit is set");
    assert!(matches!(bfc.allocate(Bytes(1), Stream(0)), Err(Failure::Device(_))));
}

#[test]
fn zero_page_size_is_rejected() {
    /// A device without virtual memory.
    struct Pageless(Arc<Faulty>);
    impl gpu_core::DeviceMemory for Pageless {
        fn info(&self) -> gpu_core::Result<gpu_core::MemoryInfo> {
            self.0.info()
        }
        fn reserve(&self, size: Bytes) -> gpu_core::Result<gpu_core::Region> {
            self.0.reserve(size)
        }
        fn release(&self, region: gpu_core::Region) -> gpu_core::Result<()> {
            self.0.release(region)
        }
        fn page(&self) -> gpu_core::Result<Bytes> {
            Ok(Bytes(0))
        }
    }
    let settings = Settings { adjacent_regions: true, ..growing(64 << 20) };
    let pageless = Pageless(Faulty::new(Bytes::from_mib(64)));
    let mut bfc = Bfc::new(pageless, settings).expect("a limit is set");
    let failure = bfc.allocate(Bytes(1), Stream(0)).expect_err("there are no pages");
    assert_eq!(failure.to_string(), "query the page size");
}
