//! Returning memory to the device.

use super::counters::Metric;
use super::free_lists::{EXPANDABLE, free_list_of, kind_of};
use super::{Caching, Events, FreeListId};
use crate::blocks::BlockId;
use crate::failure::Failure;
use crate::segment::SegmentKind;
use gpu_core::{Bytes, DeviceMemory, Error, Region};

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Waits for all work and frees as much as possible: the large blocks and then the small ones,
    /// by stream, size and address, and the free memory of private pools that no graph uses.
    ///
    /// # Errors
    /// The first failure of the device; the other blocks are freed nevertheless.
    pub(super) fn release_cached(&mut self) -> Result<(), Failure> {
        self.wait_for_all_work()?;
        let mut result = self.release_free(0, SegmentKind::Large);
        result = result.and(self.release_free(0, SegmentKind::Small));
        for pool in 1..self.shelves.pools.len() {
            if self.shelves.pools[pool].users == 0 {
                for kind in [SegmentKind::Small, SegmentKind::Large] {
                    result = result.and(self.release_free(pool as u32, kind));
                }
            }
        }
        Ok(result?)
    }

    /// Frees the unsplit blocks of a pool, and unmaps the free pages of its expandable segments.
    fn release_free(&mut self, pool: u32, kind: SegmentKind) -> Result<(), Error> {
        let shelves = self.shelves.of_pool(pool, kind);
        let free = shelves.flat_map(|shelf| self.shelves[shelf].free.in_order(&self.blocks));
        let (expandable, ordinary): (Vec<_>, Vec<_>) =
            free.partition(|id| self.blocks[*id].list & EXPANDABLE != 0);
        let mut result = Ok(());
        for id in ordinary {
            if self.is_whole(id) {
                result = result.and(self.release_block(id));
            }
        }
        for id in expandable {
            result = result.and(self.shrink(id));
        }
        result
    }

    /// Frees an unsplit free block.
    pub(super) fn release_block(&mut self, id: BlockId) -> Result<(), Error> {
        let block = self.blocks[id];
        self.memory.release(Region { address: block.address, size: Bytes(block.size) })?;
        self.unshelve(id);
        self.blocks.remove(id);
        self.segments.remove(&block.address);
        let shelf = free_list_of(block.list);
        self.counters.take(kind_of(shelf), Metric::Segment, 1);
        self.uncount(shelf, block.size);
        if block.size >= self.rules.max_split {
            self.counters.oversize_segments.take();
        }
        Ok(())
    }

    /// Updates the counters for freed memory.
    pub(super) fn uncount(&mut self, shelf: FreeListId, size: u64) {
        self.counters.take(kind_of(shelf), Metric::ReservedBytes, size);
        self.shelves.pool_of(shelf).reserved -= size;
        self.counters.device_frees += 1;
    }
}
