//! The pool of `cudaMallocAsync`.
//!
//! Published, in the chapter on the stream-ordered memory allocator of NVIDIA's CUDA programming
//! guide: memory that a stream freed is at once fit for that stream, and for others when the work
//! ahead of the free has ended; the pool may also make a stream wait for another one's free rather
//! than fail (`cudaMemPoolReuseAllowInternalDependencies`); freed memory stays in the pool, and at
//! a synchronisation the pool gives back what it holds beyond its release threshold, which is 0
//! unless it is set; `cudaMemPoolTrimTo` gives back down to an amount; a pool may have a largest
//! size.
//!
//! Modelled, since the driver does not say: regions of whole 32 MiB (what a pool is seen to grow
//! by), pieces of 512 bytes, best fit with coalescing among what is fit for the stream, and that
//! wholly free regions go back before an allocation fails, those at the highest addresses first. A
//! driver can also put scattered pages together behind new addresses; the model cannot, so where it
//! fails for fragmentation a driver may not.

use crate::blocks::{Block, BlockId, NONE};
use crate::failure::{Failure, unless_refused};
use crate::free_set::FreeSet;
use crate::ledger::{self, Ledger};
use crate::policy::{Allocation, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use gpu_core::{Bytes, DeviceMemory, Region};
use std::collections::BTreeMap;

/// Pieces are of whole multiples of this.
const UNIT: u64 = 512;
/// Regions are of whole multiples of this.
const REGION: u64 = 32 << 20;
/// The list of what is fit for every stream.
const READY: u32 = 0;
/// The list of what was retired. The others are of one stream each.
const RETIRED: u32 = 1;

/// What can be set of a pool; the default is a driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Settings {
    /// How much the pool may hold after a synchronisation (`cudaMemPoolAttrReleaseThreshold`).
    #[cfg_attr(feature = "serde", serde(rename = "release_threshold_bytes"))]
    pub release_threshold: Bytes,
    /// The most that it may hold at all (`cudaMemPoolProps::maxSize`).
    #[cfg_attr(feature = "serde", serde(rename = "largest_bytes"))]
    pub largest: Option<Bytes>,
    /// Makes a stream wait for another one's free rather than fail
    /// (`cudaMemPoolReuseAllowInternalDependencies`).
    pub internal_dependencies: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { release_threshold: Bytes(0), largest: None, internal_dependencies: true }
    }
}

/// A stream-ordered pool over the memory of one device.
///
/// [`free`](Policy::free) is `cudaFreeAsync` on the stream of the allocation;
/// [`retire`](Policy::retire) is for memory that other streams still use, which is fit for nobody
/// before it is complete.
#[derive(Debug)]
pub struct StreamOrdered<M: DeviceMemory> {
    memory: M,
    settings: Settings,
    ledger: Ledger,
    /// What is not handed out: [`READY`], [`RETIRED`], then what each of `streams` freed. `list` of
    /// a block is its list here, or will be once it is free.
    free: Vec<FreeSet>,
    streams: Vec<Stream>,
    /// The regions by address: how long they are, and their lowest block.
    held: BTreeMap<u64, (u64, BlockId)>,
}

impl<M: DeviceMemory> StreamOrdered<M> {
    /// Makes a pool that holds nothing yet.
    pub fn new(memory: M, settings: Settings) -> Self {
        StreamOrdered {
            memory,
            settings,
            ledger: Ledger::new(),
            free: vec![FreeSet::default(), FreeSet::default()],
            streams: Vec::new(),
            held: BTreeMap::new(),
        }
    }

    /// Returns its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the memory of the device.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Says that the work of one stream has ended, or of all: what it freed is fit for every
    /// stream, and what the pool holds beyond its threshold goes back. Retired memory still waits.
    ///
    /// # Errors
    /// [`Failure::Device`] when the device does not take a region; the others are given back.
    pub fn synchronize(&mut self, stream: Option<Stream>) -> Result<Bytes, Failure> {
        for (place, own) in self.streams.clone().into_iter().enumerate() {
            if stream.is_none_or(|stream| own == stream) {
                self.settle(place + RETIRED as usize + 1);
            }
        }
        self.trim(self.settings.release_threshold)
    }

    /// Gives wholly free regions back as long as at least `keep` bytes are held
    /// (`cudaMemPoolTrimTo`); returns how much that was.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn trim(&mut self, keep: Bytes) -> Result<Bytes, Failure> {
        let (mut given, mut failure) = (0, None);
        let regions: Vec<_> = self.held.iter().rev().map(|(at, held)| (*at, *held)).collect();
        for (address, (size, block)) in regions {
            let block = self.ledger.blocks[block];
            let whole = block.state == BlockState::Free && block.size == size;
            let is_free = whole && block.list == READY;
            if !is_free || self.ledger.usage.reserved.saturating_sub(keep) < Bytes(size) {
                continue;
            }
            match self.memory.release(Region { address, size: Bytes(size) }) {
                Ok(()) => given += self.forget(address),
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        failure.map_or(Ok(Bytes(given)), |error| Err(error.into()))
    }

    fn forget(&mut self, address: u64) -> u64 {
        let Some((size, id)) = self.held.remove(&address) else { return 0 };
        self.unlist(id);
        self.ledger.blocks.remove(id);
        self.ledger.usage.give_to_device(size);
        size
    }

    /// Makes everything that is on a stream's list fit for all streams.
    fn settle(&mut self, list: usize) {
        let freed = std::mem::take(&mut self.free[list]).in_order(&self.ledger.blocks);
        for &id in &freed {
            // Until its turn comes, no neighbour may be joined with it.
            self.ledger.blocks[id].state = BlockState::Active;
        }
        for id in freed {
            self.make_free(id, READY);
        }
    }

    /// Returns the list of what a stream freed.
    fn list_of(&mut self, stream: Stream) -> u32 {
        let place = self.streams.iter().position(|own| *own == stream).unwrap_or_else(|| {
            self.streams.push(stream);
            self.free.push(FreeSet::default());
            self.streams.len() - 1
        });
        place as u32 + RETIRED + 1
    }

    /// Finds a piece that is fit for the stream of a list.
    fn fitting(&mut self, list: u32, rounded: u64) -> Option<BlockId> {
        let blocks = &mut self.ledger.blocks;
        let fit = [READY, list].map(|list| self.free[list as usize].best_fit(blocks, rounded));
        fit.into_iter().flatten().min_by_key(|id| blocks[*id].key())
    }

    fn find_more(&mut self, list: u32, rounded: u64, asked: u64) -> Result<BlockId, Failure> {
        if let Some(found) = self.extend(rounded)? {
            return Ok(found);
        }
        if self.settings.internal_dependencies {
            let blocks = &mut self.ledger.blocks;
            let others = self.free[RETIRED as usize + 1..].iter();
            let fit: Vec<_> = others.filter_map(|free| free.best_fit(blocks, rounded)).collect();
            if let Some(found) = fit.into_iter().min_by_key(|id| blocks[*id].key()) {
                self.ledger.usage.retries += 1;
                return Ok(found);
            }
        }
        if self.trim(Bytes(0))? > Bytes(0) {
            self.ledger.usage.retries += 1;
            if let Some(found) = self.extend(rounded)? {
                return Ok(found);
            }
        }
        debug_assert!(self.fitting(list, rounded).is_none(), "nothing was overlooked");
        Err(self.shortage(asked, region_for(rounded)))
    }

    /// Takes a region of the device; returns it as the piece that it is.
    fn extend(&mut self, rounded: u64) -> Result<Option<BlockId>, Failure> {
        let Some(size) = region_for(rounded) else { return Ok(None) };
        let most = self.settings.largest.unwrap_or(Bytes(u64::MAX));
        if size > most.saturating_sub(self.ledger.usage.reserved).0 {
            return Ok(None);
        }
        let given = unless_refused(self.memory.reserve(Bytes(size)))?;
        let Some(region) = given else { return Ok(None) };
        let Region { address, size: Bytes(size) } = region;
        let block = self.ledger.blocks.add(Block::whole(address, size, READY));
        self.held.insert(address, (size, block));
        self.ledger.usage.take_of_device(size);
        self.list(block);
        Ok(Some(block))
    }

    fn hand_out(&mut self, found: BlockId, list: u32, rounded: u64, requested: u64) -> Allocation {
        self.unlist(found);
        if self.ledger.blocks[found].size > rounded {
            let rest = self.ledger.blocks.split(found, rounded);
            self.list(rest);
        }
        self.ledger.blocks[found].list = list;
        self.ledger.hand_out(found, requested)
    }

    fn list(&mut self, id: BlockId) {
        let list = self.ledger.blocks[id].list as usize;
        self.free[list].insert(&mut self.ledger.blocks, id);
    }

    fn unlist(&mut self, id: BlockId) {
        let list = self.ledger.blocks[id].list as usize;
        self.free[list].remove(&mut self.ledger.blocks, id);
    }

    /// Puts a block on a list, joined with its neighbours on that list.
    fn make_free(&mut self, mut id: BlockId, list: u32) {
        self.ledger.blocks[id].state = BlockState::Free;
        self.ledger.blocks[id].list = list;
        let Block { next, previous, .. } = self.ledger.blocks[id];
        if self.is_free(next, list) {
            self.unlist(next);
            self.ledger.blocks.join_next(id);
        }
        if self.is_free(previous, list) {
            self.unlist(previous);
            self.ledger.blocks.join_next(previous);
            id = previous;
        }
        self.list(id);
    }

    fn is_free(&self, id: BlockId, list: u32) -> bool {
        self.ledger.blocks[id].state == BlockState::Free && self.ledger.blocks[id].list == list
    }

    fn shortage(&mut self, asked: u64, segment: Option<u64>) -> Failure {
        let (usage, largest) = (self.usage(), self.settings.largest);
        self.ledger.shortage(&self.memory, asked, segment.unwrap_or(asked), largest, usage)
    }

    /// Visits the blocks of a region by address.
    fn chain(&self, first: BlockId) -> impl Iterator<Item = &Block> {
        let next = |block: &&Block| {
            Some(block.next).filter(|next| *next != NONE).map(|next| &self.ledger.blocks[next])
        };
        std::iter::successors(Some(&self.ledger.blocks[first]), next)
    }
}

impl<M: DeviceMemory> Policy for StreamOrdered<M> {
    fn name(&self) -> &'static str {
        "stream-ordered"
    }

    fn allocate(&mut self, size: Bytes, stream: Stream) -> Result<Allocation, Failure> {
        let Some(rounded) = size.0.max(1).checked_next_multiple_of(UNIT) else {
            return Err(self.shortage(size.0, None));
        };
        let list = self.list_of(stream);
        let found = match self.fitting(list, rounded) {
            Some(found) => found,
            None => self.find_more(list, rounded, size.0)?,
        };
        Ok(self.hand_out(found, list, rounded, size.0))
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let id = self.ledger.take_back(&allocation, BlockState::Free)?;
        self.make_free(id, self.ledger.blocks[id].list);
        Ok(())
    }

    fn retire(&mut self, allocation: Allocation) -> Result<Retired, Failure> {
        let id = self.ledger.take_back(&allocation, BlockState::AwaitingFree)?;
        self.ledger.blocks[id].list = RETIRED;
        self.list(id);
        Ok(Retired(allocation))
    }

    fn complete(&mut self, retired: Retired) -> Result<(), Failure> {
        let id = self.ledger.own(&retired.0, BlockState::AwaitingFree)?;
        self.unlist(id);
        self.make_free(id, READY);
        Ok(())
    }

    fn empty_cache(&mut self) -> Result<Bytes, Failure> {
        self.trim(Bytes(0))
    }

    fn usage(&self) -> Usage {
        let blocks = &self.ledger.blocks;
        let largest = self.free.iter().filter_map(|free| free.largest(blocks));
        let largest = largest.map(|id| blocks[id].size).max();
        Usage { largest_free: Bytes(largest.unwrap_or(0)), ..self.ledger.usage }
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
        let segment = |(address, (size, first)): (&u64, &(u64, BlockId))| SegmentMap {
            address: *address,
            size: Bytes(*size),
            stream: None,
            blocks: self.chain(*first).map(ledger::shown).collect(),
        };
        self.held.iter().map(segment).collect()
    }

    fn summary(&self) -> String {
        self.usage().lines(self.name())
    }
}

impl<M: DeviceMemory> Drop for StreamOrdered<M> {
    fn drop(&mut self) {
        for (address, (size, _)) in &self.held {
            let _ = self.memory.release(Region { address: *address, size: Bytes(*size) });
        }
    }
}

/// Returns how long the region is that a piece is cut from; `None` where there is no such number.
fn region_for(rounded: u64) -> Option<u64> {
    rounded.checked_next_multiple_of(REGION)
}
