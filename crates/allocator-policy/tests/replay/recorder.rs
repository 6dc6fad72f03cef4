//! Recordings made by running PyTorch's policy on a modelled device.

use gpu_allocator_policy::caching::{Caching, Settings};
use gpu_allocator_policy::trace::{Action, DeviceTrace, Event};
use gpu_allocator_policy::{
    Allocation, BlockState, Failure, ModelMemory, Policy, Retired, Stream, trace,
};
use gpu_core::{Bytes, DeviceMemory, MemoryInfo, Region, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A device that notes what it gives and takes back.
#[derive(Clone)]
pub(crate) struct Noting {
    memory: Arc<ModelMemory>,
    events: Arc<Mutex<Vec<Event>>>,
    stream: Arc<Mutex<u64>>,
    /// For which stream each region was taken.
    owners: Arc<Mutex<HashMap<u64, u64>>>,
}

impl Noting {
    fn note(&self, action: Action, address: u64, size: u64) {
        let mut stream = *self.stream.lock().expect("nobody panicked");
        let mut owners = self.owners.lock().expect("nobody panicked");
        match action {
            Action::SegmentAlloc => {
                owners.insert(address, stream);
            }
            Action::SegmentFree => stream = owners.remove(&address).expect("it was taken"),
            _ => {}
        }
        let event = Event { action, address, size, stream, time_us: 0 };
        self.events.lock().expect("nobody panicked").push(event);
    }

    fn length(&self) -> usize {
        self.events.lock().expect("nobody panicked").len()
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
        self.note(Action::SegmentMap, part.address, part.size.0);
        Ok(())
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.memory.unmap(part)?;
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

/// A job under PyTorch's policy that is being recorded.
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
        };
        let policy = Caching::new(device.clone(), settings.clone()).expect("the device answers");
        Recorder { device, policy, live: Vec::new(), retired: Vec::new(), failures: 0 }
    }

    pub(crate) fn allocate(&mut self, size: u64, stream: u64) {
        *self.device.stream.lock().expect("nobody panicked") = stream;
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

    /// Notes what the policy found free when it waited for all work, before what it then did.
    fn note_found_waiting(&mut self, from: usize) {
        let found = self.retired.drain(..).map(|(retired, size)| {
            let address = retired.address();
            self.policy.complete(retired).expect("it is its own");
            Event { action: Action::FreeCompleted, address, size, stream: 0, time_us: 0 }
        });
        let found: Vec<_> = found.collect();
        self.device.events.lock().expect("nobody panicked").splice(from..from, found);
    }

    pub(crate) fn free(&mut self, place: usize, at_once: bool) {
        if self.live.is_empty() {
            return;
        }
        let (allocation, size) = self.live.swap_remove(place % self.live.len());
        self.device.note(Action::FreeRequested, allocation.address(), size);
        if at_once {
            self.device.note(Action::FreeCompleted, allocation.address(), size);
            self.policy.free(allocation).expect("it is its own");
        } else {
            // What was given back and found free in two adjacent events was never in use elsewhere.
            self.device.note(Action::Snapshot, 0, 0);
            self.retired.push((self.policy.retire(allocation).expect("it is its own"), size));
        }
    }

    pub(crate) fn complete(&mut self, place: usize) {
        if self.retired.is_empty() {
            return;
        }
        let (retired, size) = self.retired.swap_remove(place % self.retired.len());
        self.device.note(Action::FreeCompleted, retired.address(), size);
        self.policy.complete(retired).expect("it is its own");
    }

    pub(crate) fn empty_cache(&mut self) {
        self.policy.empty_cache().expect("the device takes it");
        // What follows tells PyTorch's own recordings apart; these have no stacks.
        self.allocate(1, 0);
    }

    /// Takes what follows from a private pool, or from the common one.
    pub(crate) fn draw_from(&mut self, pool: (u64, u64)) {
        self.policy.draw_from(pool);
    }

    pub(crate) fn retries(&self) -> u64 {
        self.policy.statistics().num_alloc_retries
    }

    /// Forgets what happened so far: the recording begins here.
    pub(crate) fn begin(&mut self) {
        self.device.events.lock().expect("nobody panicked").clear();
    }

    /// Returns what a snapshot would tell now.
    pub(crate) fn snapshot(&self, expandable: bool) -> DeviceTrace {
        let segments = self.policy.segments().into_iter().map(|segment| trace::Segment {
            address: segment.address,
            size: segment.size.0,
            stream: segment.stream.map_or(0, |stream| stream.0),
            kind: match segment.size.0 {
                0x20_0000 => trace::SegmentKind::Small,
                _ => trace::SegmentKind::Large,
            },
            pool: (0, 0),
            expandable,
            blocks: segment
                .blocks
                .iter()
                .map(|block| trace::RecordedBlock {
                    address: block.address,
                    size: block.size.0,
                    requested: Some(block.requested.0).filter(|_| block.state != BlockState::Free),
                    state: block.state,
                })
                .collect(),
        });
        DeviceTrace {
            segments: Some(segments.collect()),
            events: self.device.events.lock().expect("nobody panicked").clone(),
            ..DeviceTrace::default()
        }
    }
}
