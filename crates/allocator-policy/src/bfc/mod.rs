//! TensorFlow's and XLA's allocator: best fit with coalescing.
//!
//! It divides regions of the device into chunks in steps of 256 bytes, uses the smallest free chunk
//! that suffices, and merges a freed chunk with its free neighbours. The rules are those of
//! `bfc_allocator.cc` in TensorFlow and XLA. The original sorts free chunks into 21 bins by size,
//! orders each bin by size and address, and searches upward from the request's bin. Because bins
//! divide the sizes in ascending order, the chunk it finds is the first in the order of all sizes
//! and addresses. Bins are therefore needed only for output ([`Bfc::bins`]).
//!
//! On a miss, it asks the device for a region, merges chunks that still wait for work (only
//! [`Bfc::allocate_behind`]), frees completely free regions, and asks the device again, in this
//! order. TensorFlow then waits up to ten seconds for another thread to free memory; a policy has
//! no threads and no clock, so its caller waits, frees and retries.
//!
//! Three rules are stricter than in the original. A request of 0 bytes gets 256 bytes instead of a
//! null pointer. A region in which a chunk still waits for work is not freed. Each back-off step
//! shortens the region by at least 256 bytes; in some versions the original loops forever.

mod adopt;
mod bins;
mod growth;
mod regions;
mod report;
mod retired;
mod settings;
mod statistics;

pub use bins::Bin;
pub use settings::{BackOff, SettingError, Settings, default_limit};
pub use statistics::Statistics;

use crate::blocks::{Block, BlockId, Blocks, NONE};
use crate::failure::{Failure, Shortage};
use crate::free_set::FreeSet;
use crate::owner;
use crate::policy::{Allocation, BlockMap, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use crate::totals::left;
use gpu_core::{Bytes, DeviceMemory};
use regions::{HeldRegion, Regions};
use retired::Waiting;
use statistics::Counts;

/// Chunk sizes are multiples of this.
const UNIT: u64 = 256;

/// TensorFlow's best-fit allocator with coalescing, over the memory of one device.
///
/// Like TensorFlow's allocator, it serves a single stream; it ignores the stream of a request.
#[derive(Debug)]
pub struct Bfc<M: DeviceMemory> {
    memory: M,
    settings: Settings,
    limit: u64,
    most_slack: u64,
    /// The size of the next region, unless the request is larger.
    next_region: u64,
    backed_off: bool,
    owner: u32,
    blocks: Blocks,
    free: FreeSet,
    waiting: Waiting,
    regions: Regions,
    counts: Counts,
}

impl<M: DeviceMemory> Bfc<M> {
    /// Creates an allocator that holds no memory yet.
    ///
    /// # Errors
    /// [`Failure::Device`] if no limit is set and the device does not answer.
    pub fn new(memory: M, settings: Settings) -> Result<Self, Failure> {
        let limit = match settings.limit {
            Some(limit) => limit.0,
            None => settings.limit_on(memory.info()?),
        };
        Ok(Bfc {
            memory,
            settings,
            limit,
            most_slack: settings.most_slack(limit),
            next_region: settings.first_region(limit),
            backed_off: false,
            owner: owner::next(),
            blocks: Blocks::default(),
            free: FreeSet::default(),
            waiting: Waiting::default(),
            regions: Regions::default(),
            counts: Counts::default(),
        })
    }

    /// Returns its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the maximum memory that it takes from the device.
    pub fn limit(&self) -> Bytes {
        Bytes(self.limit)
    }

    /// Returns the memory of the device.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Allocates at least `size` bytes for work that runs after all work that may still use retired
    /// memory, like work on TensorFlow's single compute stream. It may therefore reuse memory that
    /// was retired but not yet completed.
    ///
    /// # Errors
    /// Like [`Policy::allocate`].
    pub fn allocate_behind(&mut self, size: Bytes) -> Result<Allocation, Failure> {
        let Some(rounded) = round(size.0.max(1)) else {
            return Err(self.shortage(size.0, None));
        };
        if let Some(found) = self.best_of_both(rounded) {
            return Ok(self.hand_out_any(found, rounded, size.0));
        }
        let found = self.find_more(rounded, size.0, true)?;
        Ok(self.hand_out_any(found, rounded, size.0))
    }

    fn best_of_both(&mut self, rounded: u64) -> Option<BlockId> {
        let blocks = &mut self.blocks;
        let both = [self.free.best_fit(blocks, rounded), self.waiting.best_fit(blocks, rounded)];
        both.into_iter().flatten().min_by_key(|found| blocks[*found].key())
    }

    fn hand_out_any(&mut self, found: BlockId, rounded: u64, requested: u64) -> Allocation {
        if self.blocks[found].state == BlockState::Free {
            return self.hand_out(found, rounded, requested);
        }
        self.waiting.remove(&mut self.blocks, found);
        let rest = self.split(found, rounded);
        if let Some(rest) = rest {
            self.blocks[rest].state = BlockState::AwaitingFree;
            self.waiting.insert(&mut self.blocks, rest);
        }
        self.waiting.restamp(found, rest);
        self.activate(found, requested)
    }

    #[inline]
    fn hand_out(&mut self, found: BlockId, rounded: u64, requested: u64) -> Allocation {
        self.remove_free(found);
        if let Some(rest) = self.split(found, rounded) {
            self.insert(rest);
        }
        self.activate(found, requested)
    }

    /// Shortens a chunk to the needed size, unless the remainder is too short. Returns the
    /// remainder.
    #[inline]
    fn split(&mut self, found: BlockId, rounded: u64) -> Option<BlockId> {
        let rest = self.blocks[found].size - rounded;
        let splits = rest > 0 && (rest >= rounded || rest >= self.most_slack);
        splits.then(|| self.blocks.split(found, rounded))
    }

    #[inline]
    fn activate(&mut self, id: BlockId, requested: u64) -> Allocation {
        let block = &mut self.blocks[id];
        block.state = BlockState::Active;
        block.requested = requested;
        block.list = 0;
        let (address, size) = (block.address, block.size);
        self.counts.hand_out(size, requested);
        Allocation { address, size, block: id, owner: self.owner }
    }

    #[inline]
    fn insert(&mut self, id: BlockId) {
        self.free.insert(&mut self.blocks, id);
    }

    /// Merges a chunk with its free neighbours: the next, then the previous. Returns the merged
    /// chunk, which is not in the set of free chunks.
    #[inline]
    fn coalesce(&mut self, id: BlockId) -> BlockId {
        let Block { next, previous, .. } = self.blocks[id];
        if self.blocks[next].state == BlockState::Free {
            self.remove_free(next);
            self.blocks.join_next(id);
        }
        if self.blocks[previous].state == BlockState::Free {
            self.remove_free(previous);
            self.blocks.join_next(previous);
            return previous;
        }
        id
    }

    #[inline]
    fn remove_free(&mut self, id: BlockId) {
        self.free.remove(&mut self.blocks, id);
    }

    /// Iterates over the chunks of a region by address.
    fn chunks(&self, first: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let next = |id: &BlockId| Some(self.blocks[*id].next).filter(|next| *next != NONE);
        std::iter::successors(Some(first), next)
    }

    fn largest_free(&self) -> u64 {
        let both = [self.free.largest(&self.blocks), self.waiting.largest(&self.blocks)];
        both.into_iter().flatten().map(|id| self.blocks[id].size).max().unwrap_or(0)
    }

    fn shortage(&mut self, asked: u64, tried: Option<u64>) -> Failure {
        self.counts.out_of_memory += 1;
        self.free.sort_largest(&self.blocks);
        Failure::OutOfMemory(Box::new(Shortage {
            asked: Bytes(asked),
            segment: Bytes(tried.or_else(|| round(asked.max(1))).unwrap_or(asked)),
            limit: Some(self.limit()),
            device_free: self.memory.info().ok().and_then(left),
            reserved: Bytes(self.counts.pool),
            in_use: Bytes(self.counts.in_use),
            largest_free: Bytes(self.largest_free()),
        }))
    }

    /// Returns the block of an allocation in use.
    #[inline]
    fn handed_out(&self, allocation: &Allocation) -> Result<BlockId, Failure> {
        let id = allocation.block;
        let is_it = |block: &&Block| {
            block.address == allocation.address && block.state == BlockState::Active
        };
        match self.blocks.get(id).filter(is_it) {
            Some(_) if allocation.owner == self.owner => Ok(id),
            _ => Err(Failure::Foreign { address: allocation.address }),
        }
    }

    #[inline]
    fn take_back(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        self.counts.take_back(block.size, block.requested);
        block.requested = 0;
    }

    fn make_free(&mut self, id: BlockId) {
        self.blocks[id].state = BlockState::Free;
        let id = self.coalesce(id);
        self.insert(id);
    }
}

impl<M: DeviceMemory> Policy for Bfc<M> {
    fn name(&self) -> &'static str {
        "bfc"
    }

    #[inline]
    fn allocate(&mut self, size: Bytes, _stream: Stream) -> Result<Allocation, Failure> {
        let Some(rounded) = round(size.0.max(1)) else {
            return Err(self.shortage(size.0, None));
        };
        let found = match self.free.best_fit(&mut self.blocks, rounded) {
            Some(found) => found,
            None => self.find_more(rounded, size.0, false)?,
        };
        Ok(self.hand_out(found, rounded, size.0))
    }

    #[inline]
    fn free(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let id = self.handed_out(&allocation)?;
        self.take_back(id);
        self.make_free(id);
        Ok(())
    }

    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure> {
        let id = self.handed_out(&allocation)?;
        self.take_back(id);
        self.blocks[id].state = BlockState::AwaitingFree;
        // The size of a retired block is not used, so this field holds its timestamp.
        let size = self.waiting.add(&mut self.blocks, id);
        Ok(Retired(Allocation { size, ..allocation }))
    }

    fn complete(&mut self, retired: Retired) -> Result<(), Failure> {
        let Allocation { address, size: stamp, owner, .. } = retired.0;
        if owner != self.owner {
            return Err(Failure::Foreign { address });
        }
        if let Some(id) = self.waiting.complete(&mut self.blocks, stamp) {
            self.make_free(id);
        }
        Ok(())
    }

    fn empty_cache(&mut self) -> Result<Bytes, Failure> {
        self.give_back_free_regions().map(Bytes)
    }

    fn usage(&self) -> Usage {
        let counts = &self.counts;
        Usage {
            in_use: Bytes(counts.in_use),
            requested: Bytes(counts.requested),
            reserved: Bytes(counts.pool),
            peak_in_use: Bytes(counts.peak_in_use),
            peak_reserved: Bytes(counts.recent_peak_pool),
            allocations: counts.handed_out - counts.returned,
            segments: self.regions.len() as u64,
            largest_free: Bytes(self.largest_free()),
            retries: counts.retries,
            out_of_memory: counts.out_of_memory,
            device_allocations: counts.device_allocations,
            device_frees: counts.device_frees,
        }
    }

    fn in_use(&self) -> Bytes {
        Bytes(self.counts.in_use)
    }

    fn reserved(&self) -> Bytes {
        Bytes(self.counts.pool)
    }

    fn reset_peaks(&mut self) {
        self.counts.reset_peaks();
    }

    fn segments(&self) -> Vec<SegmentMap> {
        let map = |id: BlockId| {
            let Block { address, size, requested, state, .. } = self.blocks[id];
            BlockMap { address, size: Bytes(size), requested: Bytes(requested), state }
        };
        let segment = |held: &HeldRegion| SegmentMap {
            address: held.region.address,
            size: held.region.size,
            stream: None,
            blocks: self.chunks(held.first).map(map).collect(),
        };
        self.regions.iter().map(segment).collect()
    }

    fn summary(&self) -> String {
        self.report(None)
    }
}

impl<M: DeviceMemory> Drop for Bfc<M> {
    fn drop(&mut self) {
        self.regions.give_all_back(&self.memory);
    }
}

/// Rounds up to a multiple of the unit; `None` on overflow.
fn round(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(UNIT)
}
