//! Handling of a request that no free block satisfies, in PyTorch's order: callbacks, garbage
//! collection, the device, freeing oversize blocks, freeing all unsplit blocks.

use super::counters::Metric;
use super::free_lists::{EXPANDABLE, FreeListId, kind_of, list_of};
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
        shelf: FreeListId,
        size: u64,
        asked: u64,
    ) -> Result<BlockId, Failure> {
        if self.call_back(size)?
            && let Some(id) = self.find(shelf, size)
        {
            return Ok(id);
        }
        if let Some(threshold) = self.rules.garbage {
            self.collect_garbage(threshold)?;
        }
        let segment = self.rules.segment_for(size);
        if let Some(id) = self.take_more(shelf, size, segment)? {
            return Ok(id);
        }
        if self.release_oversize(shelf, size)?
            && let Some(id) = self.take_more(shelf, size, segment)?
        {
            return Ok(id);
        }
        if self.captures.is_empty() {
            self.release_cached()?;
            self.counters.retries += 1;
            if let Some(id) = self.take_more(shelf, size, segment)? {
                return Ok(id);
            }
        }
        self.counters.out_of_memory += 1;
        Err(self.shortage(asked, segment))
    }

    /// Describes the state in which memory did not suffice.
    #[cold]
    pub(super) fn shortage(&self, asked: u64, segment: u64) -> Failure {
        Failure::OutOfMemory(Box::new(Shortage {
            asked: Bytes(asked),
            segment: Bytes(segment),
            limit: Some(Bytes(self.rules.limit)).filter(|limit| limit.0 < u64::MAX),
            device_free: self.memory.info().ok().and_then(left),
            reserved: Bytes(self.counters.now(Metric::ReservedBytes)),
            in_use: Bytes(self.counters.now(Metric::AllocatedBytes)),
            largest_free: Bytes(self.shelves.largest(&self.blocks)),
        }))
    }

    /// Calls all callbacks; returns whether any freed memory.
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
        shelf: FreeListId,
        size: u64,
        segment: u64,
    ) -> Result<Option<BlockId>, Failure> {
        let reserved = self.counters.now(Metric::ReservedBytes);
        if reserved.checked_add(segment).is_none_or(|sum| sum > self.rules.limit) {
            return Ok(None);
        }
        if self.rules.expandable {
            return self.expand(shelf, size);
        }
        let given = unless_refused(self.memory.reserve(Bytes(segment)))?;
        // A device may return more than requested.
        let Some(Region { address, size: Bytes(size) }) = given else { return Ok(None) };
        let id = self.blocks.add(Block::whole(address, size, list_of(shelf)));
        self.segments.insert(address, HeldSegment { size, first: id, page: None });
        self.count_segment(shelf, size);
        self.counters.device_allocations += 1;
        Ok(Some(id))
    }

    /// Counts a new region.
    pub(super) fn count_segment(&mut self, shelf: FreeListId, size: u64) {
        let kind = kind_of(shelf);
        self.counters.add(kind, Metric::Segment, 1);
        self.counters.add(kind, Metric::ReservedBytes, size);
        self.shelves.pool_of(shelf).reserved += size;
        if size >= self.rules.max_split {
            self.counters.oversize_segments.add();
        }
    }

    /// Records when a block became free, in searches.
    #[cold]
    pub(super) fn note_age(&mut self, id: BlockId, shelf: FreeListId) {
        let now = self.shelves.pool_of(shelf).searches[kind_of(shelf) as usize];
        if let Some(ages) = &mut self.ages {
            let place = id as usize;
            if ages.len() <= place {
                ages.resize(place + 1, 0);
            }
            ages[place] = now;
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
        let now = self.shelves.pools[0].searches[SegmentKind::Large as usize];
        let ages = self.ages.as_deref().unwrap_or_default();
        let age = |id: BlockId| now.saturating_sub(ages.get(id as usize).copied().unwrap_or(0));
        let mut old: Vec<_> = self
            .shelves
            .of_pool(0, SegmentKind::Large)
            .flat_map(|shelf| self.shelves[shelf].free.in_order(&self.blocks))
            .filter(|id| self.is_whole(*id))
            .map(|id| (id, self.blocks[id].size, age(id)))
            .collect();
        let mut reclaimed = 0;
        while reclaimed < target && !old.is_empty() {
            let sum: u64 = old.iter().map(|(_, _, age)| age).sum();
            let mean = sum as f64 / old.len() as f64;
            let before = old.len();
            let mut kept = Vec::new();
            for (id, size, age) in old {
                if age as f64 >= mean {
                    self.release_block(id)?;
                    reclaimed += size;
                } else {
                    kept.push((id, size, age));
                }
            }
            if kept.len() == before {
                break;
            }
            old = kept;
        }
        Ok(())
    }

    /// Returns whether a free block is a complete region.
    pub(super) fn is_whole(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        !block.is_part() && block.list & EXPANDABLE == 0
    }

    /// Frees as many oversize blocks as a request needs; returns whether that sufficed.
    fn release_oversize(&mut self, shelf: FreeListId, size: u64) -> Result<bool, Failure> {
        if self.rules.max_split == u64::MAX {
            return Ok(false);
        }
        let target = size.max(self.rules.max_split);
        let free = self.shelves[shelf].free.in_order(&self.blocks).into_iter();
        let oversize: Vec<_> = free
            .map(|id| (id, self.blocks[id].size))
            .filter(|(id, size)| *size >= self.rules.max_split && self.is_whole(*id))
            .collect();
        if let Some((enough, _)) = oversize.iter().find(|(_, size)| *size >= target) {
            self.release_block(*enough)?;
            return Ok(true);
        }
        let mut released = 0;
        for (id, size) in oversize.into_iter().rev() {
            if released >= target {
                break;
            }
            self.release_block(id)?;
            released += size;
        }
        Ok(released >= target)
    }
}
