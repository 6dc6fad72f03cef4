//! Bookkeeping for policies without statistics of their own: the owners of blocks, and the sums.

use crate::blocks::{Block, BlockId, Blocks};
use crate::failure::{Failure, Shortage};
use crate::owner;
use crate::policy::{Allocation, BlockMap, BlockState, Usage};
use crate::totals::left;
use gpu_core::{Bytes, DeviceMemory};

/// The blocks of a policy and their sums.
#[derive(Debug)]
pub(crate) struct Ledger {
    owner: u32,
    pub(crate) blocks: Blocks,
    pub(crate) usage: Usage,
}

impl Ledger {
    /// Creates an empty ledger. All other ledgers reject its allocations.
    pub(crate) fn new() -> Self {
        Ledger { owner: owner::next(), blocks: Blocks::default(), usage: Usage::default() }
    }

    /// Allocates a block.
    pub(crate) fn hand_out(&mut self, id: BlockId, requested: u64) -> Allocation {
        let block = &mut self.blocks[id];
        (block.state, block.requested) = (BlockState::Active, requested);
        let (address, size) = (block.address, block.size);
        self.usage.hand_out(size, requested);
        Allocation { address, size, block: id, owner: self.owner }
    }

    /// Returns the block of an allocation, which must be in this state.
    pub(crate) fn own(
        &self,
        allocation: &Allocation,
        state: BlockState,
    ) -> Result<BlockId, Failure> {
        let Allocation { address, block, owner, .. } = *allocation;
        let is_it = |its: &&Block| its.address == address && its.state == state;
        match self.blocks.get(block).filter(is_it) {
            Some(_) if owner == self.owner => Ok(block),
            _ => Err(Failure::Foreign { address }),
        }
    }

    /// Takes back an allocated block and puts it into this state.
    pub(crate) fn take_back(
        &mut self,
        allocation: &Allocation,
        state: BlockState,
    ) -> Result<BlockId, Failure> {
        let id = self.own(allocation, BlockState::Active)?;
        let block = &mut self.blocks[id];
        self.usage.take_back(block.size, block.requested);
        (block.requested, block.state) = (0, state);
        Ok(id)
    }

    /// Counts an out-of-memory error and describes the state: `usage` with the largest free block.
    pub(crate) fn shortage(
        &mut self,
        memory: &impl DeviceMemory,
        asked: u64,
        segment: u64,
        limit: Option<Bytes>,
        usage: Usage,
    ) -> Failure {
        self.usage.out_of_memory += 1;
        Failure::OutOfMemory(Box::new(Shortage {
            asked: Bytes(asked),
            segment: Bytes(segment),
            limit,
            device_free: memory.info().ok().and_then(left),
            reserved: usage.reserved,
            in_use: usage.in_use,
            largest_free: usage.largest_free,
        }))
    }
}

/// Returns a block in the form that `segments` uses.
pub(crate) fn shown(block: &Block) -> BlockMap {
    let Block { address, size, requested, state, .. } = *block;
    BlockMap { address, size: Bytes(size), requested: Bytes(requested), state }
}
