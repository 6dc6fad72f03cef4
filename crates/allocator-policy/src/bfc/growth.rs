//! Handling of a request that no free chunk satisfies.

use super::regions::{HeldRegion, Regions};
use super::settings::BackOff;
use super::{Bfc, UNIT, round};
use crate::blocks::{Block, BlockId};
use crate::failure::Failure;
use crate::policy::BlockState;
use gpu_core::{DeviceMemory, Region};

/// The factor by which a refused region is shortened.
const BACK_OFF: f32 = 0.9;

impl<M: DeviceMemory> Bfc<M> {
    /// Finds a chunk for a request that no free chunk satisfies.
    #[cold]
    pub(super) fn find_more(
        &mut self,
        rounded: u64,
        asked: u64,
        behind: bool,
    ) -> Result<BlockId, Failure> {
        let mut tried = None;
        if self.extend(rounded, &mut tried)?
            && let Some(found) = self.free.best_fit(&mut self.blocks, rounded)
        {
            return Ok(found);
        }
        if behind
            && self.merge_waiting(rounded)
            && let Some(found) = self.best_of_both(rounded)
        {
            return Ok(found);
        }
        if self.settings.garbage_collection && self.collect_garbage(rounded)? {
            self.counts.retries += 1;
            if self.extend(rounded, &mut tried)?
                && let Some(found) = self.free.best_fit(&mut self.blocks, rounded)
            {
                return Ok(found);
            }
        }
        Err(self.shortage(asked, tried))
    }

    /// Takes a region from the device that satisfies a request. `tried` is set to the smallest size
    /// requested from the device.
    fn extend(&mut self, rounded: u64, tried: &mut Option<u64>) -> Result<bool, Failure> {
        let available = self.limit.saturating_sub(self.counts.pool) / UNIT * UNIT;
        if rounded > available {
            return Ok(false);
        }
        let grows = rounded > self.next_region;
        while rounded > self.next_region {
            self.next_region = self.next_region.saturating_mul(2);
        }
        let mut size = self.next_region.min(available);
        let mut given = self.ask_device(size, tried)?;
        if given.is_none() && !self.backed_off {
            self.backed_off = self.settings.back_off == BackOff::Once;
            while given.is_none() {
                size = shorter(size);
                if size < rounded {
                    break;
                }
                given = self.ask_device(size, tried)?;
            }
        }
        let Some(region) = given else { return Ok(false) };
        if !grows {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.counts.take_of_device(region.size.0);
        self.add_region(region);
        Ok(true)
    }

    pub(super) fn ask_device(
        &mut self,
        size: u64,
        tried: &mut Option<u64>,
    ) -> Result<Option<Region>, Failure> {
        *tried = Some(tried.map_or(size, |shortest| shortest.min(size)));
        Ok(if self.settings.adjacent_regions {
            self.regions.take_adjacent(&self.memory, size, self.limit)?
        } else {
            Regions::take(&self.memory, size)?
        })
    }

    fn add_region(&mut self, region: Region) {
        let id = self.blocks.add(Block::whole(region.address, region.size.0, 0));
        match self.regions.lengthen(region) {
            None => self.regions.add(region, id),
            Some(first) => {
                let last = self.chunks(first).last().unwrap_or(first);
                self.blocks[last].next = id;
                self.blocks[id].previous = last;
            }
        }
        let id = self.coalesce(id);
        self.insert(id);
    }

    /// Frees all completely free regions, if that could satisfy the request. Returns whether a
    /// region was freed.
    fn collect_garbage(&mut self, rounded: u64) -> Result<bool, Failure> {
        let free: u64 = self.free_regions().iter().map(|held| held.region.size.0).sum();
        let available = self.limit.saturating_sub(self.counts.pool).saturating_add(free);
        if free == 0 || rounded > available {
            return Ok(false);
        }
        self.give_back_free_regions()?;
        Ok(true)
    }

    fn free_regions(&self) -> Vec<HeldRegion> {
        let is_free = |id| self.blocks[id].state == BlockState::Free;
        self.regions.iter().filter(|held| self.chunks(held.first).all(is_free)).copied().collect()
    }

    pub(super) fn give_back_free_regions(&mut self) -> Result<u64, Failure> {
        let (mut given, mut failure) = (0, None);
        for held in self.free_regions() {
            if let Err(error) = self.regions.give_back(&self.memory, held.region) {
                failure.get_or_insert(error);
                continue;
            }
            let chunks: Vec<_> = self.chunks(held.first).collect();
            for id in chunks {
                self.remove_free(id);
                self.blocks.remove(id);
            }
            self.counts.give_to_device(held.region.size.0);
            given += held.region.size.0;
        }
        failure.map_or(Ok(given), |error| Err(error.into()))
    }
}

/// Returns the size to try after the device refused a region of this size.
fn shorter(size: u64) -> u64 {
    // In 32-bit floating point, as TensorFlow computes it.
    let shorter = round((size as f32 * BACK_OFF) as u64).unwrap_or(size);
    shorter.min(size.saturating_sub(UNIT))
}
