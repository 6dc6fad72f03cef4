//! TensorFlow's and XLA's allocator: best fit with coalescing.
//!
//! It divides regions of the device into chunks of 256-byte steps, hands out the smallest free
//! chunk that suffices, and joins a chunk that comes back with its free neighbours. The rules are
//! those of `bfc_allocator.cc` in TensorFlow and XLA. The original sorts free chunks into 21 bins by
//! size, orders each bin by size and address, and searches upward from the request's bin; since
//! bins divide the sizes in ascending order, the chunk it finds is the first in the order of all
//! sizes and addresses, and bins are only a way to print ([`Bfc::bins`]).
//!
//! On a miss it asks, in this order: the device for a region, chunks that wait for work to end
//! (only [`Bfc::allocate_behind`]), the regions that are wholly free to go back, and the device
//! again. TensorFlow then waits up to ten seconds for another thread to free memory; a policy has
//! no threads and no clock, so its caller waits, frees and asks again.
//!
//! Three things are stricter than in the original. No bytes are handed out as 256, where it
//! answers with a null pointer. A region in which a chunk still waits for work is not given back to
//! the device. And a back-off goes down by 256 bytes at least, where some versions never end.

mod adopt;
mod bins;
mod regions;
mod report;
mod settings;
mod statistics;
mod waiting;

pub use bins::Bin;
pub use settings::{BackOff, SettingError, Settings, default_limit};
pub use statistics::Statistics;

use crate::blocks::{Block, BlockId, Blocks, NONE};
use crate::failure::{Failure, Shortage};
use crate::free_set::{Free, FreeSet};
use crate::owner;
use crate::policy::{Allocation, BlockMap, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use crate::sums::left;
use gpu_core::{Bytes, DeviceMemory, Region};
use regions::{Held, Regions};
use statistics::Counts;
use waiting::Waiting;

/// Chunks are of whole multiples of this.
const UNIT: u64 = 256;
/// By how much the length of a region that the device refuses is multiplied.
const BACK_OFF: f32 = 0.9;

/// TensorFlow's best-fit allocator with coalescing, over the memory of one device.
///
/// It serves one stream, as TensorFlow's allocator does: which stream a request is for changes
/// nothing.
#[derive(Debug)]
pub struct Bfc<M: DeviceMemory> {
    memory: M,
    settings: Settings,
    limit: u64,
    most_slack: u64,
    /// How long the next region is, unless the request is longer.
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
    /// Makes an allocator that holds nothing yet.
    ///
    /// # Errors
    /// [`Failure::Device`] when no limit is set and the device does not answer.
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

    /// Returns the most that it takes of the device.
    pub fn limit(&self) -> Bytes {
        Bytes(self.limit)
    }

    /// Returns the memory of the device.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Hands out at least `size` bytes for work that runs behind all work that may still use
    /// retired memory, as all work on TensorFlow's one compute stream does: memory that was retired
    /// and not completed is fit for it.
    ///
    /// # Errors
    /// As [`Policy::allocate`].
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

    fn best_of_both(&self, rounded: u64) -> Option<Free> {
        let both = [self.free.best_fit(rounded), self.waiting.best_fit(rounded)];
        both.into_iter().flatten().min_by_key(|found| (found.size, found.address))
    }

    fn hand_out_any(&mut self, found: Free, rounded: u64, requested: u64) -> Allocation {
        if self.blocks[found.block].state == BlockState::Free {
            return self.hand_out(found, rounded, requested);
        }
        self.waiting.remove(&self.blocks, found.block);
        let rest = self.split(found, rounded);
        if let Some(rest) = rest {
            self.blocks[rest].state = BlockState::AwaitingFree;
            self.waiting.insert(&self.blocks, rest);
        }
        self.waiting.restamp(found.block, rest);
        self.activate(found.block, requested)
    }

    #[inline]
    fn hand_out(&mut self, found: Free, rounded: u64, requested: u64) -> Allocation {
        self.free.remove(found.size, found.address);
        if let Some(rest) = self.split(found, rounded) {
            self.insert(rest);
        }
        self.activate(found.block, requested)
    }

    /// Shortens a chunk to what is needed, unless what remains is too little; returns the rest.
    #[inline]
    fn split(&mut self, found: Free, rounded: u64) -> Option<BlockId> {
        let rest = found.size - rounded;
        let splits = rest > 0 && (rest >= rounded || rest >= self.most_slack);
        splits.then(|| self.blocks.split(found.block, rounded))
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
        let Block { size, address, .. } = self.blocks[id];
        self.free.insert(Free { size, address, block: id });
    }

    /// Finds a chunk for a request that no free chunk satisfies.
    #[cold]
    fn find_more(&mut self, rounded: u64, asked: u64, behind: bool) -> Result<Free, Failure> {
        let mut tried = None;
        if self.extend(rounded, &mut tried)?
            && let Some(found) = self.free.best_fit(rounded)
        {
            return Ok(found);
        }
        if behind
            && self.merge_waiting(rounded)
            && let Some(found) = self.best_of_both(rounded)
        {
            return Ok(found);
        }
        if self.settings.garbage_collection && self.collect_garbage(rounded)? {
            self.counts.retries += 1;
            if self.extend(rounded, &mut tried)?
                && let Some(found) = self.free.best_fit(rounded)
            {
                return Ok(found);
            }
        }
        Err(self.shortage(asked, tried))
    }

    /// Takes a region of the device that satisfies a request; `tried` becomes the shortest that the
    /// device was asked for.
    fn extend(&mut self, rounded: u64, tried: &mut Option<u64>) -> Result<bool, Failure> {
        let available = self.limit.saturating_sub(self.counts.pool) / UNIT * UNIT;
        if rounded > available {
            return Ok(false);
        }
        let grows = rounded > self.next_region;
        while rounded > self.next_region {
            self.next_region = self.next_region.saturating_mul(2);
        }
        let mut size = self.next_region.min(available);
        let mut given = self.ask_device(size, tried)?;
        if given.is_none() && !self.backed_off {
            self.backed_off = self.settings.back_off == BackOff::Once;
            while given.is_none() {
                size = shorter(size);
                if size < rounded {
                    break;
                }
                given = self.ask_device(size, tried)?;
            }
        }
        let Some(region) = given else { return Ok(false) };
        if !grows {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.counts.take_of_device(region.size.0);
        self.add_region(region);
        Ok(true)
    }

    fn ask_device(
        &mut self,
        size: u64,
        tried: &mut Option<u64>,
    ) -> Result<Option<Region>, Failure> {
        *tried = Some(tried.map_or(size, |shortest| shortest.min(size)));
        Ok(match self.settings.adjacent_regions {
            true => self.regions.take_adjacent(&self.memory, size, self.limit)?,
            false => Regions::take(&self.memory, size)?,
        })
    }

    fn add_region(&mut self, region: Region) {
        let id = self.blocks.add(Block::whole(region.address, region.size.0, 0));
        match self.regions.lengthen(region) {
            None => self.regions.add(region, id),
            Some(first) => {
                let last = self.chunks(first).last().unwrap_or(first);
                self.blocks[last].next = id;
                self.blocks[id].previous = last;
            }
        }
        let id = self.coalesce(id);
        self.insert(id);
    }

    /// Joins a chunk with its free neighbours: the next, then the previous. Returns what became of
    /// it; it is not in the set of free chunks.
    #[inline]
    fn coalesce(&mut self, id: BlockId) -> BlockId {
        let Block { next, previous, .. } = self.blocks[id];
        if next != NONE && self.blocks[next].state == BlockState::Free {
            self.remove_free(next);
            self.blocks.join_next(id);
        }
        if previous != NONE && self.blocks[previous].state == BlockState::Free {
            self.remove_free(previous);
            self.blocks.join_next(previous);
            return previous;
        }
        id
    }

    #[inline]
    fn remove_free(&mut self, id: BlockId) {
        let Block { size, address, .. } = self.blocks[id];
        let removed = self.free.remove(size, address);
        debug_assert!(removed, "a free chunk is in the set");
    }

    /// Joins chunks that wait with their neighbours, oldest first, until one is long enough.
    fn merge_waiting(&mut self, rounded: u64) -> bool {
        for id in self.waiting.in_order() {
            if self.blocks[id].state != BlockState::AwaitingFree {
                continue; // It was joined to another one.
            }
            self.waiting.remove(&self.blocks, id);
            let merged = self.absorb_next(id);
            let previous = self.blocks[merged].previous;
            let merged = if self.is_idle(previous) {
                self.remove_idle(previous);
                self.join_waiting(previous);
                previous
            } else {
                merged
            };
            self.blocks[merged].state = BlockState::AwaitingFree;
            self.waiting.insert(&self.blocks, merged);
            if self.blocks[merged].size >= rounded {
                return true;
            }
        }
        false
    }

    fn absorb_next(&mut self, id: BlockId) -> BlockId {
        let next = self.blocks[id].next;
        if self.is_idle(next) {
            self.remove_idle(next);
            self.join_waiting(id);
        }
        id
    }

    fn is_idle(&self, id: BlockId) -> bool {
        id != NONE && self.blocks[id].state != BlockState::Active
    }

    fn remove_idle(&mut self, id: BlockId) {
        match self.blocks[id].state {
            BlockState::Free => self.remove_free(id),
            _ => self.waiting.remove(&self.blocks, id),
        }
    }

    /// Joins a chunk with the next one; it waits for all that either waited for.
    fn join_waiting(&mut self, id: BlockId) {
        let next = self.blocks[id].next;
        self.blocks[id].list += self.blocks[next].list;
        self.waiting.restamp(next, Some(id));
        self.blocks.join_next(id);
    }

    /// Gives all wholly free regions back, if that could satisfy the request; tells whether any
    /// went.
    fn collect_garbage(&mut self, rounded: u64) -> Result<bool, Failure> {
        let free: u64 = self.free_regions().iter().map(|held| held.region.size.0).sum();
        let available = self.limit.saturating_sub(self.counts.pool).saturating_add(free);
        if free == 0 || rounded > available {
            return Ok(false);
        }
        self.give_back_free_regions()?;
        Ok(true)
    }

    fn free_regions(&self) -> Vec<Held> {
        let is_free = |id| self.blocks[id].state == BlockState::Free;
        self.regions.iter().filter(|held| self.chunks(held.first).all(is_free)).copied().collect()
    }

    fn give_back_free_regions(&mut self) -> Result<u64, Failure> {
        let (mut given, mut failure) = (0, None);
        for held in self.free_regions() {
            if let Err(error) = self.regions.give_back(&self.memory, held.region) {
                failure.get_or_insert(error);
                continue;
            }
            let chunks: Vec<_> = self.chunks(held.first).collect();
            for id in chunks {
                self.remove_free(id);
                self.blocks.remove(id);
            }
            self.counts.give_to_device(held.region.size.0);
            given += held.region.size.0;
        }
        failure.map_or(Ok(given), |error| Err(error.into()))
    }

    /// Visits the chunks of a region by address.
    fn chunks(&self, first: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let next = |id: &BlockId| Some(self.blocks[*id].next).filter(|next| *next != NONE);
        std::iter::successors(Some(first), next)
    }

    fn largest_free(&self) -> u64 {
        self.free.largest().map_or(0, |free| free.size).max(self.waiting.largest())
    }

    fn shortage(&mut self, asked: u64, tried: Option<u64>) -> Failure {
        self.counts.out_of_memory += 1;
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

    /// Returns the block of an allocation that is handed out.
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
        let found = match self.free.best_fit(rounded) {
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
        // Of retired memory nobody asks the length: its stamp is kept there.
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
            peak_reserved: Bytes(counts.peak_pool),
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
        let segment = |held: &Held| SegmentMap {
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

/// Rounds up to whole units; `None` where there is no such number.
fn round(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(UNIT)
}

/// Returns how long a region to ask for is after one of this length was refused.
fn shorter(size: u64) -> u64 {
    // In 32 bits, as TensorFlow computes it.
    let shorter = round((size as f32 * BACK_OFF) as u64).unwrap_or(size);
    shorter.min(size.saturating_sub(UNIT))
}
