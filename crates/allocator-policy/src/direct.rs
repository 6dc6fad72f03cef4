//! Memory directly from the device, as in a program that calls `cudaMalloc` for each request.

use crate::blocks::{Block, BlockId};
use crate::failure::{Failure, unless_refused};
use crate::ledger::{self, Ledger};
use crate::model::driver_rounded;
use crate::policy::{Allocation, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use gpu_core::{Bytes, DeviceMemory, Region};
use std::collections::{BTreeMap, BTreeSet};

/// Requests each allocation from the device, and frees it at once.
///
/// An allocation is charged the size that a driver uses for it: multiples of 512 bytes below 1 MiB,
/// and whole pages of 2 MiB from 1 MiB upwards. A driver packs small allocations into pages, which
/// is not modelled. The only cached memory is memory that the device did not accept back;
/// [`empty_cache`](Policy::empty_cache) and drop try again.
#[derive(Debug)]
pub struct Direct<M: DeviceMemory> {
    memory: M,
    ledger: Ledger,
    held: BTreeMap<u64, BlockId>,
    /// The sizes of blocks that are held but not in use.
    idle: BTreeSet<(u64, BlockId)>,
    /// The freed blocks that the device did not accept back, by address.
    refused: BTreeMap<u64, BlockId>,
}

impl<M: DeviceMemory> Direct<M> {
    /// Creates a policy that holds no memory yet.
    pub fn new(memory: M) -> Self {
        Direct {
            memory,
            ledger: Ledger::new(),
            held: BTreeMap::new(),
            idle: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Returns the memory of the device.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn shortage(&mut self, asked: u64, segment: u64) -> Failure {
        let usage = self.usage();
        self.ledger.shortage(&self.memory, asked, segment, None, usage)
    }

    fn give_back(&mut self, id: BlockId) -> Result<u64, Failure> {
        let block = &mut self.ledger.blocks[id];
        block.state = BlockState::Free;
        let (address, size) = (block.address, block.size);
        if let Err(error) = self.memory.release(Region { address, size: Bytes(size) }) {
            self.idle.insert((size, id));
            self.refused.insert(address, id);
            return Err(error.into());
        }
        self.idle.remove(&(size, id));
        self.refused.remove(&address);
        self.held.remove(&address);
        self.ledger.blocks.remove(id);
        self.ledger.usage.give_to_device(size);
        Ok(size)
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.held.values().map(|id| &self.ledger.blocks[*id])
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
        let id = self.ledger.blocks.add(Block::whole(address, length, 0));
        self.held.insert(address, id);
        self.ledger.usage.take_of_device(length);
        Ok(self.ledger.hand_out(id, size.0))
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let id = self.ledger.take_back(&allocation, BlockState::Free)?;
        self.give_back(id).map(drop)
    }

    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure> {
        let id = self.ledger.take_back(&allocation, BlockState::AwaitingFree)?;
        self.idle.insert((self.ledger.blocks[id].size, id));
        Ok(Retired(allocation))
    }

    fn complete(&mut self, retired: Retired) -> Result<(), Failure> {
        let id = self.ledger.own(&retired.0, BlockState::AwaitingFree)?;
        self.give_back(id).map(drop)
    }

    fn empty_cache(&mut self) -> Result<Bytes, Failure> {
        let free: Vec<_> = self.refused.values().copied().collect();
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
        let largest = self.idle.last().map_or(0, |(size, _)| *size);
        Usage { largest_free: Bytes(largest), ..self.ledger.usage }
    }

    fn in_use(&self) -> Bytes {
        self.ledger.usage.in_use
    }

    fn reserved(&self) -> Bytes {
        self.ledger.usage.reserved
    }

    fn reset_peaks(&mut self) {
        self.ledger.usage.restart_peaks();
    }

    fn segments(&self) -> Vec<SegmentMap> {
        let segment = |block: &Block| SegmentMap {
            address: block.address,
            size: Bytes(block.size),
            stream: None,
            blocks: vec![ledger::shown(block)],
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
