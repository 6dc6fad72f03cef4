//! The addresses in use on a modelled device.

use crate::blocks::{Block, BlockId, Blocks, NONE};
use crate::free_set::FreeSet;
use crate::policy::BlockState;

/// The lowest address.
const BASE: u64 = 0x7f00_0000_0000;

/// The addresses up to the highest in use, as a linked list of used blocks and gaps.
#[derive(Debug)]
pub(super) struct Addresses {
    blocks: Blocks,
    gaps: FreeSet,
    /// The highest block, which is in use.
    last: BlockId,
    end: u64,
}

impl Default for Addresses {
    fn default() -> Self {
        let (blocks, gaps) = (Blocks::default(), FreeSet::default());
        Addresses { blocks, gaps, last: NONE, end: BASE }
    }
}

impl Addresses {
    /// Takes `size` bytes, and returns their ID and start address; `None` if the addresses are used
    /// up.
    pub(super) fn take(&mut self, size: u64) -> Option<(BlockId, u64)> {
        let Some(gap) = self.gaps.best_fit(&mut self.blocks, size) else {
            return self.append(size);
        };
        self.gaps.remove(&mut self.blocks, gap);
        if self.blocks[gap].size > size {
            let rest = self.blocks.split(gap, size);
            self.gaps.insert(&mut self.blocks, rest);
        }
        self.blocks[gap].state = BlockState::Active;
        Some((gap, self.blocks[gap].address))
    }

    fn append(&mut self, size: u64) -> Option<(BlockId, u64)> {
        let (address, previous) = (self.end, self.last);
        self.end = address.checked_add(size)?;
        let state = BlockState::Active;
        let id = self.blocks.add(Block { previous, state, ..Block::whole(address, size, 0) });
        self.blocks[previous].next = id;
        self.last = id;
        Some((id, address))
    }

    /// Turns a used block into a gap, and returns its size.
    pub(super) fn vacate(&mut self, id: BlockId) -> u64 {
        let Block { size, previous, next, .. } = self.blocks[id];
        self.blocks[id].state = BlockState::Free;
        let mut whole = id;
        if self.is_gap(next) {
            self.gaps.remove(&mut self.blocks, next);
            self.blocks.join_next(id);
        }
        if self.is_gap(previous) {
            self.gaps.remove(&mut self.blocks, previous);
            self.blocks.join_next(previous);
            whole = previous;
        }
        if self.blocks[whole].next == NONE {
            let top = self.blocks.remove(whole);
            (self.last, self.end) = (top.previous, top.address);
        } else {
            self.gaps.insert(&mut self.blocks, whole);
        }
        size
    }

    fn is_gap(&self, id: BlockId) -> bool {
        self.blocks[id].state == BlockState::Free
    }
}
