//! The contract of every adapter.

use super::driver::real_gpu;
use super::stand_in::{StandIn, device, on};
use gpu_allocator_policy::bfc::Settings;
use gpu_allocator_policy::{Bfc, ModelMemory, Policy, Stream};
use gpu_core::{Bytes, DeviceFault, DeviceId, DeviceMemory, ErrorKind, Region};
use gpu_cuda::{CudaMemory, CudaPool};
use gpu_sim::Simulation;

/// The precision of a device's figures.
#[derive(Clone, Copy, PartialEq)]
enum Figures {
    /// The device has no other users and counts bytes exactly as requested.
    Exact,
    /// The device has other users or rounds.
    Moving,
}

struct Contract<'a> {
    memory: &'a dyn DeviceMemory,
    name: &'a str,
    figures: Figures,
}

impl Contract<'_> {
    fn used(&self) -> Bytes {
        self.memory.info().unwrap().used.unwrap()
    }

    fn is_used(&self, used: Bytes, when: &str) {
        if self.figures == Figures::Exact {
            assert_eq!(self.used(), used, "{}: {when}", self.name);
        }
    }

    fn refused<T: std::fmt::Debug>(&self, done: gpu_core::Result<T>, kind: ErrorKind, what: &str) {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), kind, "{}: {what}: {}", self.name, error.fault());
    }

    fn check(&self) {
        self.keeps_regions();
        match self.memory.page() {
            Ok(page) => self.keeps_ranges(page),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", self.name);
                self.has_no_ranges();
            }
        }
    }

    fn keeps_regions(&self) {
        let (memory, name) = (self.memory, self.name);
        let info = memory.info().unwrap();
        let (used, total) = (info.used.unwrap(), info.total.unwrap());
        assert!(used <= total, "{name}");
        self.refused(memory.reserve(Bytes(0)), ErrorKind::Invalid, "no bytes");
        let more = memory.reserve(total + Bytes(1));
        self.refused(more, DeviceFault::OutOfMemory.into(), "more than there is");
        self.is_used(used, "nothing was taken");

        let sizes = [1, 256, 1000, 2 << 20, 5 << 20];
        let regions = sizes.map(|size| memory.reserve(Bytes(size)).unwrap());
        for (region, size) in regions.iter().zip(sizes) {
            assert!(region.address.is_multiple_of(256) && region.size.0 >= size, "{name}");
        }
        let mut ordered = regions;
        ordered.sort_by_key(|region| region.address);
        let apart = |pair: &[Region]| pair[0].address + pair[0].size.0 <= pair[1].address;
        assert!(ordered.windows(2).all(apart), "{name}: regions overlap");
        assert!(self.figures == Figures::Moving || self.used() > used, "{name}");

        let whole = regions[4];
        for (part, what) in [
            (Region { size: Bytes(1 << 20), ..whole }, "a part"),
            (Region { address: whole.address + 256, ..whole }, "an address inside"),
            (Region { address: 256, size: Bytes(256) }, "what was never given"),
        ] {
            self.refused(memory.release(part), ErrorKind::Invalid, what);
        }
        for region in regions {
            memory.release(region).unwrap();
            self.refused(memory.release(region), ErrorKind::Invalid, "given back before");
        }
        self.is_used(used, "all was given back");
    }

    fn keeps_ranges(&self, page: Bytes) {
        let memory = self.memory;
        let invalid = |done, what| self.refused(done, ErrorKind::Invalid, what);
        let (used, page) = (self.used(), page.0);
        assert!(page.is_power_of_two(), "{}", self.name);
        self.refused(memory.reserve_addresses(Bytes(0)), ErrorKind::Invalid, "no addresses");
        self.refused(memory.reserve_addresses(Bytes(page + 256)), ErrorKind::Invalid, "no pages");
        let range = memory.reserve_addresses(Bytes(8 * page)).unwrap();
        let other = memory.reserve_addresses(Bytes(page)).unwrap();
        assert!(range.address.is_multiple_of(page) && range.size.0 == 8 * page);
        let part = |first: u64, pages: u64| Region {
            address: range.address + first * page,
            size: Bytes(pages * page),
        };
        self.is_used(used, "addresses are no memory");
        invalid(memory.unmap(part(0, 1)), "nothing is mapped");
        invalid(memory.map(part(7, 2)), "it ends behind the range");
        invalid(memory.map(Region { address: page, size: Bytes(page) }), "unreserved address");
        invalid(memory.map(Region { size: Bytes(256), ..part(0, 1) }), "no whole page");
        invalid(memory.map(Region { address: range.address + 256, ..part(0, 1) }), "not at a page");
        invalid(memory.map(Region { size: Bytes(0), ..part(0, 1) }), "no page");

        memory.map(part(1, 4)).unwrap();
        self.is_used(used + Bytes(4 * page), "four pages have memory");
        invalid(memory.map(part(4, 2)), "one page has memory");
        invalid(memory.unmap(part(0, 2)), "one page has none");
        memory.unmap(part(2, 2)).unwrap();
        invalid(memory.unmap(part(3, 1)), "unmapped before");
        memory.map(part(3, 1)).unwrap();
        self.is_used(used + Bytes(3 * page), "pages come and go");
        invalid(memory.release(range), "it is no region");
        invalid(memory.release_addresses(part(0, 4)), "half a range");
        memory.release_addresses(range).unwrap();
        self.is_used(used, "its memory went with it");
        invalid(memory.release_addresses(range), "given back before");
        invalid(memory.map(part(0, 1)), "given back before");
        memory.release_addresses(other).unwrap();

        if self.figures == Figures::Exact {
            let total = memory.info().unwrap().total.unwrap().0 / page * page + page;
            let range = memory.reserve_addresses(Bytes(total)).unwrap();
            self.refused(memory.map(range), DeviceFault::OutOfMemory.into(), "more than there is");
            self.is_used(used, "what came of it went back");
            memory.map(Region { size: Bytes(page), ..range }).unwrap();
            memory.release_addresses(range).unwrap();
        }
    }

    fn has_no_ranges(&self) {
        let part = Region { address: 0, size: Bytes(2 << 20) };
        let refused = |done| self.refused(done, ErrorKind::Unsupported, "there is no such memory");
        refused(self.memory.reserve_addresses(part.size).map(drop));
        refused(self.memory.map(part));
        refused(self.memory.unmap(part));
        refused(self.memory.release_addresses(part));
    }
}

fn keeps_the_contract(memory: &dyn DeviceMemory, name: &str, figures: Figures) {
    Contract { memory, name, figures }.check();
}

/// Runs an allocator on a device, and checks that it releases everything.
fn serves_an_allocator(memory: std::sync::Arc<dyn DeviceMemory>, figures: Figures) {
    let used = || memory.info().unwrap().used.unwrap();
    let before = used();
    for adjacent_regions in [false, true] {
        let adjacent_regions = adjacent_regions && memory.page().is_ok();
        let limit = Some(Bytes::from_mib(32));
        let settings =
            Settings { limit, allow_growth: true, adjacent_regions, ..Settings::default() };
        let mut bfc = Bfc::new(std::sync::Arc::clone(&memory), settings).unwrap();
        let mut take = |size| bfc.allocate(Bytes(size), Stream(0)).unwrap();
        let kept = [100, 1 << 20, 3 << 20, 9 << 20].map(&mut take);
        let [_, second, ..] = kept;
        bfc.free(second).unwrap();
        drop(bfc);
        assert!(figures == Figures::Moving || used() == before);
    }
}

#[test]
fn model_memory_meets_contract() {
    let memory = std::sync::Arc::new(ModelMemory::new(Bytes::from_mib(64)));
    keeps_the_contract(&memory, "the model", Figures::Exact);
    serves_an_allocator(memory, Figures::Exact);
}

#[test]
fn simulated_memory_meets_contract() {
    for name in ["labbox", "driver-leak"] {
        let simulation = Simulation::embedded(name).unwrap();
        let memory = simulation.device_memory(&DeviceId::from_index(0)).unwrap();
        keeps_the_contract(&memory, name, Figures::Exact);
        serves_an_allocator(std::sync::Arc::new(memory), Figures::Exact);
    }
}

#[test]
fn cuda_memory_meets_contract() {
    on(StandIn::default(), "memory::contract::cuda_memory_meets_contract", || {
        let memory = CudaMemory::open(&device(0)).unwrap();
        assert_eq!(memory.page().unwrap(), Bytes::from_mib(2));
        keeps_the_contract(&memory, "the stand-in driver", Figures::Exact);
        serves_an_allocator(std::sync::Arc::new(memory), Figures::Exact);
    });
}

#[test]
fn cuda_memory_without_vmm_meets_contract() {
    let old = StandIn { defines: &["OLD"], ..StandIn::default() };
    on(old, "memory::contract::cuda_memory_without_vmm_meets_contract", || {
        let memory = CudaMemory::open(&device(0)).unwrap();
        assert!(memory.page().is_err());
        keeps_the_contract(&memory, "the old stand-in driver", Figures::Exact);
        serves_an_allocator(std::sync::Arc::new(memory), Figures::Exact);
    });
}

#[test]
fn cuda_pool_meets_contract() {
    on(StandIn::default(), "memory::contract::cuda_pool_meets_contract", || {
        let pool = CudaPool::open(&device(0)).unwrap();
        keeps_the_contract(&pool, "the stand-in driver's pool", Figures::Exact);
        serves_an_allocator(std::sync::Arc::new(pool), Figures::Exact);
    });
}

#[test]
fn real_gpu_memory_meets_contract() {
    let Some(memory) = real_gpu("real_gpu_memory_meets_contract") else { return };
    keeps_the_contract(&memory, "this machine's GPU", Figures::Moving);
    serves_an_allocator(std::sync::Arc::new(memory), Figures::Moving);
}
