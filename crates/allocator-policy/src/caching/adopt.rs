//! Starting in the middle of a job: takes over the regions of another allocator.

use super::counters::Metric;
use super::free_lists::{EXPANDABLE, FreeListId, UNMAPPED, kind_of, list_of};
use super::sizes::Rules;
use super::{Caching, Events, HeldSegment, PoolId};
use crate::blocks::{Block, BlockId, NONE};
use crate::policy::{Allocation, BlockState, Retired, Stream};
use crate::segment::Segment;
use gpu_core::{DeviceMemory, Region};

/// The memory of an adopted region that is not free.
#[derive(Debug, Default)]
pub struct Adopted {
    /// The blocks in use by the program, by address.
    pub allocations: Vec<Allocation>,
    /// The blocks that work on the device may still use, by address.
    pub retired: Vec<Retired>,
}

/// Why a region could not be adopted. No part of it is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// A region or a block is empty, or exceeds the address space.
    #[error("adopt segment at {0:#x}: empty or beyond the address space")]
    Extent(u64),
    /// Regions or blocks overlap or are not in ascending order.
    #[error("adopt block at {0:#x}: overlaps the previous one")]
    Overlap(u64),
    /// A block or a segment extends beyond its parent.
    #[error("adopt block at {0:#x}: outside its segment")]
    Outside(u64),
    /// The requested size exceeds the block.
    #[error("adopt block at {0:#x}: requested size exceeds its length")]
    Requested(u64),
    /// An expandable segment has no address range, or a range contains an ordinary segment or a
    /// segment of another stream, kind or pool.
    #[error("adopt segment at {0:#x}: incompatible segment kinds")]
    Mixed(u64),
    /// A part of an expandable segment is not a multiple of the page size.
    #[error("adopt segment at {0:#x}: not page-aligned")]
    Pages(u64),
}

/// A part of a region.
struct Piece {
    size: u64,
    requested: u64,
    state: BlockState,
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Adopts a region that [`DeviceMemory::reserve`] returned, with its blocks.
    ///
    /// If a block has exactly its requested size, the size is rounded up. It also includes the
    /// memory up to the next block if the allocator would not have split that off. Limits do not
    /// apply here.
    ///
    /// # Errors
    /// An [`AdoptError`] if the region or its blocks are inconsistent.
    pub fn adopt(&mut self, segment: &Segment) -> Result<Adopted, AdoptError> {
        if segment.expandable {
            return Err(AdoptError::Mixed(segment.address));
        }
        self.check_addresses(segment.address, segment.size)?;
        let pieces = pieces(segment, &self.rules)?;
        let free_list = self.free_list_for(segment);
        let id = self.blocks.add(Block::whole(segment.address, segment.size, list_of(free_list)));
        let held = HeldSegment { size: segment.size, first: id, page: None };
        self.segments.insert(segment.address, held);
        self.count_segment(free_list, segment.size);
        let mut adopted = Adopted::default();
        self.divide(id, free_list, &pieces, &mut adopted);
        Ok(adopted)
    }

    /// Adopts an address range that [`DeviceMemory::reserve_addresses`] returned, with its mapped
    /// parts as recorded: one segment each.
    ///
    /// # Errors
    /// An [`AdoptError`] if the range, its segments or their blocks are inconsistent, if there are
    /// no segments, or if the segments differ in stream, kind or pool.
    pub fn adopt_range(&mut self, range: Region, parts: &[Segment]) -> Result<Adopted, AdoptError> {
        self.check_addresses(range.address, range.size.0)?;
        let first = parts.first().ok_or(AdoptError::Extent(range.address))?;
        let page = self.rules.page_of(first.kind);
        if !range.size.0.is_multiple_of(page) {
            return Err(AdoptError::Pages(range.address));
        }
        let mut all_pieces = Vec::new();
        let mut above = None;
        for part in parts {
            let alike =
                (part.stream, part.kind, part.pool) == (first.stream, first.kind, first.pool);
            if !part.expandable || !alike {
                return Err(AdoptError::Mixed(part.address));
            }
            if above.is_some_and(|above| part.address <= above) {
                return Err(AdoptError::Overlap(part.address));
            }
            let end =
                part.address.checked_add(part.size).ok_or(AdoptError::Extent(part.address))?;
            if part.address < range.address || end > range.address + range.size.0 {
                return Err(AdoptError::Outside(part.address));
            }
            let offset = part.address - range.address;
            if part.size == 0 || !offset.is_multiple_of(page) || !part.size.is_multiple_of(page) {
                return Err(AdoptError::Pages(part.address));
            }
            all_pieces.push(pieces(part, &self.rules)?);
            above = Some(end);
        }
        let free_list = self.free_list_for(first);
        let mut rest = self.add_addresses(free_list, range, page);
        let mut adopted = Adopted::default();
        for (part, pieces) in parts.iter().zip(&all_pieces) {
            let below = part.address - self.blocks[rest].address;
            if below > 0 {
                rest = self.blocks.split(rest, below);
                self.free_lists[free_list].unmapped.insert(part.address, rest);
            }
            let id = self.note_mapped(rest, part.size);
            rest = self.blocks[id].next;
            self.remove_free(id);
            self.divide(id, free_list, pieces, &mut adopted);
        }
        Ok(adopted)
    }

    /// Returns whether a block of a segment that serves a request can have this size: the rounded
    /// request plus a remainder that the allocator does not split off.
    pub fn is_block_size(&self, segment: &Segment, request: u64, size: u64) -> bool {
        if size < request {
            return false;
        }
        let rounded = self.rules.round(request);
        let keeps = |rest| keeps_rest(segment, &self.rules, rounded, rest);
        size == rounded
            || size > rounded && self.rules.may_serve(size, rounded) && keeps(size - rounded)
    }

    fn free_list_for(&mut self, segment: &Segment) -> FreeListId {
        let pool = match PoolId(segment.pool.0, segment.pool.1) {
            common if common == PoolId::default() => 0,
            id => {
                // A graph uses a pool that still holds memory.
                let pool = self.free_lists.pool_or_new(id);
                let users = &mut self.free_lists.pools[pool as usize].users;
                *users = (*users).max(1);
                pool
            }
        };
        self.free_lists.find(pool, Stream(segment.stream), segment.kind)
    }

    /// Checks that the addresses are not already held.
    fn check_addresses(&self, address: u64, size: u64) -> Result<(), AdoptError> {
        let end =
            address.checked_add(size).filter(|_| size > 0).ok_or(AdoptError::Extent(address))?;
        match self.segments.range(..end).next_back() {
            Some((start, held)) if start + held.size > address => Err(AdoptError::Overlap(address)),
            _ => Ok(()),
        }
    }

    /// Splits a free block that is in no free list.
    fn divide(
        &mut self,
        id: BlockId,
        free_list: FreeListId,
        pieces: &[Piece],
        adopted: &mut Adopted,
    ) {
        let kind = kind_of(free_list);
        let mut rest = id;
        for (index, piece) in pieces.iter().enumerate() {
            let id = rest;
            if index + 1 < pieces.len() {
                rest = self.blocks.split(id, piece.size);
            }
            let block = &mut self.blocks[id];
            let part = block.is_part() && block.list & EXPANDABLE == 0;
            debug_assert!(block.list & UNMAPPED == 0 && block.size == piece.size);
            if piece.state == BlockState::Free {
                self.insert_free(id);
                if part {
                    self.counters.add(kind, Metric::InactiveSplit, 1);
                    self.counters.add(kind, Metric::InactiveSplitBytes, piece.size);
                }
                continue;
            }
            block.state = BlockState::Active;
            block.requested = piece.requested;
            let (address, size) = (block.address, block.size);
            self.counters.hand_out(kind, size, piece.requested);
            if size >= self.rules.max_split {
                self.counters.oversize_allocations.add();
            }
            let allocation = Allocation { address, size, block: id, owner: self.owner };
            if piece.state == BlockState::Active {
                adopted.allocations.push(allocation);
            } else {
                adopted.retired.push(self.retire_block(id, allocation));
            }
        }
        debug_assert!(rest != NONE);
    }
}

/// Returns whether a block of this size in a segment keeps the remainder behind it instead of
/// splitting it off.
fn keeps_rest(segment: &Segment, rules: &Rules, size: u64, rest: u64) -> bool {
    !segment.expandable && !rules.splits(segment.kind, size, rest)
}

/// Returns the blocks of a segment without gaps, with free neighbours merged.
fn pieces(segment: &Segment, rules: &Rules) -> Result<Vec<Piece>, AdoptError> {
    let end =
        segment.address.checked_add(segment.size).ok_or(AdoptError::Extent(segment.address))?;
    let held: Vec<_> =
        segment.blocks.iter().filter(|block| block.state != BlockState::Free).collect();
    let mut pieces = Vec::new();
    let gap = |size| Piece { size, requested: 0, state: BlockState::Free };
    let mut cursor = segment.address;
    for (index, block) in held.iter().enumerate() {
        let address = block.address;
        let least_end = address
            .checked_add(block.size)
            .filter(|_| block.size > 0)
            .ok_or(AdoptError::Extent(address))?;
        let limit = held.get(index + 1).map_or(end, |next| next.address);
        if address < cursor {
            let outside = index == 0;
            return Err(if outside {
                AdoptError::Outside(address)
            } else {
                AdoptError::Overlap(address)
            });
        }
        if least_end > end {
            return Err(AdoptError::Outside(address));
        }
        if least_end > limit || limit > end {
            return Err(AdoptError::Overlap(
                held.get(index + 1).map_or(address, |next| next.address),
            ));
        }
        let requested = block.requested.unwrap_or(block.size);
        if requested > block.size {
            return Err(AdoptError::Requested(address));
        }
        let space = limit - address;
        let rounded = if requested == block.size { rules.round(block.size) } else { block.size };
        let mut size = rounded.min(space);
        let rest = space - size;
        if rest > 0 && keeps_rest(segment, rules, size, rest) {
            size = space;
        }
        if address > cursor {
            pieces.push(gap(address - cursor));
        }
        pieces.push(Piece { size, requested, state: block.state });
        cursor = address + size;
    }
    if cursor < end {
        pieces.push(gap(end - cursor));
    }
    Ok(pieces)
}
