//! PyTorch's caching allocator for CUDA.
//!
//! The rules are those of `c10/cuda/CUDACachingAllocator.cpp` of PyTorch 2: when a recorded job is
//! replayed, every block gets the address that PyTorch gave it. The data structures differ: blocks
//! have IDs, each stream has its own free lists, and one bit shows whether other streams still use
//! a block. Allocating and freeing therefore need neither hashing nor heap memory.

mod adopt;
mod cache_miss;
mod counters;
mod events;
mod expandable;
mod free_lists;
mod map;
mod pools;
mod release;
mod settings;
mod sizes;
mod statistics;
mod stream_use;
mod summary;
mod whole_blocks;

pub use adopt::{AdoptError, Adopted};
pub use events::{Event, Events, NoWork};
pub use free_lists::PoolId;
pub use pools::PoolError;
pub(crate) use settings::nearest;
pub use settings::{SettingError, Settings};
pub use statistics::{Pools, Stat, Statistics};

use crate::blocks::{Block, BlockId, Blocks};
use crate::failure::Failure;
use crate::owner;
use crate::policy::{Allocation, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use crate::segment::SegmentKind;
use counters::{Counters, Metric};
use free_lists::{EXPANDABLE, FreeListId, FreeLists, SHARED, free_list_of, kind_of};
use gpu_core::{Bytes, DeviceMemory, Error, Region};
use pools::Capture;
use sizes::{Rules, kind_for};
use std::collections::BTreeMap;
use std::fmt;
use stream_use::Sharing;
use whole_blocks::WholeBlocks;

/// A callback for requests that no free block satisfies. It receives the size of the missing block,
/// and returns allocations to free.
pub type Callback = Box<dyn FnMut(Bytes) -> Vec<Allocation> + Send>;

/// PyTorch's caching allocator over the memory of one device.
pub struct Caching<M: DeviceMemory, E: Events = NoWork> {
    memory: M,
    events: E,
    settings: Settings,
    rules: Rules,
    blocks: Blocks,
    free_lists: FreeLists,
    /// Regions and address ranges, by start address.
    segments: BTreeMap<u64, HeldSegment>,
    counters: Counters,
    /// The free whole regions in order, if the settings need them.
    whole: Option<WholeBlocks>,
    sharing: Sharing,
    captures: Vec<Capture>,
    callbacks: Vec<Callback>,
    /// How many times the allocator waited for all work.
    waits: u64,
    owner: u32,
}

/// A held region or address range.
#[derive(Clone, Copy, Debug)]
struct HeldSegment {
    size: u64,
    /// Its lowest block, which never changes.
    first: BlockId,
    /// The page size of an address range; `None` for a region.
    page: Option<u64>,
}

impl<M: DeviceMemory> Caching<M> {
    /// Creates an allocator that holds no memory yet, for a program whose streams do not share
    /// memory.
    ///
    /// # Errors
    /// Those of [`DeviceMemory::info`], if the settings limit a fraction of the device.
    pub fn new(memory: M, settings: Settings) -> Result<Self, Error> {
        Caching::with_events(memory, settings, NoWork)
    }
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Creates an allocator that holds no memory yet.
    ///
    /// # Errors
    /// Those of [`DeviceMemory::info`], if the settings limit a fraction of the device.
    pub fn with_events(memory: M, settings: Settings, events: E) -> Result<Self, Error> {
        let rules = Rules::of(&settings, &memory)?;
        let mut caching = Caching {
            memory,
            events,
            settings,
            rules,
            blocks: Blocks::default(),
            free_lists: FreeLists::default(),
            segments: BTreeMap::new(),
            counters: Counters::default(),
            whole: None,
            sharing: Sharing::default(),
            captures: Vec::new(),
            callbacks: Vec::new(),
            waits: 0,
            owner: owner::next(),
        };
        caching.keep_order();
        Ok(caching)
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings for later requests.
    ///
    /// # Errors
    /// Those of [`DeviceMemory::info`], if the settings limit a fraction of the device; the
    /// settings are then unchanged.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), Error> {
        self.rules = Rules::of(&settings, &self.memory)?;
        self.settings = settings;
        self.keep_order();
        Ok(())
    }

    /// Returns the memory of the device.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Adds a callback for requests that no free block satisfies; it runs before the device is
    /// queried.
    pub fn on_shortage(&mut self, callback: Callback) {
        self.callbacks.push(callback);
    }

    /// Finds the best free block for a request and removes it from its free list.
    #[inline(always)]
    fn find(&mut self, free_list: FreeListId, size: u64) -> Option<BlockId> {
        if self.rules.garbage.is_some() {
            self.free_lists.pool_of(free_list).searches[kind_of(free_list) as usize] += 1;
        }
        let rules = &self.rules;
        let serves = |best: &Block| rules.may_serve(best.size, size) && best.list & EXPANDABLE == 0;
        match self.free_lists[free_list].free.take_best_fit(&mut self.blocks, size, serves) {
            Ok(taken) => {
                if self.whole.is_some()
                    && let Some(id) = taken
                {
                    self.note_taken(id);
                }
                taken
            }
            Err(best) => self.find_further(free_list, size, best),
        }
    }

    /// Continues from the best block, which belongs to an expandable segment.
    #[cold]
    fn find_further(
        &mut self,
        free_list: FreeListId,
        size: u64,
        mut best: BlockId,
    ) -> Option<BlockId> {
        if self.blocks[best].list & EXPANDABLE != 0 {
            best = self.best_with_expandable(free_list, best)?;
        }
        if !self.rules.may_serve(self.blocks[best].size, size) {
            return None;
        }
        self.remove_free(best);
        Some(best)
    }

    /// Allocates a block that is in no free list, or its lower part.
    #[inline(always)]
    fn hand_out(
        &mut self,
        id: BlockId,
        free_list: FreeListId,
        size: u64,
        asked: u64,
    ) -> Allocation {
        let kind = kind_of(free_list);
        let block = self.blocks[id];
        let (was_part, ordinary) = (block.is_part(), block.list & EXPANDABLE == 0);
        let rest = block.size - size;
        let mut given = block.size;
        if self.rules.splits(kind, size, rest) {
            let upper = self.blocks.split(id, size);
            self.insert_free(upper);
            given = size;
            if ordinary && was_part {
                self.counters.take(kind, Metric::InactiveSplitBytes, size);
            } else if ordinary {
                self.counters.add(kind, Metric::InactiveSplitBytes, rest);
                self.counters.add(kind, Metric::InactiveSplit, 1);
            }
        } else if was_part && ordinary {
            self.counters.take(kind, Metric::InactiveSplitBytes, given);
            self.counters.take(kind, Metric::InactiveSplit, 1);
        }
        let block = &mut self.blocks[id];
        block.state = BlockState::Active;
        block.requested = asked;
        self.counters.hand_out(kind, given, asked);
        if given >= self.rules.max_split {
            self.counters.oversize_allocations.add();
        }
        Allocation { address: block.address, size: given, block: id, owner: self.owner }
    }

    /// Adds a mapped free block to its free list.
    #[inline(always)]
    fn insert_free(&mut self, id: BlockId) {
        let free_list = free_list_of(self.blocks[id].list);
        self.free_lists[free_list].free.insert(&mut self.blocks, id);
        if !self.blocks[id].queued && self.may_release(id) {
            self.enqueue(id);
        }
        if self.whole.is_some() {
            self.note_free(id);
        }
    }

    /// Removes a mapped free block from its free list.
    #[inline(always)]
    fn remove_free(&mut self, id: BlockId) {
        let free_list = free_list_of(self.blocks[id].list);
        self.free_lists[free_list].free.remove(&mut self.blocks, id);
        if self.whole.is_some() {
            self.note_taken(id);
        }
    }

    /// Checks that an allocation belongs to a block in use.
    #[inline]
    fn check(&self, allocation: &Allocation) -> Result<BlockId, Failure> {
        let Allocation { address, block, owner, .. } = *allocation;
        match self.blocks.get(block) {
            Some(its)
                if owner == self.owner
                    && its.address == address
                    && its.state == BlockState::Active =>
            {
                Ok(block)
            }
            _ => Err(Failure::Foreign { address }),
        }
    }

    /// Counts a block that the program frees but that is still in use.
    fn await_end(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = BlockState::AwaitingFree;
        self.counters.await_end(kind_of(free_list_of(block.list)), block.size);
        self.note_oversize_end(id);
    }

    #[inline]
    fn note_oversize_end(&mut self, id: BlockId) {
        if self.blocks[id].size >= self.rules.max_split {
            self.counters.oversize_allocations.take();
        }
    }

    /// Ends the use of a block that the program has already freed.
    fn end(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.counters.end(kind_of(free_list_of(block.list)), block.size, block.requested);
        self.put_back(id);
    }

    /// Frees a block that is no longer in use, and merges it with its free neighbours.
    #[inline(always)]
    fn put_back(&mut self, id: BlockId) {
        let block = self.blocks[id];
        let free_list = free_list_of(block.list);
        let kind = kind_of(free_list);
        let (mut absorbed, mut absorbed_bytes) = (0, 0);
        let mut whole = id;
        if self.joins(block.previous, block.list) {
            absorbed += 1;
            absorbed_bytes += self.blocks[block.previous].size;
            self.remove_free(block.previous);
            whole = block.previous;
            self.blocks.join_next(whole);
        }
        if self.joins(block.next, block.list) {
            absorbed += 1;
            absorbed_bytes += self.blocks[block.next].size;
            self.remove_free(block.next);
            self.blocks.join_next(whole);
        }
        let merged = &mut self.blocks[whole];
        merged.state = BlockState::Free;
        merged.requested = 0;
        if block.list & EXPANDABLE == 0 {
            let is_part = merged.is_part();
            self.count_split(kind, is_part, block.size, absorbed, absorbed_bytes);
        }
        self.insert_free(whole);
    }

    /// Counts a freed block of this size that was merged with its free neighbours; the merged block
    /// is a part of its region or all of it.
    #[inline(always)]
    fn count_split(
        &mut self,
        kind: SegmentKind,
        is_part: bool,
        size: u64,
        absorbed: u64,
        absorbed_bytes: u64,
    ) {
        let counters = &mut self.counters;
        if is_part {
            counters.add(kind, Metric::InactiveSplitBytes, size);
            // Arithmetic instead of branches that the processor cannot predict.
            counters.add(kind, Metric::InactiveSplit, u64::from(absorbed == 0));
            counters.take(kind, Metric::InactiveSplit, u64::from(absorbed == 2));
        } else {
            counters.take(kind, Metric::InactiveSplitBytes, absorbed_bytes);
            counters.take(kind, Metric::InactiveSplit, absorbed);
        }
    }

    /// Returns whether a neighbour merges with a free block of a list.
    #[inline]
    fn joins(&self, neighbour: BlockId, list: u32) -> bool {
        let neighbour = &self.blocks[neighbour];
        (neighbour.state == BlockState::Free) & (neighbour.list == list)
    }
}

impl<M: DeviceMemory, E: Events> Policy for Caching<M, E> {
    fn name(&self) -> &'static str {
        "caching"
    }

    fn allocate(&mut self, size: Bytes, stream: Stream) -> Result<Allocation, Failure> {
        if size.0 >= sizes::TOO_LARGE {
            return Err(self.shortage(size.0, size.0));
        }
        if self.captures.is_empty() && !self.sharing.is_empty() {
            self.free_what_is_done()?;
        }
        let pool = self.pool_for(stream);
        let rounded = self.rules.round(size.0);
        let free_list = self.free_lists.find(pool, stream, kind_for(rounded));
        let id = match self.find(free_list, rounded) {
            Some(id) => id,
            None => self.miss(free_list, rounded, size.0)?,
        };
        Ok(self.hand_out(id, free_list, rounded, size.0))
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let id = self.check(&allocation)?;
        let block = &self.blocks[id];
        if block.list & SHARED != 0 {
            return self.await_other_streams(id);
        }
        self.counters.give_back(kind_of(free_list_of(block.list)), block.size, block.requested);
        self.note_oversize_end(id);
        self.put_back(id);
        Ok(())
    }

    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure> {
        let id = self.check(&allocation)?;
        Ok(self.retire_block(id, allocation))
    }

    fn complete(&mut self, retired: Retired) -> Result<(), Failure> {
        self.complete_block(retired)
    }

    fn draw_from(&mut self, pool: (u64, u64)) {
        self.capture_all(PoolId(pool.0, pool.1));
    }

    fn empty_cache(&mut self) -> Result<Bytes, Failure> {
        // Emptying the cache waits for work, which is impossible during a capture.
        if !self.captures.is_empty() {
            return Ok(Bytes(0));
        }
        let before = self.counters.now(Metric::ReservedBytes);
        self.release_cached()?;
        Ok(Bytes(before - self.counters.now(Metric::ReservedBytes)))
    }

    fn usage(&self) -> Usage {
        let now = |metric| Bytes(self.counters.now(metric));
        Usage {
            in_use: now(Metric::AllocatedBytes),
            requested: now(Metric::RequestedBytes),
            reserved: now(Metric::ReservedBytes),
            peak_in_use: Bytes(self.counters.peak(Metric::AllocatedBytes)),
            peak_reserved: Bytes(self.counters.peak(Metric::ReservedBytes)),
            allocations: self.counters.now(Metric::Allocation),
            segments: self.segments.len() as u64,
            largest_free: Bytes(self.free_lists.largest(&self.blocks)),
            retries: self.counters.retries,
            out_of_memory: self.counters.out_of_memory,
            device_allocations: self.counters.device_allocations,
            device_frees: self.counters.device_frees,
        }
    }

    fn in_use(&self) -> Bytes {
        Bytes(self.counters.now(Metric::AllocatedBytes))
    }

    fn reserved(&self) -> Bytes {
        Bytes(self.counters.now(Metric::ReservedBytes))
    }

    fn reset_peaks(&mut self) {
        self.counters.reset_peaks();
    }

    fn segments(&self) -> Vec<SegmentMap> {
        self.map()
    }

    fn summary(&self) -> String {
        self.memory_summary(None, false)
    }
}

impl<M: DeviceMemory, E: Events> Drop for Caching<M, E> {
    /// Frees all memory. The device keeps memory that it does not accept back.
    fn drop(&mut self) {
        // A device waits for its work before it frees a region, but not before it unmaps pages.
        if self.segments.values().any(|held| held.page.is_some()) {
            let _ = self.events.wait_all();
        }
        for (&address, held) in &self.segments {
            let region = Region { address, size: Bytes(held.size) };
            let _ = if held.page.is_some() {
                self.memory.release_addresses(region)
            } else {
                self.memory.release(region)
            };
        }
    }
}

impl<M: DeviceMemory + fmt::Debug, E: Events> fmt::Debug for Caching<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caching")
            .field("memory", &self.memory)
            .field("settings", &self.settings)
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}
