//! Continues with the regions and chunks of another allocator, as listed in a dump.

use super::{Bfc, Settings, UNIT};
use crate::blocks::{Block, NONE};
use crate::failure::Failure;
use crate::policy::{Allocation, BlockState};
use crate::segment::{RecordedBlock, Segment};
use gpu_core::{DeviceMemory, Error, ErrorKind, Region};

impl<M: DeviceMemory> Bfc<M> {
    /// Creates an allocator with regions divided like those of a dump. Returns the chunks that are
    /// not free, in the order of the dump's addresses; chunks that wait for work count as
    /// allocated.
    ///
    /// The regions are taken from this device, in the order of the dump's addresses, at addresses
    /// that the device chooses. A dump does not contain the size of the next region, so it is
    /// assumed to be twice the longest.
    ///
    /// # Errors
    /// [`Failure::OutOfMemory`] if the device does not have that much or the limit is lower,
    /// [`Failure::Device`] with `Invalid` for chunks that overlap, lie outside their region or are
    /// not multiples of 256 bytes, and those of [`Bfc::new`]. On an error, everything is freed.
    pub fn adopt(
        memory: M,
        settings: Settings,
        segments: &[Segment],
    ) -> Result<(Self, Vec<Allocation>), Failure> {
        let mut bfc = Bfc::new(memory, settings)?;
        let mut ordered: Vec<_> = segments.iter().collect();
        ordered.sort_by_key(|segment| segment.address);
        let mut taken = Vec::new();
        for segment in ordered {
            let blocks = divided(segment)?;
            if segment.size > bfc.limit.saturating_sub(bfc.counts.pool) {
                return Err(bfc.shortage(segment.size, None));
            }
            let mut tried = None;
            let Some(region) = bfc.ask_device(segment.size, &mut tried)? else {
                return Err(bfc.shortage(segment.size, tried));
            };
            bfc.next_region = bfc.next_region.max(region.size.0.saturating_mul(2));
            bfc.counts.take_of_device(region.size.0);
            bfc.divide(region, segment.address, &blocks, &mut taken);
        }
        Ok((bfc, taken))
    }

    /// Creates a region's chunks.
    fn divide(
        &mut self,
        region: Region,
        recorded_at: u64,
        blocks: &[RecordedBlock],
        taken: &mut Vec<Allocation>,
    ) {
        let first = self.blocks.add(Block::whole(region.address, region.size.0, 0));
        self.regions.add(region, first);
        let mut rest = first;
        for block in blocks {
            let below = region.address + (block.address - recorded_at) - self.blocks[rest].address;
            if below > 0 {
                let upper = self.blocks.split(rest, below);
                self.insert(rest);
                rest = upper;
            }
            let id = rest;
            rest = if self.blocks[id].size > block.size {
                self.blocks.split(id, block.size)
            } else {
                NONE
            };
            taken.push(self.activate(id, block.requested.unwrap_or(block.size).min(block.size)));
        }
        if rest != NONE {
            self.insert(rest);
        }
    }
}

/// Returns the chunks of a region that are not free, by address.
fn divided(segment: &Segment) -> Result<Vec<RecordedBlock>, Error> {
    let refuse = |what: &str, address: u64| {
        Error::new(ErrorKind::Invalid, format!("adopt the {what} at {address:#x}"))
    };
    let stepped = |size: u64| size > 0 && size.is_multiple_of(UNIT);
    let end = segment.address.checked_add(segment.size).filter(|_| stepped(segment.size));
    let end = end.ok_or_else(|| refuse("region", segment.address))?;
    let mut blocks = segment.blocks.clone();
    blocks.retain(|block| block.state != BlockState::Free);
    blocks.sort_by_key(|block| block.address);
    let mut from = segment.address;
    for block in &blocks {
        let fits = block.address >= from && stepped(block.size);
        let aligned = (block.address.wrapping_sub(segment.address)).is_multiple_of(UNIT);
        let after = block.address.checked_add(block.size).filter(|after| *after <= end);
        from = after.filter(|_| fits && aligned).ok_or_else(|| refuse("chunk", block.address))?;
    }
    Ok(blocks)
}
