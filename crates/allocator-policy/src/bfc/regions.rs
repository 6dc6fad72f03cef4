//! The regions held on the device.

use crate::blocks::BlockId;
use crate::failure::unless_refused;
use gpu_core::{Bytes, DeviceMemory, Error, ErrorKind, Region, Result};

/// A region held on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldRegion {
    pub(super) region: Region,
    /// Its lowest chunk. This never changes, because a chunk merges into the one below.
    pub(super) first: BlockId,
}

impl HeldRegion {
    pub(super) fn end(&self) -> u64 {
        self.region.address + self.region.size.0
    }
}

/// All held regions, by address.
#[derive(Debug, Default)]
pub(super) struct Regions {
    held: Vec<HeldRegion>,
    /// The address range of adjacent regions, once one exists.
    range: Option<Range>,
}

/// An address range that is partly mapped.
#[derive(Debug)]
struct Range {
    addresses: Region,
    page: u64,
    /// The start of the next region.
    next: u64,
}

impl Regions {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &HeldRegion> {
        self.held.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Requests a separate region from the device; `None` if the device does not have enough
    /// memory.
    pub(super) fn take(memory: &impl DeviceMemory, size: u64) -> Result<Option<Region>> {
        unless_refused(memory.reserve(Bytes(size)))
    }

    /// Maps pages directly above the previous ones, within `limit` bytes of addresses; `None` if
    /// the device does not have enough memory.
    pub(super) fn take_adjacent(
        &mut self,
        memory: &impl DeviceMemory,
        size: u64,
        limit: u64,
    ) -> Result<Option<Region>> {
        let range = match &mut self.range {
            Some(range) => range,
            None => {
                let page = page_of(memory)?;
                // Round up to the page size, unless that overflows.
                let size = limit.checked_next_multiple_of(page).unwrap_or(limit / page * page);
                let Some(addresses) = unless_refused(memory.reserve_addresses(Bytes(size)))? else {
                    return Ok(None);
                };
                self.range.insert(Range { addresses, page, next: addresses.address })
            }
        };
        let end = range.addresses.address + range.addresses.size.0;
        let size = size.checked_next_multiple_of(range.page);
        let Some(size) = size.filter(|size| *size <= end - range.next) else { return Ok(None) };
        let region = Region { address: range.next, size: Bytes(size) };
        if unless_refused(memory.map(region))?.is_none() {
            return Ok(None);
        }
        range.next += size;
        Ok(Some(region))
    }

    /// If regions are adjacent, extends the region that ends where this one begins, and returns its
    /// lowest chunk.
    pub(super) fn lengthen(&mut self, region: Region) -> Option<BlockId> {
        self.range.as_ref()?;
        let below = self.held.iter_mut().find(|held| held.end() == region.address)?;
        below.region.size += region.size;
        Some(below.first)
    }

    pub(super) fn add(&mut self, region: Region, first: BlockId) {
        let index = self.held.partition_point(|held| held.region.address < region.address);
        self.held.insert(index, HeldRegion { region, first });
    }

    /// Frees a region.
    pub(super) fn give_back(&mut self, memory: &impl DeviceMemory, region: Region) -> Result<()> {
        match &mut self.range {
            None => memory.release(region)?,
            Some(range) => {
                memory.unmap(region)?;
                if region.address + region.size.0 == range.next {
                    range.next = region.address;
                }
            }
        }
        self.held.retain(|held| held.region != region);
        Ok(())
    }

    /// Frees all regions, as far as the device permits.
    pub(super) fn give_all_back(&mut self, memory: &impl DeviceMemory) {
        for held in std::mem::take(&mut self.held) {
            let _ = self.give_back(memory, held.region);
        }
        if let Some(range) = self.range.take() {
            let _ = memory.release_addresses(range.addresses);
        }
    }
}

/// Returns the page size of a device.
fn page_of(memory: &impl DeviceMemory) -> Result<u64> {
    match memory.page()?.0 {
        0 => {
            let error = Error::new(ErrorKind::Invalid, "query the page size");
            Err(error.with_source("the device reports a page size of 0"))
        }
        page => Ok(page),
    }
}
