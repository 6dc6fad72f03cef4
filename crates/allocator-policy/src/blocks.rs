//! The pieces of regions, each linked with its neighbours by address.

use crate::policy::BlockState;

/// Names a block within its [`Blocks`]; a number is used again after its block is gone.
pub(crate) type BlockId = u32;

/// Stands for 'no block'. A block has this number all the same, which is of no region: as a
/// neighbour it is one that is handed out, in the order of best fit it comes behind all others, so
/// that neither needs a branch of its own.
pub(crate) const NONE: BlockId = 0;

/// A piece of a region; a line of the processor's cache, so that a look at one is a look at memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    /// Where it begins.
    pub(crate) address: u64,
    /// How long it is.
    pub(crate) size: u64,
    /// What the program asked for; 0 while nobody has it.
    pub(crate) requested: u64,
    /// The neighbour below, in the same region.
    pub(crate) previous: BlockId,
    /// The neighbour above, in the same region.
    pub(crate) next: BlockId,
    /// Its place in a [`FreeSet`](crate::free_set::FreeSet) while it is in one.
    pub(crate) place: Place,
    /// Which of the policy's lists of free blocks it belongs to.
    pub(crate) list: u32,
    /// Whether it is handed out.
    pub(crate) state: BlockState,
}

/// The place of a block in a heap: each comes before its children in the order of best fit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The first of its children.
    pub(crate) child: BlockId,
    /// What is left of it among the children of its parent; for the first, the parent.
    pub(crate) left: BlockId,
    /// What is right of it.
    pub(crate) right: BlockId,
}

impl Block {
    /// Makes the one free block of a new region.
    pub(crate) fn whole(address: u64, size: u64, list: u32) -> Self {
        let (previous, next, state) = (NONE, NONE, BlockState::Free);
        let place = Place::default();
        Block { address, size, requested: 0, previous, next, place, list, state }
    }

    /// Tells whether the block is only a part of its region.
    pub(crate) fn is_part(&self) -> bool {
        self.previous | self.next != NONE
    }

    /// Returns its place in the order of best fit, as one number, which is compared without a branch.
    #[inline]
    pub(crate) fn key(&self) -> u128 {
        u128::from(self.size) << 64 | u128::from(self.address)
    }

    /// Returns where it ends.
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

// What is always inlined would else be handed a block by its address, and read it again as it is
// written, for which the processor waits.
impl Blocks {
    /// Returns the block, if the number is of this table; a vacant place counts as free.
    pub(crate) fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id as usize)
    }

    /// Adds a block that has no neighbours.
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

    /// Shortens a block to `size` bytes and returns the new free block of what remains above.
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
            place: Place::default(),
            list: lower.list,
            state: BlockState::Free,
        });
        self[id].size = size;
        self[id].next = upper;
        self[lower.next].previous = upper;
        upper
    }

    /// Lengthens a block by its neighbour above, which is gone then.
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

    /// Removes a block; its neighbours, if any, no longer know of it.
    pub(crate) fn remove(&mut self, id: BlockId) -> Block {
        let block = self[id];
        self[block.previous].next = NONE;
        self[block.next].previous = NONE;
        self.vacate(id);
        block
    }

    fn vacate(&mut self, id: BlockId) {
        self[id].state = BlockState::Free;
        self.vacant.push(id);
    }
}

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
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
