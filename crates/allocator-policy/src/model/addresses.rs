//! Which addresses of a modelled device are taken.

use crate::blocks::{Block, BlockId, Blocks, NONE};
use crate::free_set::{Free, FreeSet};
use crate::policy::BlockState;

/// Where addresses begin.
const BASE: u64 = 0x7f00_0000_0000;

/// The addresses up to the last that is taken, as a chain of what is taken and the gaps between.
#[derive(Debug)]
pub(super) struct Addresses {
    blocks: Blocks,
    gaps: FreeSet,
    /// The highest block, which is taken.
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
    /// Takes `size` bytes, and returns their number and where they begin; `None` where no addresses
    /// are left.
    pub(super) fn take(&mut self, size: u64) -> Option<(BlockId, u64)> {
        let Some(gap) = self.gaps.take_best_fit(size, |_| true).ok().flatten() else {
            return self.append(size);
        };
        if gap.size > size {
            let rest = self.blocks.split(gap.block, size);
            self.add_gap(rest);
        }
        self.blocks[gap.block].state = BlockState::Active;
        Some((gap.block, gap.address))
    }

    fn append(&mut self, size: u64) -> Option<(BlockId, u64)> {
        let (address, previous) = (self.end, self.last);
        self.end = address.checked_add(size)?;
        let state = BlockState::Active;
        let id = self.blocks.add(Block { previous, state, ..Block::whole(address, size, 0) });
        if previous != NONE {
            self.blocks[previous].next = id;
        }
        self.last = id;
        Some((id, address))
    }

    /// Makes a gap of what was taken, and returns how long that was.
    pub(super) fn vacate(&mut self, id: BlockId) -> u64 {
        let Block { size, previous, next, .. } = self.blocks[id];
        self.blocks[id].state = BlockState::Free;
        let mut whole = id;
        if next != NONE && self.is_gap(next) {
            self.remove_gap(next);
            self.blocks.join_next(id);
        }
        if previous != NONE && self.is_gap(previous) {
            self.remove_gap(previous);
            self.blocks.join_next(previous);
            whole = previous;
        }
        if self.blocks[whole].next == NONE {
            let top = self.blocks.remove(whole);
            (self.last, self.end) = (top.previous, top.address);
        } else {
            self.add_gap(whole);
        }
        size
    }

    fn is_gap(&self, id: BlockId) -> bool {
        self.blocks[id].state == BlockState::Free
    }

    fn add_gap(&mut self, id: BlockId) {
        let Block { size, address, .. } = self.blocks[id];
        self.gaps.insert(Free { size, address, block: id });
    }

    fn remove_gap(&mut self, id: BlockId) {
        let Block { size, address, .. } = self.blocks[id];
        self.gaps.remove(size, address);
    }
}
