//! The blocks of regions, each linked with its neighbours by address.

use crate::policy::BlockState;

/// Identifies a block within its [`Blocks`]; an ID is reused once its block is gone.
pub(crate) type BlockId = u32;

/// Represents "no block". It is nevertheless the ID of an actual block, which belongs to no region.
/// As a neighbour, this block counts as in use, and it comes last in the order of best fit, so
/// neither case needs a branch.
pub(crate) const NONE: BlockId = 0;

/// A block of a region. It fills one cache line, so accessing it is a single memory access.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    /// Its start address.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The requested size; 0 while it is free.
    pub(crate) requested: u64,
    /// The neighbour below, in the same region.
    pub(crate) previous: BlockId,
    /// The neighbour above, in the same region.
    pub(crate) next: BlockId,
    /// Its position in a [`FreeSet`](crate::free_set::FreeSet) while it is in one.
    pub(crate) links: HeapLinks,
    /// The free list of the policy to which it belongs.
    pub(crate) list: u32,
    pub(crate) state: BlockState,
    /// Whether the policy has queued it for when it next empties its cache.
    pub(crate) queued: bool,
}

/// The position of a block in a heap; a parent comes before its children in the order of best fit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeapLinks {
    /// Its first child.
    pub(crate) child: BlockId,
    /// Its previous sibling; for the first child, the parent.
    pub(crate) left: BlockId,
    /// Its next sibling.
    pub(crate) right: BlockId,
}

impl Block {
    /// Creates the single free block of a new region.
    pub(crate) fn whole(address: u64, size: u64, list: u32) -> Self {
        let (previous, next, state) = (NONE, NONE, BlockState::Free);
        let links = HeapLinks::default();
        Block { address, size, requested: 0, previous, next, links, list, state, queued: false }
    }

    /// Returns whether the block is only a part of its region.
    pub(crate) fn is_part(&self) -> bool {
        self.previous | self.next != NONE
    }

    /// Returns its rank in the order of best fit, as one number, so that a comparison needs no
    /// branch.
    #[inline]
    pub(crate) fn key(&self) -> u128 {
        u128::from(self.size) << 64 | u128::from(self.address)
    }

    /// Returns its end address.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.size
    }
}

/// All blocks of a policy.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Default for Blocks {
    fn default() -> Self {
        let none = Block { state: BlockState::Active, ..Block::whole(u64::MAX, u64::MAX, 0) };
        Blocks { blocks: vec![none], vacant: Vec::new() }
    }
}

// `inline(always)`, because a function that is not inlined receives the block by reference and
// reads it right after it was written, which stalls the processor.
impl Blocks {
    /// Returns the block if the ID belongs to this table; an unused entry counts as free.
    pub(crate) fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id as usize)
    }

    /// Returns the number of entries in this table, including unused ones.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a block without neighbours.
    #[inline(always)]
    pub(crate) fn add(&mut self, block: Block) -> BlockId {
        match self.vacant.pop() {
            Some(id) => {
                self[id] = block;
                id
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as BlockId
            }
        }
    }

    /// Shortens a block to `size` bytes and returns the new free block above it.
    #[inline(always)]
    pub(crate) fn split(&mut self, id: BlockId, size: u64) -> BlockId {
        let lower = self[id];
        debug_assert!(0 < size && size < lower.size, "a split leaves two pieces");
        let upper = self.add(Block {
            address: lower.address + size,
            size: lower.size - size,
            requested: 0,
            previous: id,
            next: lower.next,
            links: HeapLinks::default(),
            list: lower.list,
            state: BlockState::Free,
            queued: false,
        });
        self[id].size = size;
        self[id].next = upper;
        self[lower.next].previous = upper;
        upper
    }

    /// Extends a block by its neighbour above, and removes that neighbour.
    #[inline(always)]
    pub(crate) fn join_next(&mut self, id: BlockId) {
        let upper_id = self[id].next;
        let upper = self[upper_id];
        debug_assert_eq!(self[id].end(), upper.address, "neighbours touch");
        self[id].size += upper.size;
        self[id].next = upper.next;
        self[upper.next].previous = id;
        self.vacate(upper_id);
    }

    /// Removes a block and unlinks it from its neighbours.
    pub(crate) fn remove(&mut self, id: BlockId) -> Block {
        let block = self[id];
        self[block.previous].next = NONE;
        self[block.next].previous = NONE;
        self.vacate(id);
        block
    }

    fn vacate(&mut self, id: BlockId) {
        (self[id].state, self[id].queued) = (BlockState::Free, false);
        self.vacant.push(id);
    }
}

#[cfg(test)]
thread_local! {
    /// The number of block accesses on this thread.
    pub(crate) static ACCESSES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;
    fn index(&self, id: BlockId) -> &Block {
        #[cfg(test)]
        ACCESSES.set(ACCESSES.get() + 1);
        &self.blocks[id as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        #[cfg(test)]
        ACCESSES.set(ACCESSES.get() + 1);
        &mut self.blocks[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(blocks: &Blocks, first: BlockId) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut id = first;
        while id != NONE {
            let block = blocks[id];
            found.push((block.address, block.size));
            assert!(block.next == NONE || blocks[block.next].previous == id);
            id = block.next;
        }
        found
    }

    #[test]
    fn split_and_merge_keep_neighbour_links() {
        let mut blocks = Blocks::default();
        let a = blocks.add(Block::whole(1000, 100, 0));
        let c = blocks.split(a, 60);
        let b = blocks.split(a, 20);
        assert_eq!(chain(&blocks, a), [(1000, 20), (1020, 40), (1060, 40)]);
        assert_eq!((blocks[c].previous, blocks[b].previous), (b, a));
        assert!(blocks[a].is_part());

        blocks.join_next(b);
        assert_eq!(chain(&blocks, a), [(1000, 20), (1020, 80)]);
        blocks.join_next(a);
        assert_eq!(chain(&blocks, a), [(1000, 100)]);
        assert!(!blocks[a].is_part());
    }

    #[test]
    fn slots_are_reused() {
        let mut blocks = Blocks::default();
        let a = blocks.add(Block::whole(0, 10, 0));
        let b = blocks.split(a, 5);
        blocks.join_next(a);
        assert_eq!(blocks.get(b).map(|block| block.state), Some(BlockState::Free));
        assert_eq!(blocks.add(Block::whole(50, 10, 1)), b);
        assert!(blocks.get(7).is_none());
    }

    #[test]
    fn none_sentinel_is_active_and_sorts_last() {
        let mut blocks = Blocks::default();
        let a = blocks.add(Block::whole(0, 10, 0));
        blocks.split(a, 5);
        blocks.join_next(a);
        blocks.remove(a);
        assert_eq!(blocks[NONE].state, BlockState::Active);
        assert!(blocks[NONE].key() > Block::whole(u64::MAX - 1, u64::MAX, 0).key());
    }
}
