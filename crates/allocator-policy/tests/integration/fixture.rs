//! A device that fails on demand, and a naive model of the allocations of any policy.

use gpu_allocator_policy::{Allocation, BlockState, Failure, ModelMemory, Policy, Retired, Stream};
use gpu_core::{Bytes, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A modelled device that records its requests and fails at the `n`th call.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) model: ModelMemory,
    pub(crate) asked: Mutex<Vec<u64>>,
    calls: AtomicU64,
    failing: AtomicU64,
    kind: Mutex<ErrorKind>,
}

impl Faulty {
    pub(crate) fn new(total: Bytes) -> Arc<Self> {
        Arc::new(Faulty {
            model: ModelMemory::new(total),
            asked: Mutex::default(),
            calls: AtomicU64::new(0),
            failing: AtomicU64::new(0),
            kind: Mutex::new(ErrorKind::Unsupported),
        })
    }

    /// Makes the `nth` call from now on fail, once.
    pub(crate) fn fail(&self, nth: u64, kind: impl Into<ErrorKind>) {
        *self.kind.lock().unwrap() = kind.into();
        self.failing.store(self.calls.load(Ordering::SeqCst) + nth, Ordering::SeqCst);
    }

    fn enter(&self) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if call == self.failing.load(Ordering::SeqCst) {
            return Err(Error::new(*self.kind.lock().unwrap(), "call the device"));
        }
        Ok(())
    }
}

impl DeviceMemory for Faulty {
    fn info(&self) -> Result<MemoryInfo> {
        self.enter()?;
        self.model.info()
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        self.asked.lock().unwrap().push(size.0);
        self.enter()?;
        self.model.reserve(size)
    }

    fn release(&self, region: Region) -> Result<()> {
        self.enter()?;
        self.model.release(region)
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        self.enter()?;
        self.model.reserve_addresses(size)
    }

    fn map(&self, part: Region) -> Result<()> {
        self.asked.lock().unwrap().push(part.size.0);
        self.enter()?;
        self.model.map(part)
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.enter()?;
        self.model.unmap(part)
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.enter()?;
        self.model.release_addresses(range)
    }

    fn page(&self) -> Result<Bytes> {
        self.model.page()
    }
}

/// An operation on a policy.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Allocate(u64, u64),
    /// The nth live allocation, modulo their number.
    Free(usize),
    Retire(usize),
    Complete(usize),
    EmptyCache,
}

pub(crate) fn steps(largest: u64) -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        3 => 0..=2048u64,
        3 => 1..=largest / 16,
        1 => 1..=largest,
    ];
    let step = prop_oneof![
        8 => (size, 0..3u64).prop_map(|(size, stream)| Step::Allocate(size, stream)),
        6 => (0..1000usize).prop_map(Step::Free),
        2 => (0..1000usize).prop_map(Step::Retire),
        2 => (0..1000usize).prop_map(Step::Complete),
        1 => Just(Step::EmptyCache),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Runs a policy alongside a list of its allocations, and compares them at each step.
pub(crate) struct Model<P> {
    pub(crate) policy: P,
    pub(crate) live: Vec<(Allocation, u64)>,
    pub(crate) retired: Vec<(Retired, u64)>,
    pub(crate) peak_in_use: u64,
    pub(crate) peak_reserved: u64,
    /// The device may refuse.
    pub(crate) may_fail: bool,
}

impl<P: Policy> Model<P> {
    pub(crate) fn new(policy: P) -> Self {
        let (live, retired) = (Vec::new(), Vec::new());
        Model { policy, live, retired, peak_in_use: 0, peak_reserved: 0, may_fail: false }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        let done = match *step {
            Step::Allocate(size, stream) => {
                self.policy.allocate(Bytes(size), Stream(stream)).map(|allocation| {
                    assert!(allocation.size().0 >= size, "{size} bytes were asked for");
                    assert!(allocation.address().is_multiple_of(256), "it is aligned");
                    self.live.push((allocation, size));
                })
            }
            Step::Free(nth) if !self.live.is_empty() => {
                let (allocation, _) = self.live.swap_remove(nth % self.live.len());
                self.policy.free(allocation)
            }
            Step::Retire(nth) if !self.live.is_empty() => {
                let (allocation, _) = self.live.swap_remove(nth % self.live.len());
                let size = allocation.size().0;
                self.policy.retire(allocation).map(|retired| self.retired.push((retired, size)))
            }
            Step::Complete(nth) if !self.retired.is_empty() => {
                let (retired, _) = self.retired.swap_remove(nth % self.retired.len());
                self.policy.complete(retired)
            }
            Step::EmptyCache => self.policy.empty_cache().map(|given| {
                assert!(given.0 <= self.peak_reserved, "{given} were given back");
            }),
            _ => Ok(()),
        };
        match done {
            Ok(()) => {}
            Err(Failure::OutOfMemory(shortage)) => {
                assert_eq!(shortage.reserved, self.policy.usage().reserved);
            }
            Err(Failure::Device(_)) if self.may_fail => {}
            Err(failure) => panic!("{step:?}: {failure}"),
        }
        self.compare();
    }

    /// Compares the policy's state with the operations, and its sums with its segments.
    pub(crate) fn compare(&mut self) {
        let usage = self.policy.usage();
        let (mut reserved, mut in_use, mut requested) = (0, 0, 0);
        let (mut largest, mut allocations, mut end) = (0, 0, 0);
        let mut active = BTreeMap::new();
        let mut awaiting = BTreeMap::new();
        let segments = self.policy.segments();
        for segment in &segments {
            assert!(segment.address >= end, "segments overlap");
            end = segment.address + segment.size.0;
            let mut at = segment.address;
            for block in &segment.blocks {
                assert_eq!(block.address, at, "blocks leave no gap");
                at += block.size.0;
                match block.state {
                    BlockState::Active => {
                        in_use += block.size.0;
                        requested += block.requested.0;
                        allocations += 1;
                        active.insert(block.address, (block.size.0, block.requested.0));
                    }
                    BlockState::AwaitingFree => {
                        awaiting.insert(block.address, block.size.0);
                        largest = largest.max(block.size.0);
                    }
                    BlockState::Free => largest = largest.max(block.size.0),
                }
            }
            assert_eq!(at, end, "blocks fill their segment");
            reserved += segment.size.0;
        }
        let live = self.live.iter();
        let live = live.map(|(live, asked)| (live.address(), (live.size().0, *asked)));
        assert_eq!(active, live.collect(), "the request gets what it asked for");
        for (retired, size) in &self.retired {
            let (address, length) =
                awaiting.range(..=retired.address()).next_back().expect("it waits");
            assert!(retired.address() + size <= address + length, "it waits");
        }
        self.peak_in_use = self.peak_in_use.max(in_use);
        self.peak_reserved = self.peak_reserved.max(reserved);
        assert_eq!(usage.reserved.0, reserved);
        assert_eq!(usage.in_use.0, in_use);
        assert_eq!((self.policy.in_use(), self.policy.reserved()), (usage.in_use, usage.reserved));
        assert_eq!(usage.requested.0, requested);
        assert_eq!(usage.allocations, allocations);
        assert_eq!(usage.segments, segments.len() as u64);
        assert_eq!(usage.largest_free.0, largest);
        assert_eq!(usage.peak_in_use.0, self.peak_in_use);
        assert!(usage.peak_reserved.0 >= self.peak_reserved);
        self.peak_reserved = usage.peak_reserved.0;
    }

    /// Frees all live allocations, in an order that depends on `order`.
    pub(crate) fn free_all(&mut self, mut order: u64) {
        while !self.retired.is_empty() {
            self.step(&Step::Complete(order as usize));
        }
        while !self.live.is_empty() {
            order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.step(&Step::Free((order >> 33) as usize));
        }
    }
}

/// Returns the free intervals of each segment.
pub(crate) fn free_space(policy: &impl Policy) -> Vec<(u64, u64)> {
    let segments = policy.segments();
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let free = blocks.filter(|block| block.state == BlockState::Free);
    free.map(|block| (block.address, block.size.0)).collect()
}
