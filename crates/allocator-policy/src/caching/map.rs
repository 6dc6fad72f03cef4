//! Maps the held memory, region by region.

use super::free_lists::{UNMAPPED, free_list_of};
use super::{Caching, Events};
use crate::blocks::NONE;
use crate::policy::{BlockMap, SegmentMap};
use gpu_core::{Bytes, DeviceMemory};

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Returns the held regions by address. Each mapped part of an expandable segment counts as a
    /// region, as in PyTorch's snapshots.
    pub(super) fn map(&self) -> Vec<SegmentMap> {
        let mut segments = Vec::new();
        for held in self.segments.values() {
            let mut open = false;
            let mut id = held.first;
            while id != NONE {
                let block = &self.blocks[id];
                let (address, size) = (block.address, Bytes(block.size));
                let mapped = block.list & UNMAPPED == 0;
                if mapped && !open {
                    let stream = Some(self.free_lists[free_list_of(block.list)].stream);
                    let (size, blocks) = (Bytes(0), Vec::new());
                    segments.push(SegmentMap { address, size, stream, blocks });
                }
                if let Some(segment) = segments.last_mut().filter(|_| mapped) {
                    let (requested, state) = (Bytes(block.requested), block.state);
                    segment.size += size;
                    segment.blocks.push(BlockMap { address, size, requested, state });
                }
                open = mapped;
                id = block.next;
            }
        }
        segments
    }
}
