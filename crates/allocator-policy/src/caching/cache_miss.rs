//! Handling of a request that no free block satisfies, in PyTorch's order: callbacks, garbage
//! collection, the device, freeing oversize blocks, freeing all unsplit blocks.

use super::counters::Metric;
use super::free_lists::{FreeListId, kind_of, list_of};
use super::{Caching, Events, HeldSegment};
use crate::blocks::{Block, BlockId};
use crate::failure::{Failure, Shortage, unless_refused};
use crate::segment::SegmentKind;
use crate::totals::left;
use gpu_core::{Bytes, DeviceMemory, Region};

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Returns a block for a request of `size` bytes, not in any free list.
    #[cold]
    pub(super) fn miss(
        &mut self,
        free_list: FreeListId,
        size: u64,
        asked: u64,
    ) -> Result<BlockId, Failure> {
        if self.call_back(size)?
            && let Some(id) = self.find(free_list, size)
        {
            return Ok(id);
        }
        if let Some(threshold) = self.rules.garbage {
            self.collect_garbage(threshold)?;
        }
        let segment = self.rules.segment_for(size);
        if let Some(id) = self.take_more(free_list, size, segment)? {
            return Ok(id);
        }
        if self.release_oversize(free_list, size)?
            && let Some(id) = self.take_more(free_list, size, segment)?
        {
            return Ok(id);
        }
        if self.captures.is_empty() {
            self.release_cached()?;
            self.counters.retries += 1;
            if let Some(id) = self.take_more(free_list, size, segment)? {
                return Ok(id);
            }
        }
        self.counters.out_of_memory += 1;
        Err(self.shortage(asked, segment))
    }

    /// Describes the state in which memory was insufficient.
    #[cold]
    pub(super) fn shortage(&mut self, asked: u64, segment: u64) -> Failure {
        self.free_lists.sort_largest(&self.blocks);
        Failure::OutOfMemory(Box::new(Shortage {
            asked: Bytes(asked),
            segment: Bytes(segment),
            limit: Some(Bytes(self.rules.limit)).filter(|limit| limit.0 < u64::MAX),
            device_free: self.memory.info().ok().and_then(left),
            reserved: Bytes(self.counters.now(Metric::ReservedBytes)),
            in_use: Bytes(self.counters.now(Metric::AllocatedBytes)),
            largest_free: Bytes(self.free_lists.largest(&self.blocks)),
        }))
    }

    /// Calls all callbacks; returns whether one freed memory.
    fn call_back(&mut self, size: u64) -> Result<bool, Failure> {
        let mut callbacks = std::mem::take(&mut self.callbacks);
        let given: Vec<_> = callbacks.iter_mut().flat_map(|call| call(Bytes(size))).collect();
        callbacks.append(&mut self.callbacks);
        self.callbacks = callbacks;
        let any = !given.is_empty();
        let freed: Vec<_> = given.into_iter().map(|its| crate::Policy::free(self, its)).collect();
        freed.into_iter().collect::<Result<(), _>>()?;
        Ok(any)
    }

    /// Takes a new block from the device; `None` if the limit or the device does not permit it.
    fn take_more(
        &mut self,
        free_list: FreeListId,
        size: u64,
        segment: u64,
    ) -> Result<Option<BlockId>, Failure> {
        let reserved = self.counters.now(Metric::ReservedBytes);
        if reserved.checked_add(segment).is_none_or(|sum| sum > self.rules.limit) {
            return Ok(None);
        }
        if self.rules.expandable {
            return self.expand(free_list, size);
        }
        let given = unless_refused(self.memory.reserve(Bytes(segment)))?;
        // A device may return more than requested.
        let Some(Region { address, size: Bytes(size) }) = given else { return Ok(None) };
        let id = self.blocks.add(Block::whole(address, size, list_of(free_list)));
        self.segments.insert(address, HeldSegment { size, first: id, page: None });
        self.count_segment(free_list, size);
        self.counters.device_allocations += 1;
        Ok(Some(id))
    }

    /// Counts a new region.
    pub(super) fn count_segment(&mut self, free_list: FreeListId, size: u64) {
        let kind = kind_of(free_list);
        self.counters.add(kind, Metric::Segment, 1);
        self.counters.add(kind, Metric::ReservedBytes, size);
        self.free_lists.pool_of(free_list).reserved += size;
        if size >= self.rules.max_split {
            self.counters.oversize_segments.add();
        }
    }

    /// Frees unsplit large blocks of the common pool that have been free for at least as many
    /// searches as the average, and repeats until enough is freed.
    fn collect_garbage(&mut self, threshold: u64) -> Result<(), Failure> {
        let reserved = self.counters.now(Metric::ReservedBytes);
        if reserved <= threshold {
            return Ok(());
        }
        let target = reserved - threshold;
        let now = self.free_lists.pools[0].searches[SegmentKind::Large as usize];
        let mut reclaimed = 0;
        while reclaimed < target
            && let Some(whole) = &self.whole
            && let Some(mean) = whole.mean_age(now)
        {
            let mut old: Vec<_> = whole.at_least(mean, now).collect();
            old.sort_unstable_by_key(|id| self.rank(*id));
            if old.is_empty() {
                break;
            }
            for id in old {
                let size = self.blocks[id].size;
                self.release_block(id)?;
                reclaimed += size;
            }
        }
        Ok(())
    }

    /// Frees as many oversize blocks as a request needs; returns whether that was enough.
    fn release_oversize(&mut self, free_list: FreeListId, size: u64) -> Result<bool, Failure> {
        if self.rules.max_split == u64::MAX {
            return Ok(false);
        }
        let target = size.max(self.rules.max_split);
        if let Some(enough) = self.whole.as_ref().and_then(|whole| whole.first(free_list, target)) {
            self.release_block(enough)?;
            return Ok(true);
        }
        let mut released = 0;
        while released < target
            && let Some(whole) = &self.whole
            && let Some(id) = whole.last(free_list, self.rules.max_split)
        {
            released += self.blocks[id].size;
            self.release_block(id)?;
        }
        Ok(released >= target)
    }
}
