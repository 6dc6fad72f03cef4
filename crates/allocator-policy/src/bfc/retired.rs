//! Chunks that were freed before the work that uses them has ended.
//!
//! TensorFlow stamps them with a counter of its work. Work that runs after the timestamp may reuse
//! them at once. Such a chunk does not merge with its neighbours until work no longer uses it, or
//! until only merging can satisfy a request.

use super::Bfc;
use crate::blocks::{BlockId, Blocks};
use crate::free_set::FreeSet;
use crate::policy::BlockState;
use gpu_core::DeviceMemory;
use std::collections::BTreeMap;

/// The waiting chunks. The `list` field of each holds its number of timestamps.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    set: FreeSet,
    /// The group of each timestamp, oldest first; a group is identified by its first timestamp.
    stamps: BTreeMap<u64, u64>,
    groups: BTreeMap<u64, Group>,
    /// The group that each chunk waits for.
    of: BTreeMap<BlockId, u64>,
    last: u64,
}

/// The timestamps that a chunk waits for.
#[derive(Debug)]
struct Group {
    chunk: BlockId,
    /// May contain completed timestamps.
    stamps: Vec<u64>,
}

impl Waiting {
    /// Returns the smallest chunk that suffices.
    pub(super) fn best_fit(&mut self, blocks: &mut Blocks, size: u64) -> Option<BlockId> {
        self.set.best_fit(blocks, size)
    }

    /// Returns the longest chunk.
    pub(super) fn largest(&self, blocks: &Blocks) -> Option<BlockId> {
        self.set.largest(blocks)
    }

    /// Returns the chunks by size and address.
    pub(super) fn in_size_order(&self, blocks: &Blocks) -> Vec<BlockId> {
        self.set.in_order(blocks)
    }

    /// Returns the chunks in the order in which they were freed; a merged chunk may appear several
    /// times.
    pub(super) fn in_order(&self) -> Vec<BlockId> {
        self.stamps.values().map(|group| self.groups[group].chunk).collect()
    }

    /// Adds a chunk and returns its timestamp.
    pub(super) fn add(&mut self, blocks: &mut Blocks, id: BlockId) -> u64 {
        self.last += 1;
        self.stamps.insert(self.last, self.last);
        self.groups.insert(self.last, Group { chunk: id, stamps: vec![self.last] });
        self.of.insert(id, self.last);
        blocks[id].list = 1;
        self.insert(blocks, id);
        self.last
    }

    /// Removes a timestamp. If this was the last timestamp that a chunk waited for, removes and
    /// returns the chunk.
    pub(super) fn complete(&mut self, blocks: &mut Blocks, stamp: u64) -> Option<BlockId> {
        let group = self.stamps.remove(&stamp)?;
        let id = self.groups.get(&group)?.chunk;
        blocks[id].list -= 1;
        (blocks[id].list == 0).then(|| {
            self.groups.remove(&group);
            self.of.remove(&id);
            self.remove(blocks, id);
            id
        })
    }

    /// Removes a chunk and keeps its timestamps.
    pub(super) fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        self.set.remove(blocks, id);
    }

    /// Adds a chunk that already has timestamps.
    pub(super) fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        self.set.insert(blocks, id);
    }

    /// Moves the timestamps of one chunk to another, or removes them.
    pub(super) fn restamp(&mut self, from: BlockId, to: Option<BlockId>) {
        let Some(group) = self.of.remove(&from) else { return };
        let Some(to) = to else {
            let forgotten = self.groups.remove(&group);
            for stamp in forgotten.into_iter().flat_map(|group| group.stamps) {
                self.stamps.remove(&stamp);
            }
            return;
        };
        let group = match self.of.get(&to) {
            Some(&other) => self.join(group, other),
            None => group,
        };
        self.of.insert(to, group);
        if let Some(group) = self.groups.get_mut(&group) {
            group.chunk = to;
        }
    }

    /// Merges the smaller of two groups into the larger, and returns the larger.
    fn join(&mut self, one: u64, other: u64) -> u64 {
        let count = |group| self.groups.get(&group).map_or(0, |group| group.stamps.len());
        let (small, large) = if count(one) < count(other) { (one, other) } else { (other, one) };
        let moved = self.groups.remove(&small).map_or(Vec::new(), |group| group.stamps);
        for stamp in &moved {
            if let Some(group) = self.stamps.get_mut(stamp) {
                *group = large;
            }
        }
        if let Some(group) = self.groups.get_mut(&large) {
            group.stamps.extend(moved);
        }
        large
    }
}

impl<M: DeviceMemory> Bfc<M> {
    /// Merges waiting chunks with their neighbours, oldest first, until one is long enough.
    pub(super) fn merge_waiting(&mut self, rounded: u64) -> bool {
        for id in self.waiting.in_order() {
            if self.blocks[id].state != BlockState::AwaitingFree {
                continue; // Already merged into another chunk.
            }
            self.waiting.remove(&mut self.blocks, id);
            let merged = self.absorb_next(id);
            let previous = self.blocks[merged].previous;
            let merged = if self.is_idle(previous) {
                self.remove_idle(previous);
                self.join_waiting(previous);
                previous
            } else {
                merged
            };
            self.blocks[merged].state = BlockState::AwaitingFree;
            self.waiting.insert(&mut self.blocks, merged);
            if self.blocks[merged].size >= rounded {
                return true;
            }
        }
        false
    }

    fn absorb_next(&mut self, id: BlockId) -> BlockId {
        let next = self.blocks[id].next;
        if self.is_idle(next) {
            self.remove_idle(next);
            self.join_waiting(id);
        }
        id
    }

    fn is_idle(&self, id: BlockId) -> bool {
        self.blocks[id].state != BlockState::Active
    }

    fn remove_idle(&mut self, id: BlockId) {
        match self.blocks[id].state {
            BlockState::Free => self.remove_free(id),
            _ => self.waiting.remove(&mut self.blocks, id),
        }
    }

    /// Merges a chunk with the next one; the result waits for all work of both.
    fn join_waiting(&mut self, id: BlockId) {
        let next = self.blocks[id].next;
        self.blocks[id].list += self.blocks[next].list;
        self.waiting.restamp(next, Some(id));
        self.blocks.join_next(id);
    }
}
