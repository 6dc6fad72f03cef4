//! The free blocks that are whole regions, in the orders in which garbage collection and oversize
//! requests release them.

use super::free_lists::{EXPANDABLE, FreeListId, free_list_of, kind_of};
use super::{Caching, Events};
use crate::blocks::{Block, BlockId, Blocks};
use crate::policy::BlockState;
use crate::segment::SegmentKind;
use gpu_core::DeviceMemory;
use std::collections::{BTreeMap, BTreeSet};

/// The free whole regions of an allocator. Only settings that release single regions need them.
#[derive(Debug, Default)]
pub(super) struct WholeBlocks {
    /// The large regions of the common pool, by the number of searches when they became free.
    by_time: BTreeSet<(u64, BlockId)>,
    /// The time of each region in `by_time`.
    times: BTreeMap<BlockId, u64>,
    /// The sum of `times`.
    sum: u128,
    /// The regions of each free list by size and address ([`Block::key`]).
    by_size: BTreeMap<(FreeListId, u128), BlockId>,
}

impl WholeBlocks {
    fn add(&mut self, blocks: &Blocks, id: BlockId, time: Option<u64>) {
        let Block { list, .. } = blocks[id];
        self.by_size.insert((free_list_of(list), blocks[id].key()), id);
        if let Some(time) = time {
            self.by_time.insert((time, id));
            self.times.insert(id, time);
            self.sum += u128::from(time);
        }
    }

    fn remove(&mut self, blocks: &Blocks, id: BlockId) {
        self.by_size.remove(&(free_list_of(blocks[id].list), blocks[id].key()));
        if let Some(time) = self.times.remove(&id) {
            self.by_time.remove(&(time, id));
            self.sum -= u128::from(time);
        }
    }

    /// Returns the mean age of the large regions in searches, if there are any.
    pub(super) fn mean_age(&self, now: u64) -> Option<f64> {
        let count = self.by_time.len() as u128;
        (count > 0).then(|| (count * u128::from(now) - self.sum) as f64 / count as f64)
    }

    /// Returns the large regions of at least this age, oldest first.
    pub(super) fn at_least(&self, age: f64, now: u64) -> impl Iterator<Item = BlockId> + '_ {
        let is_old = move |(time, _): &&(u64, BlockId)| (now - time) as f64 >= age;
        self.by_time.iter().take_while(is_old).map(|(_, id)| *id)
    }

    /// Returns the best fit among the regions of a free list.
    pub(super) fn first(&self, free_list: FreeListId, size: u64) -> Option<BlockId> {
        self.of_size(free_list, size).next()
    }

    /// Returns the largest region of a free list, if it has at least `size` bytes.
    pub(super) fn last(&self, free_list: FreeListId, size: u64) -> Option<BlockId> {
        self.of_size(free_list, size).next_back()
    }

    fn of_size(
        &self,
        free_list: FreeListId,
        size: u64,
    ) -> impl DoubleEndedIterator<Item = BlockId> + '_ {
        let range = (free_list, u128::from(size) << 64)..=(free_list, u128::MAX);
        self.by_size.range(range).map(|(_, id)| *id)
    }
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Starts to keep the free whole regions in order if the settings need it. Regions that are
    /// already free count as free since the first search.
    pub(super) fn keep_order(&mut self) {
        let needed = self.rules.garbage.is_some() || self.rules.max_split != u64::MAX;
        if !needed || self.whole.is_some() {
            return;
        }
        let mut whole = WholeBlocks::default();
        for held in self.segments.values() {
            if self.blocks[held.first].state == BlockState::Free && self.is_whole(held.first) {
                let ages = self.ages_with(held.first);
                whole.add(&self.blocks, held.first, ages.then_some(0));
            }
        }
        self.whole = Some(whole);
    }

    /// Returns whether garbage collection may release a whole region.
    fn ages_with(&self, id: BlockId) -> bool {
        let free_list = free_list_of(self.blocks[id].list);
        kind_of(free_list) == SegmentKind::Large && self.free_lists[free_list].pool == 0
    }

    /// Adds a block that became free, if it is a whole region.
    #[cold]
    pub(super) fn note_free(&mut self, id: BlockId) {
        if !self.is_whole(id) {
            return;
        }
        let searches = self.free_lists.pools[0].searches[SegmentKind::Large as usize];
        let time = self.ages_with(id).then_some(searches);
        if let Some(whole) = &mut self.whole {
            whole.add(&self.blocks, id, time);
        }
    }

    /// Removes a block that is no longer free.
    #[cold]
    pub(super) fn note_taken(&mut self, id: BlockId) {
        if self.is_whole(id)
            && let Some(whole) = &mut self.whole
        {
            whole.remove(&self.blocks, id);
        }
    }

    /// Returns whether a free block is a complete region.
    pub(super) fn is_whole(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        !block.is_part() && block.list & EXPANDABLE == 0
    }
}
