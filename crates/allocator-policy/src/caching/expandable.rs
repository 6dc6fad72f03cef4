//! Expandable segments: one address range for each stream and kind, larger than the memory of the
//! device. Pages are mapped at the lowest free addresses as needed.

use super::counters::Metric;
use super::free_lists::{EXPANDABLE, FreeListId, UNMAPPED, free_list_of, kind_of, list_of};
use super::sizes::total;
use super::{Caching, Events, HeldSegment};
use crate::blocks::{Block, BlockId, NONE};
use crate::failure::{Failure, unless_refused};
use crate::policy::BlockState;
use gpu_core::{Bytes, DeviceMemory, Error, Region};

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Starts at the best free block, which belongs to an expandable segment, and returns the block
    /// to use.
    ///
    /// A block that can grow is ranked by the size to which it can grow. If expandable segments
    /// were disabled after some were created, their blocks are skipped.
    pub(super) fn best_with_expandable(
        &mut self,
        free_list: FreeListId,
        first: BlockId,
    ) -> Option<BlockId> {
        let mut best = first;
        if !self.rules.expandable {
            while self.blocks[best].list & EXPANDABLE != 0 {
                best = self.free_lists[free_list].free.after(&mut self.blocks, best)?;
            }
            return Some(best);
        }
        while self.blocks[best].list & EXPANDABLE != 0
            && let Some(next) = self.free_lists[free_list].free.after(&mut self.blocks, best)
            && self.may_become(next) < self.may_become(best)
        {
            best = next;
        }
        Some(best)
    }

    /// Returns the size to which a free block can grow.
    fn may_become(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let above = block.next;
        let unmapped = above != NONE && self.blocks[above].list & UNMAPPED != 0;
        block.size + if unmapped { self.blocks[above].size } else { 0 }
    }

    /// Maps pages at the lowest addresses where a request fits; `None` if the device does not have
    /// enough memory. Pages mapped until then stay mapped and free.
    pub(super) fn expand(
        &mut self,
        free_list: FreeListId,
        size: u64,
    ) -> Result<Option<BlockId>, Failure> {
        let mut id = match self.lowest_room(free_list, size) {
            Some(id) => id,
            None => match self.take_addresses(free_list, size)? {
                Some(id) => id,
                None => return Ok(None),
            },
        };
        if self.blocks[id].list & UNMAPPED != 0 {
            match self.map_pages(id, size)? {
                Some(grown) => id = grown,
                None => return Ok(None),
            }
        }
        while self.blocks[id].size < size {
            let rest = size - self.blocks[id].size;
            match self.map_pages(self.blocks[id].next, rest)? {
                Some(grown) => id = grown,
                None => return Ok(None),
            }
        }
        self.remove_free(id);
        Ok(Some(id))
    }

    /// Finds the lowest block that is followed by enough free addresses, mapped or unmapped.
    fn lowest_room(&self, free_list: FreeListId, size: u64) -> Option<BlockId> {
        let is_free = |id: BlockId| id != NONE && self.blocks[id].state == BlockState::Free;
        let starts = self.free_lists[free_list].unmapped.values().map(|&unmapped| {
            let below = self.blocks[unmapped].previous;
            if is_free(below) { below } else { unmapped }
        });
        starts.into_iter().find(|&start| {
            let (mut bytes, mut id) = (0, start);
            while bytes < size && is_free(id) {
                bytes += self.blocks[id].size;
                id = self.blocks[id].next;
            }
            bytes >= size
        })
    }

    /// Reserves a new address range of nine eighths of the device's memory.
    fn take_addresses(
        &mut self,
        free_list: FreeListId,
        size: u64,
    ) -> Result<Option<BlockId>, Failure> {
        let total = total(&self.memory)?;
        let page = self.rules.page_of(kind_of(free_list));
        let length = total.saturating_add(total / 8).checked_next_multiple_of(page);
        let Some(length) = length.filter(|length| *length >= size) else { return Ok(None) };
        let range = unless_refused(self.memory.reserve_addresses(Bytes(length)))?;
        Ok(range.map(|range| self.add_addresses(free_list, range, page)))
    }

    /// Adds an unmapped address range; addresses beyond the last full page are not used.
    pub(super) fn add_addresses(
        &mut self,
        free_list: FreeListId,
        range: Region,
        page: u64,
    ) -> BlockId {
        let Region { address, size: Bytes(size) } = range;
        let list = list_of(free_list) | EXPANDABLE | UNMAPPED;
        let id = self.blocks.add(Block::whole(address, size / page * page, list));
        self.segments.insert(address, HeldSegment { size, first: id, page: Some(page) });
        self.free_lists[free_list].unmapped.insert(address, id);
        id
    }

    /// Returns the address range of a block, and its page size.
    fn range_of(&self, address: u64) -> Option<(Region, u64)> {
        let (&base, held) = self.segments.range(..=address).next_back()?;
        Some((Region { address: base, size: Bytes(held.size) }, held.page?))
    }

    /// Maps pages at the lower end of an unmapped block, for at least `size` bytes, or for the
    /// whole block. Returns the free block that contains them; `None` if the device does not have
    /// enough memory.
    fn map_pages(&mut self, id: BlockId, size: u64) -> Result<Option<BlockId>, Failure> {
        let block = self.blocks[id];
        let Some((_, page)) = self.range_of(block.address) else { return Ok(None) };
        let pages = size.min(block.size).div_ceil(page);
        let part =
            |number: u64| Region { address: block.address + number * page, size: Bytes(page) };
        let mut mapped = 0;
        let mut result = Ok(());
        while mapped < pages && result.is_ok() {
            result = self.memory.map(part(mapped));
            mapped += u64::from(result.is_ok());
        }
        if result.is_err() {
            // Undo as much as possible; the rest stays mapped as free memory.
            while mapped > 0 && self.memory.unmap(part(mapped - 1)).is_ok() {
                mapped -= 1;
            }
        }
        let mut grown = id;
        if mapped > 0 {
            grown = self.note_mapped(id, mapped * page);
            self.counters.device_allocations += 1;
        }
        Ok(unless_refused(result)?.map(|()| grown))
    }

    /// Marks the lower part of an unmapped block as mapped, and returns the free block that
    /// contains it.
    pub(super) fn note_mapped(&mut self, id: BlockId, size: u64) -> BlockId {
        let block = self.blocks[id];
        let free_list = free_list_of(block.list);
        self.free_lists[free_list].unmapped.remove(&block.address);
        if size < block.size {
            let above = self.blocks.split(id, size);
            self.free_lists[free_list].unmapped.insert(self.blocks[above].address, above);
        }
        self.blocks[id].list &= !UNMAPPED;
        let mapped = self.blocks[id];
        let mut whole = id;
        if self.joins(mapped.previous, mapped.list) {
            self.remove_free(mapped.previous);
            whole = mapped.previous;
            self.blocks.join_next(whole);
        }
        if self.joins(mapped.next, mapped.list) {
            self.remove_free(mapped.next);
            self.blocks.join_next(whole);
        }
        self.insert_free(whole);
        self.counters.add(kind_of(free_list), Metric::ReservedBytes, size);
        self.free_lists.pool_of(free_list).reserved += size;
        whole
    }

    /// Unmaps the full pages of a free block, and releases the range if no part of it is left.
    pub(super) fn shrink(&mut self, id: BlockId) -> Result<(), Error> {
        let block = self.blocks[id];
        let free_list = free_list_of(block.list);
        let Some((range, page)) = self.range_of(block.address) else { return Ok(()) };
        let base = range.address;
        let start = base + (block.address - base).next_multiple_of(page);
        let end = base + (block.end() - base) / page * page;
        if start >= end {
            return Ok(());
        }
        let event = self.events.record(self.free_lists[free_list].stream)?;
        self.events.wait(event)?;
        let mut unmapped = start;
        let mut result = Ok(());
        while unmapped < end && result.is_ok() {
            result = self.memory.unmap(Region { address: unmapped, size: Bytes(page) });
            unmapped += if result.is_ok() { page } else { 0 };
        }
        if unmapped > start {
            let whole = self.note_unmapped(id, start, unmapped - start);
            if !self.blocks[whole].is_part() {
                result = result.and_then(|()| self.memory.release_addresses(range));
                if result.is_ok() {
                    self.free_lists[free_list].unmapped.remove(&base);
                    self.blocks.remove(whole);
                    self.segments.remove(&base);
                }
            }
        }
        result
    }

    /// Marks a part of a free block as unmapped, and returns the unmapped block that contains it.
    fn note_unmapped(&mut self, id: BlockId, start: u64, size: u64) -> BlockId {
        let free_list = free_list_of(self.blocks[id].list);
        self.remove_free(id);
        let mut middle = id;
        if start > self.blocks[id].address {
            middle = self.blocks.split(id, start - self.blocks[id].address);
            self.insert_free(id);
        }
        if size < self.blocks[middle].size {
            let above = self.blocks.split(middle, size);
            self.insert_free(above);
        }
        self.blocks[middle].list |= UNMAPPED;
        let block = self.blocks[middle];
        let mut whole = middle;
        if self.joins(block.previous, block.list) {
            whole = block.previous;
            self.blocks.join_next(whole);
        }
        if self.joins(block.next, block.list) {
            let above = self.blocks[block.next].address;
            self.free_lists[free_list].unmapped.remove(&above);
            self.blocks.join_next(whole);
        }
        self.free_lists[free_list].unmapped.insert(self.blocks[whole].address, whole);
        self.uncount(free_list, size);
        whole
    }
}
