//! The pool of `cudaMallocAsync`.
//!
//! Documented in the chapter on the stream-ordered memory allocator of NVIDIA's CUDA programming
//! guide: memory freed on a stream is available to that stream at once, and to other streams when
//! the work before the free has ended. The pool may also make a stream wait for another stream's
//! free rather than fail (`cudaMemPoolReuseAllowInternalDependencies`). Freed memory stays in the
//! pool; at a synchronisation, the pool releases memory beyond its release threshold, which is 0 by
//! default. `cudaMemPoolTrimTo` releases memory down to an amount. A pool may have a maximum size.
//!
//! Modelled, because undocumented: regions in multiples of 32 MiB (the observed growth of a pool),
//! blocks in multiples of 512 bytes, best fit with coalescing among the blocks available to the
//! stream, and the release of completely free regions, highest addresses first, before an
//! allocation fails. A driver can also map scattered pages at new addresses. The model cannot, so
//! it may fail due to fragmentation when a driver does not.

use crate::blocks::{Block, BlockId, NONE};
use crate::failure::{Failure, unless_refused};
use crate::free_set::FreeSet;
use crate::ledger::{self, Ledger};
use crate::policy::{Allocation, BlockState, Policy, Retired, SegmentMap, Stream, Usage};
use gpu_core::{Bytes, DeviceMemory, Region};
use std::collections::{BTreeMap, BTreeSet};

/// Block sizes are multiples of this.
const UNIT: u64 = 512;
/// Region sizes are multiples of this.
const REGION: u64 = 32 << 20;
/// The list of blocks available to every stream.
const READY: u32 = 0;
/// The list of retired blocks. Every other list belongs to one stream.
const RETIRED: u32 = 1;
/// With more streams than this, searching the lists of all streams would take too long.
const MANY_STREAMS: usize = 16;

/// The settings of a pool; the default is the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Settings {
    /// The maximum memory to keep at a synchronisation (`cudaMemPoolAttrReleaseThreshold`).
    #[cfg_attr(feature = "serde", serde(rename = "release_threshold_bytes"))]
    pub release_threshold: Bytes,
    /// The maximum size of the pool (`cudaMemPoolProps::maxSize`).
    #[cfg_attr(feature = "serde", serde(rename = "largest_bytes"))]
    pub largest: Option<Bytes>,
    /// Makes a stream wait for another stream's free rather than fail
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
/// [`retire`](Policy::retire) is for memory that other streams still use; no stream may reuse it
/// before it is completed.
#[derive(Debug)]
pub struct StreamOrdered<M: DeviceMemory> {
    memory: M,
    settings: Settings,
    ledger: Ledger,
    /// The free blocks: [`READY`], [`RETIRED`], then those that each stream freed. The `list` field
    /// of a block is its index here, or that of the list it will join once it is free.
    free: Vec<FreeSet>,
    /// The list of each stream.
    streams: BTreeMap<Stream, u32>,
    /// The free blocks of all streams by rank ([`Block::key`]), once there are more than
    /// [`MANY_STREAMS`].
    of_streams: Option<BTreeMap<u128, BlockId>>,
    /// The regions by address: size and lowest block.
    held: BTreeMap<u64, (u64, BlockId)>,
    /// The regions that are completely free and available to every stream.
    whole: BTreeSet<u64>,
}

impl<M: DeviceMemory> StreamOrdered<M> {
    /// Creates a pool that holds no memory yet.
    pub fn new(memory: M, settings: Settings) -> Self {
        StreamOrdered {
            memory,
            settings,
            ledger: Ledger::new(),
            free: vec![FreeSet::default(), FreeSet::default()],
            streams: BTreeMap::new(),
            of_streams: None,
            held: BTreeMap::new(),
            whole: BTreeSet::new(),
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

    /// Records that the work of one stream, or of all streams, has ended: the memory freed on it
    /// becomes available to every stream, and memory beyond the threshold is released. Retired
    /// memory still waits.
    ///
    /// # Errors
    /// [`Failure::Device`] if the device does not accept a region; other regions are freed.
    pub fn synchronize(&mut self, stream: Option<Stream>) -> Result<Bytes, Failure> {
        for (own, list) in self.streams.clone() {
            if stream.is_none_or(|stream| own == stream) {
                self.settle(list as usize);
            }
        }
        self.trim(self.settings.release_threshold)
    }

    /// Releases completely free regions while at least `keep` bytes remain held
    /// (`cudaMemPoolTrimTo`); returns the released size.
    ///
    /// # Errors
    /// Like [`synchronize`](Self::synchronize).
    pub fn trim(&mut self, keep: Bytes) -> Result<Bytes, Failure> {
        let (mut given, mut failure) = (0, None);
        let regions: Vec<_> = self.whole.iter().rev().copied().collect();
        for address in regions {
            let size = self.held.get(&address).map_or(0, |(size, _)| *size);
            if self.ledger.usage.reserved.saturating_sub(keep) < Bytes(size) {
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

    /// Makes all blocks on a stream's list available to all streams.
    fn settle(&mut self, list: usize) {
        let freed = std::mem::take(&mut self.free[list]).in_order(&self.ledger.blocks);
        for &id in &freed {
            if let Some(all) = &mut self.of_streams {
                all.remove(&self.ledger.blocks[id].key());
            }
            // Neighbours must not merge with this block before it is processed itself.
            self.ledger.blocks[id].state = BlockState::Active;
        }
        for id in freed {
            self.make_free(id, READY);
        }
    }

    /// Returns the list of blocks freed on a stream.
    fn list_of(&mut self, stream: Stream) -> u32 {
        let list = *self.streams.entry(stream).or_insert_with(|| {
            self.free.push(FreeSet::default());
            (self.free.len() - 1) as u32
        });
        if self.of_streams.is_none() && self.streams.len() > MANY_STREAMS {
            let blocks = &self.ledger.blocks;
            let lists = self.free[RETIRED as usize + 1..].iter();
            let ids = lists.flat_map(|free| free.in_order(blocks));
            self.of_streams = Some(ids.map(|id| (blocks[id].key(), id)).collect());
        }
        list
    }

    /// Finds a block available to the stream of a list.
    fn fitting(&mut self, list: u32, rounded: u64) -> Option<BlockId> {
        let blocks = &mut self.ledger.blocks;
        let fit = [READY, list].map(|list| self.free[list as usize].best_fit(blocks, rounded));
        fit.into_iter().flatten().min_by_key(|id| blocks[*id].key())
    }

    /// Finds a block freed on any stream.
    fn fitting_any(&mut self, rounded: u64) -> Option<BlockId> {
        if let Some(all) = &self.of_streams {
            return all.range(u128::from(rounded) << 64..).next().map(|(_, id)| *id);
        }
        let blocks = &mut self.ledger.blocks;
        let lists = self.free[RETIRED as usize + 1..].iter_mut();
        let fit: Vec<_> = lists.filter_map(|free| free.best_fit(blocks, rounded)).collect();
        fit.into_iter().min_by_key(|id| blocks[*id].key())
    }

    fn find_more(&mut self, list: u32, rounded: u64, asked: u64) -> Result<BlockId, Failure> {
        if let Some(found) = self.extend(rounded)? {
            return Ok(found);
        }
        if self.settings.internal_dependencies
            && let Some(found) = self.fitting_any(rounded)
        {
            self.ledger.usage.retries += 1;
            return Ok(found);
        }
        if self.trim(Bytes(0))? > Bytes(0) {
            self.ledger.usage.retries += 1;
            if let Some(found) = self.extend(rounded)? {
                return Ok(found);
            }
        }
        debug_assert!(self.fitting(list, rounded).is_none(), "no block was overlooked");
        Err(self.shortage(asked, region_for(rounded)))
    }

    /// Takes a region from the device; returns its block.
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
        let block = self.ledger.blocks[id];
        self.free[block.list as usize].insert(&mut self.ledger.blocks, id);
        if block.list == READY && !block.is_part() {
            self.whole.insert(block.address);
        }
        if let Some(all) = self.of_streams.as_mut().filter(|_| block.list > RETIRED) {
            all.insert(block.key(), id);
        }
    }

    fn unlist(&mut self, id: BlockId) {
        let block = self.ledger.blocks[id];
        self.free[block.list as usize].remove(&mut self.ledger.blocks, id);
        if block.list == READY && !block.is_part() {
            self.whole.remove(&block.address);
        }
        if let Some(all) = self.of_streams.as_mut().filter(|_| block.list > RETIRED) {
            all.remove(&block.key());
        }
    }

    /// Adds a block to a list, merged with its neighbours on that list.
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
        self.free.iter_mut().for_each(|free| free.sort_largest(&self.ledger.blocks));
        let (usage, largest) = (self.usage(), self.settings.largest);
        self.ledger.shortage(&self.memory, asked, segment.unwrap_or(asked), largest, usage)
    }

    /// Iterates over the blocks of a region by address.
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

/// Returns the region size for a block; `None` on overflow.
fn region_for(rounded: u64) -> Option<u64> {
    rounded.checked_next_multiple_of(REGION)
}
