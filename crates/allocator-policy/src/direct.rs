//! Memory straight from the device, as a program has that calls `cudaMalloc` each time.

use crate::blocks::{Block, BlockId, Blocks};
use crate::failure::{Failure, Shortage, unless_refused};
use crate::model::driver_rounded;
use crate::owner;
use crate::policy::{Allocation, BlockMap, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use crate::sums::left;
use gpu_core::{Bytes, DeviceMemory, Region};
use std::collections::BTreeMap;

/// Asks the device for each allocation and gives each back at once.
///
/// An allocation is charged what a driver takes for it: 512-byte steps below 1 MiB, whole pages of
/// 2 MiB from there on. The driver packs small ones into pages, which is not modelled. Nothing is
/// cached, so nothing is freed and held, but what the device did not take back; that goes at
/// [`empty_cache`](Policy::empty_cache) or when this is dropped.
#[derive(Debug)]
pub struct Direct<M: DeviceMemory> {
    memory: M,
    owner: u32,
    blocks: Blocks,
    held: BTreeMap<u64, BlockId>,
    usage: Usage,
}

impl<M: DeviceMemory> Direct<M> {
    /// Makes a policy that holds nothing yet.
    pub fn new(memory: M) -> Self {
        Direct {
            memory,
            owner: owner::next(),
            blocks: Blocks::default(),
            held: BTreeMap::new(),
            usage: Usage::default(),
        }
    }

    /// Returns the memory of the device.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn shortage(&mut self, asked: u64, segment: u64) -> Failure {
        self.usage.out_of_memory += 1;
        Failure::OutOfMemory(Box::new(Shortage {
            asked: Bytes(asked),
            segment: Bytes(segment),
            limit: None,
            device_free: self.memory.info().ok().and_then(left),
            reserved: self.usage.reserved,
            in_use: self.usage.in_use,
            largest_free: self.usage().largest_free,
        }))
    }

    /// Returns the block of an allocation that is in this state.
    fn own(&self, allocation: &Allocation, state: BlockState) -> Result<BlockId, Failure> {
        let Allocation { address, block, owner, .. } = *allocation;
        let its = self.blocks.get(block).filter(|its| its.address == address && its.state == state);
        match its {
            Some(_) if owner == self.owner => Ok(block),
            _ => Err(Failure::Foreign { address }),
        }
    }

    fn take_back(&mut self, id: BlockId, state: BlockState) {
        let block = &mut self.blocks[id];
        self.usage.take_back(block.size, block.requested);
        (block.requested, block.state) = (0, state);
    }

    fn give_back(&mut self, id: BlockId) -> Result<u64, Failure> {
        let block = &mut self.blocks[id];
        block.state = BlockState::Free;
        let (address, size) = (block.address, block.size);
        self.memory.release(Region { address, size: Bytes(size) })?;
        self.held.remove(&address);
        self.blocks.remove(id);
        self.usage.give_to_device(size);
        Ok(size)
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.held.values().map(|id| &self.blocks[*id])
    }
}

impl<M: DeviceMemory> Policy for Direct<M> {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn allocate(&mut self, size: Bytes, _stream: Stream) -> Result<Allocation, Failure> {
        let Some(rounded) = driver_rounded(size.0.max(1)) else {
            return Err(self.shortage(size.0, size.0));
        };
        let Some(region) = unless_refused(self.memory.reserve(Bytes(rounded)))? else {
            return Err(self.shortage(size.0, rounded));
        };
        let Region { address, size: Bytes(length) } = region;
        let state = BlockState::Active;
        let block = Block { requested: size.0, state, ..Block::whole(address, length, 0) };
        let id = self.blocks.add(block);
        self.held.insert(address, id);
        self.usage.take_of_device(length);
        self.usage.hand_out(length, size.0);
        Ok(Allocation { address, size: length, block: id, owner: self.owner })
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let id = self.own(&allocation, BlockState::Active)?;
        self.take_back(id, BlockState::Free);
        self.give_back(id).map(drop)
    }

    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure> {
        let id = self.own(&allocation, BlockState::Active)?;
        self.take_back(id, BlockState::AwaitingFree);
        Ok(Retired(allocation))
    }

    fn complete(&mut self, retired: Retired) -> Result<(), Failure> {
        let id = self.own(&retired.0, BlockState::AwaitingFree)?;
        self.give_back(id).map(drop)
    }

    fn empty_cache(&mut self) -> Result<Bytes, Failure> {
        let is_free = |id: &BlockId| self.blocks[*id].state == BlockState::Free;
        let free: Vec<_> = self.held.values().copied().filter(is_free).collect();
        let (mut given, mut failure) = (0, None);
        for id in free {
            match self.give_back(id) {
                Ok(size) => given += size,
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        failure.map_or(Ok(Bytes(given)), Err)
    }

    fn usage(&self) -> Usage {
        let idle = self.blocks().filter(|block| block.state != BlockState::Active);
        let largest = idle.map(|block| block.size).max();
        Usage { largest_free: Bytes(largest.unwrap_or(0)), ..self.usage }
    }

    fn in_use(&self) -> Bytes {
        self.usage.in_use
    }

    fn reserved(&self) -> Bytes {
        self.usage.reserved
    }

    fn reset_peaks(&mut self) {
        self.usage.restart_peaks();
    }

    fn segments(&self) -> Vec<SegmentMap> {
        let segment = |block: &Block| {
            let Block { address, size, requested, state, .. } = *block;
            let (size, requested) = (Bytes(size), Bytes(requested));
            let blocks = vec![BlockMap { address, size, requested, state }];
            SegmentMap { address, size, stream: None, blocks }
        };
        self.blocks().map(segment).collect()
    }

    fn summary(&self) -> String {
        self.usage().lines(self.name())
    }
}

impl<M: DeviceMemory> Drop for Direct<M> {
    fn drop(&mut self) {
        for block in self.blocks() {
            let region = Region { address: block.address, size: Bytes(block.size) };
            let _ = self.memory.release(region);
        }
    }
}
