//! Recordings of PyTorch's policy on a modelled device.

use gpu_allocator_policy::caching::{Caching, Settings};
use gpu_allocator_policy::{
    Allocation, BlockMap, BlockState, Failure, ModelMemory, Policy, Retired, Stream,
};
use gpu_core::{Bytes, DeviceMemory, MemoryInfo, Region, Result};
use gpu_memory_trace::trace;
use gpu_memory_trace::trace::{Action, DeviceTrace, Event};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// The page size of the small pool; pages of the large pool are ten times as large.
const PAGE: usize = 2 << 20;

/// A device that records its allocations and frees.
#[derive(Clone)]
pub(crate) struct Noting {
    memory: Arc<ModelMemory>,
    events: Arc<Mutex<Vec<Event>>>,
    stream: Arc<Mutex<u64>>,
    /// The stream of each region.
    owners: Arc<Mutex<HashMap<u64, u64>>>,
    /// The pages that were mapped with the size of the small pool.
    small: Arc<Mutex<HashSet<u64>>>,
}

impl Noting {
    fn note(&self, action: Action, address: u64, size: u64) {
        let mut stream = *self.stream.lock().expect("no thread panicked");
        let mut owners = self.owners.lock().expect("no thread panicked");
        match action {
            Action::SegmentAlloc => {
                owners.insert(address, stream);
            }
            Action::SegmentMap => {
                for page in (address..address + size).step_by(PAGE) {
                    owners.insert(page, stream);
                }
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                stream = owners[&address];
                owners.retain(|start, _| *start < address || *start >= address + size);
            }
            _ => {}
        }
        let event = Event { action, address, size, stream, time_us: 0 };
        self.events.lock().expect("no thread panicked").push(event);
    }

    fn length(&self) -> usize {
        self.events.lock().expect("no thread panicked").len()
    }
}

impl DeviceMemory for Noting {
    fn info(&self) -> Result<MemoryInfo> {
        self.memory.info()
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let region = self.memory.reserve(size)?;
        self.note(Action::SegmentAlloc, region.address, size.0);
        Ok(region)
    }

    fn release(&self, region: Region) -> Result<()> {
        self.memory.release(region)?;
        self.note(Action::SegmentFree, region.address, region.size.0);
        Ok(())
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        self.memory.reserve_addresses(size)
    }

    fn map(&self, part: Region) -> Result<()> {
        self.memory.map(part)?;
        if part.size.0 == PAGE as u64 {
            self.small.lock().expect("no thread panicked").insert(part.address);
        }
        self.note(Action::SegmentMap, part.address, part.size.0);
        Ok(())
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.memory.unmap(part)?;
        // PyTorch does not record pages that it mapped but unmapped again because not all were
        // granted.
        let mut events = self.events.lock().expect("no thread panicked");
        let mut mapped = events.iter().rev().take_while(|event| event.action == Action::SegmentMap);
        let back = mapped.position(|event| event.address == part.address);
        if let Some(back) = back {
            let index = events.len() - 1 - back;
            events.remove(index);
            return Ok(());
        }
        drop(events);
        self.note(Action::SegmentUnmap, part.address, part.size.0);
        Ok(())
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.memory.release_addresses(range)
    }

    fn page(&self) -> Result<Bytes> {
        self.memory.page()
    }
}

/// A recorded job under PyTorch's policy.
pub(crate) struct Recorder {
    device: Noting,
    policy: Caching<Noting>,
    live: Vec<(Allocation, u64)>,
    retired: Vec<(Retired, u64)>,
    pub(crate) failures: usize,
}

impl Recorder {
    pub(crate) fn new(settings: &Settings, total: Bytes) -> Self {
        let device = Noting {
            memory: Arc::new(ModelMemory::new(total)),
            events: Arc::default(),
            stream: Arc::default(),
            owners: Arc::default(),
            small: Arc::default(),
        };
        let policy = Caching::new(device.clone(), settings.clone()).expect("the device answers");
        Recorder { device, policy, live: Vec::new(), retired: Vec::new(), failures: 0 }
    }

    pub(crate) fn allocate(&mut self, size: u64, stream: u64) {
        *self.device.stream.lock().expect("no thread panicked") = stream;
        let (waits, from) = (self.waits(), self.device.length());
        let given = self.policy.allocate(Bytes(size), Stream(stream));
        if self.waits() > waits {
            self.note_found_waiting(from);
        }
        match given {
            Ok(allocation) => {
                self.device.note(Action::Alloc, allocation.address(), size);
                self.live.push((allocation, size));
            }
            Err(Failure::OutOfMemory(_)) => {
                self.device.note(Action::OutOfMemory, 0, size);
                self.failures += 1;
            }
            Err(failure) => panic!("{failure}"),
        }
    }

    fn waits(&self) -> u64 {
        self.policy.statistics().num_sync_all_streams
    }

    /// Inserts the completions that the policy found when it waited for all work, before its later
    /// events.
    fn note_found_waiting(&mut self, from: usize) {
        let found = self.retired.drain(..).map(|(retired, size)| {
            let address = retired.address();
            self.policy.complete(retired).expect("it belongs to this policy");
            Event { action: Action::FreeCompleted, address, size, stream: 0, time_us: 0 }
        });
        let found: Vec<_> = found.collect();
        self.device.events.lock().expect("no thread panicked").splice(from..from, found);
    }

    pub(crate) fn free(&mut self, index: usize, at_once: bool) {
        if self.live.is_empty() {
            return;
        }
        let (allocation, size) = self.live.swap_remove(index % self.live.len());
        self.device.note(Action::FreeRequested, allocation.address(), size);
        if at_once {
            self.device.note(Action::FreeCompleted, allocation.address(), size);
            self.policy.free(allocation).expect("it belongs to this policy");
        } else {
            // Memory freed and completed in two adjacent events was not in use elsewhere.
            self.device.note(Action::Snapshot, 0, 0);
            self.retired
                .push((self.policy.retire(allocation).expect("it belongs to this policy"), size));
        }
    }

    pub(crate) fn complete(&mut self, index: usize) {
        if self.retired.is_empty() {
            return;
        }
        let (retired, size) = self.retired.swap_remove(index % self.retired.len());
        self.device.note(Action::FreeCompleted, retired.address(), size);
        self.policy.complete(retired).expect("it belongs to this policy");
    }

    pub(crate) fn empty_cache(&mut self) {
        self.policy.empty_cache().expect("the device accepts it");
        // These recordings have no stacks, so the next request has to distinguish the two.
        self.allocate(1, 0);
    }

    /// Serves later requests from a private pool, or from the common one.
    pub(crate) fn draw_from(&mut self, pool: (u64, u64)) {
        self.policy.draw_from(pool);
    }

    pub(crate) fn retries(&self) -> u64 {
        self.policy.statistics().num_alloc_retries
    }

    /// Drops the events so far, so that the recording begins here.
    pub(crate) fn begin(&mut self) {
        self.device.events.lock().expect("no thread panicked").clear();
    }

    /// Returns the current snapshot.
    pub(crate) fn snapshot(&self, expandable: bool) -> DeviceTrace {
        let mut segments = Vec::new();
        for segment in self.policy.segments() {
            // A snapshot contains only the mapped parts of an expandable segment.
            let touch = |a: &BlockMap, b: &BlockMap| a.address + a.size.0 == b.address;
            for blocks in segment.blocks.chunk_by(touch) {
                let size = blocks.iter().map(|block| block.size.0).sum();
                segments.push(self.part(segment.stream, blocks, size, expandable));
            }
        }
        DeviceTrace {
            segments: Some(segments),
            events: self.device.events.lock().expect("no thread panicked").clone(),
            ..DeviceTrace::default()
        }
    }

    fn part(
        &self,
        stream: Option<Stream>,
        blocks: &[BlockMap],
        size: u64,
        expandable: bool,
    ) -> trace::Segment {
        let address = blocks[0].address;
        let is_small = if expandable {
            self.device.small.lock().expect("no thread panicked").contains(&address)
        } else {
            size == PAGE as u64
        };
        let recorded = |block: &BlockMap| trace::RecordedBlock {
            address: block.address,
            size: block.size.0,
            requested: Some(block.requested.0).filter(|_| block.state != BlockState::Free),
            state: block.state,
        };
        trace::Segment {
            address,
            size,
            stream: stream.map_or(0, |stream| stream.0),
            kind: if is_small { trace::SegmentKind::Small } else { trace::SegmentKind::Large },
            pool: (0, 0),
            expandable,
            blocks: blocks.iter().map(recorded).collect(),
        }
    }
}
