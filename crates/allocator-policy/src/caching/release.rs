//! Returns memory to the device.

use super::counters::Metric;
use super::free_lists::{EXPANDABLE, UNMAPPED, free_list_of, kind_of};
use super::sizes::SMALL_SEGMENT;
use super::{Caching, Events, FreeListId};
use crate::blocks::BlockId;
use crate::failure::Failure;
use crate::policy::{BlockState, Stream};
use crate::segment::SegmentKind;
use gpu_core::{Bytes, DeviceMemory, Error, Region};

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Waits for all work and frees as much as possible: first the large blocks and then the small
    /// ones, by stream, size and address; then the free memory of private pools that no graph uses.
    ///
    /// # Errors
    /// The first failure of the device. The other blocks are freed nevertheless.
    pub(super) fn release_cached(&mut self) -> Result<(), Failure> {
        self.wait_for_all_work()?;
        let mut result = self.release_free(0, SegmentKind::Large);
        result = result.and(self.release_free(0, SegmentKind::Small));
        for pool in 1..self.free_lists.pools.len() {
            if self.free_lists.pools[pool].users == 0 {
                for kind in [SegmentKind::Small, SegmentKind::Large] {
                    result = result.and(self.release_free(pool as u32, kind));
                }
            }
        }
        Ok(result?)
    }

    /// Frees the unsplit blocks of a pool, and unmaps the free pages of its expandable segments.
    ///
    /// It examines only blocks that became free since the last call, because others have no memory
    /// to release.
    fn release_free(&mut self, pool: u32, kind: SegmentKind) -> Result<(), Error> {
        let mut found = self.take_queue(pool, kind);
        let rank = |id: &BlockId| (self.blocks[*id].list & EXPANDABLE, self.rank(*id));
        found.sort_unstable_by_key(rank);
        let mut result = Ok(());
        for id in found {
            let released = match self.blocks[id].list & EXPANDABLE {
                0 => self.release_block(id),
                _ => self.shrink(id),
            };
            if released.is_err() && self.may_release(id) {
                self.enqueue(id);
            }
            result = result.and(released);
        }
        result
    }

    /// Empties the queue of a pool, and returns the blocks in it that may be released.
    fn take_queue(&mut self, pool: u32, kind: SegmentKind) -> Vec<BlockId> {
        let mut queue =
            std::mem::take(&mut self.free_lists.pools[pool as usize].queue[kind as usize]);
        queue.retain(|id| {
            let block = self.blocks[*id];
            let free_list = free_list_of(block.list);
            // Removed blocks are no longer queued, but another pool may have reused their IDs.
            let is_ours = block.queued
                && kind_of(free_list) == kind
                && self.free_lists[free_list].pool == pool;
            if is_ours {
                self.blocks[*id].queued = false;
            }
            is_ours && self.may_release(*id)
        });
        queue
    }

    /// Returns whether a block is free, and is a whole region or may contain a whole page.
    pub(super) fn may_release(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        let is_large_enough = match block.list & (EXPANDABLE | UNMAPPED) {
            0 => !block.is_part(),
            EXPANDABLE => block.size >= SMALL_SEGMENT,
            _ => false,
        };
        is_large_enough && block.state == BlockState::Free
    }

    /// Queues a block to examine when the cache is emptied.
    pub(super) fn enqueue(&mut self, id: BlockId) {
        let free_list = free_list_of(self.blocks[id].list);
        let (pool, kind) = (self.free_lists[free_list].pool, kind_of(free_list));
        let (pool_, kind_) = (pool as usize, kind as usize);
        if self.free_lists.pools[pool_].queue[kind_].len() > 2 * self.blocks.len() {
            // Most of the queue has been reused since.
            let live = self.take_queue(pool, kind);
            live.iter().for_each(|id| self.blocks[*id].queued = true);
            self.free_lists.pools[pool_].queue[kind_] = live;
        }
        self.blocks[id].queued = true;
        self.free_lists.pools[pool_].queue[kind_].push(id);
    }

    /// Returns the rank of a block in the order in which PyTorch releases: by stream, then by size
    /// and address.
    pub(super) fn rank(&self, id: BlockId) -> (Stream, u128) {
        let block = &self.blocks[id];
        (self.free_lists[free_list_of(block.list)].stream, block.key())
    }

    /// Frees an unsplit free block.
    pub(super) fn release_block(&mut self, id: BlockId) -> Result<(), Error> {
        let block = self.blocks[id];
        self.memory.release(Region { address: block.address, size: Bytes(block.size) })?;
        self.remove_free(id);
        self.blocks.remove(id);
        self.segments.remove(&block.address);
        let free_list = free_list_of(block.list);
        self.counters.take(kind_of(free_list), Metric::Segment, 1);
        self.uncount(free_list, block.size);
        if block.size >= self.rules.max_split {
            self.counters.oversize_segments.take();
        }
        Ok(())
    }

    /// Updates the counters for freed memory.
    pub(super) fn uncount(&mut self, free_list: FreeListId, size: u64) {
        self.counters.take(kind_of(free_list), Metric::ReservedBytes, size);
        self.free_lists.pool_of(free_list).reserved -= size;
        self.counters.device_frees += 1;
    }
}
