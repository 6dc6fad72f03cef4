//! Free blocks in the order of best fit.
//!
//! Both PyTorch's allocator and TensorFlow's take the smallest block that suffices and, among
//! equals, the one at the lowest address; TensorFlow's bins divide that order but do not change it.
//! The blocks are divided into size classes, sixteen for each power of two, and a bitmap shows the
//! classes that are not empty. The blocks of a class form a pairing heap (Fredman, Sedgewick,
//! Sleator and Tarjan, 1986), whose links are in the blocks themselves. A request nearly always
//! takes the first block of a class. Inserting a freed block takes a few steps at any position,
//! whereas a sorted array would need a search and a move. This matters because a caching allocator
//! does not merge its regions, so that hundreds of free blocks have the same size.
//!
//! Adding a block takes constant time. Removing one takes amortised logarithmic time in the number
//! of free blocks. A class may contain blocks that are too short for a request, by less than a
//! sixteenth. A search skips them one by one. A class in which a search skips many becomes an
//! ordered map until it is empty again, so that no request takes time linear in the number of
//! blocks.

use crate::blocks::{Block, BlockId, Blocks, NONE};
use std::collections::BTreeMap;

/// Classes for each power of two, as a base-2 logarithm.
const STEPS: u32 = 4;
/// The minimum number of classes; a power of two, so that a mask keeps an index below it.
const CLASSES: usize = ((64 - STEPS as usize) << STEPS).next_power_of_two();

/// A search that skips more blocks than this in a class sorts the class.
const MAX_SKIPPED: usize = 32;

/// The blocks of a class by rank ([`Block::key`]).
type Sorted = BTreeMap<u128, BlockId>;

/// Free blocks, ordered by size and address. A block is in at most one set, and does not change its
/// size or address while it is in the set.
#[derive(Debug, Default)]
pub(crate) struct FreeSet {
    /// A bitmap of the classes that are not empty.
    filled: [u64; CLASSES / 64],
    /// The first block of each class, up to the largest class used so far.
    firsts: Vec<BlockId>,
    /// The classes that are ordered maps instead of heaps, up to the largest class sorted so far.
    sorted: Vec<Option<Sorted>>,
}

/// Returns the class of a size; classes are in the order of their sizes.
#[inline]
fn class_of(size: u64) -> usize {
    let size = size.max(1 << STEPS);
    let shift = size.ilog2() - STEPS;
    let class = (u64::from(shift) << STEPS) + (size >> shift) - (1 << STEPS);
    class as usize & (CLASSES - 1)
}

// `inline(always)` affects only two or three callers here, which run in every operation.
impl FreeSet {
    /// Adds a block.
    #[inline(always)]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        let class = class_of(blocks[id].size);
        if class >= self.firsts.len() {
            self.lengthen(class);
        }
        if self.is_sorted(class) {
            return self.insert_sorted(blocks, class, id);
        }
        self.filled[class / 64] |= 1 << (class % 64);
        blocks[id].links.child = NONE;
        let first = &mut self.firsts[class];
        *first = if *first == NONE { id } else { meld(blocks, *first, id) };
    }

    #[cold]
    fn lengthen(&mut self, class: usize) {
        self.firsts.resize(class + 1, NONE);
    }

    #[inline(always)]
    fn is_sorted(&self, class: usize) -> bool {
        self.sorted.get(class).is_some_and(Option::is_some)
    }

    #[cold]
    fn insert_sorted(&mut self, blocks: &Blocks, class: usize, id: BlockId) {
        let Some(sorted) = &mut self.sorted[class] else { return };
        sorted.insert(blocks[id].key(), id);
        self.firsts[class] = sorted.first_key_value().map_or(NONE, |(_, first)| *first);
    }

    #[cold]
    fn remove_sorted(&mut self, blocks: &Blocks, class: usize, id: BlockId) {
        let Some(sorted) = &mut self.sorted[class] else { return };
        sorted.remove(&blocks[id].key());
        self.firsts[class] = sorted.first_key_value().map_or(NONE, |(_, first)| *first);
        if sorted.is_empty() {
            self.sorted[class] = None;
            self.filled[class / 64] &= !(1 << (class % 64));
        }
    }

    /// Turns the heap of a class into an ordered map.
    #[cold]
    fn sort(&mut self, blocks: &Blocks, class: usize) {
        if class >= self.sorted.len() {
            self.sorted.resize(class + 1, None);
        }
        let all = heap(blocks, self.firsts[class]).into_iter();
        self.sorted[class] = Some(all.map(|id| (blocks[id].key(), id)).collect());
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, id: BlockId) {
        let class = class_of(blocks[id].size);
        if self.is_sorted(class) {
            self.remove_sorted(blocks, class, id);
        } else if self.firsts[class] == id {
            self.pop_heap(blocks, class);
        } else {
            detach(blocks, self.firsts[class], id);
        }
    }

    /// Removes the first block of a class that is not empty.
    #[inline(always)]
    fn pop(&mut self, blocks: &mut Blocks, class: usize) {
        if self.is_sorted(class) {
            return self.remove_sorted(blocks, class, self.firsts[class]);
        }
        self.pop_heap(blocks, class);
    }

    #[inline(always)]
    fn pop_heap(&mut self, blocks: &mut Blocks, class: usize) {
        let first = join(blocks, blocks[self.firsts[class]].links.child);
        self.firsts[class] = first;
        // Branchless, because the processor cannot predict whether other blocks follow.
        self.filled[class / 64] ^= u64::from(first == NONE) << (class % 64);
    }

    /// Returns the first block in order of at least `size` bytes.
    #[inline(always)]
    pub(crate) fn best_fit(&mut self, blocks: &mut Blocks, size: u64) -> Option<BlockId> {
        let class = self.next_filled(class_of(size))?;
        let first = self.firsts[class];
        if blocks[first].size >= size {
            return Some(first);
        }
        self.best_behind(blocks, class, size)
    }

    /// Removes the first block in order of at least `size` bytes, if `fit` accepts it. Returns the
    /// block, or as the error the block that `fit` rejected.
    #[inline(always)]
    pub(crate) fn take_best_fit(
        &mut self,
        blocks: &mut Blocks,
        size: u64,
        fit: impl FnOnce(&Block) -> bool,
    ) -> Result<Option<BlockId>, BlockId> {
        let Some(class) = self.next_filled(class_of(size)) else { return Ok(None) };
        let first = self.firsts[class];
        if blocks[first].size < size {
            return self.take_behind(blocks, class, size, fit);
        }
        if !fit(&blocks[first]) {
            return Err(first);
        }
        self.pop(blocks, class);
        Ok(Some(first))
    }

    #[inline(never)]
    fn take_behind(
        &mut self,
        blocks: &mut Blocks,
        class: usize,
        size: u64,
        fit: impl FnOnce(&Block) -> bool,
    ) -> Result<Option<BlockId>, BlockId> {
        let Some(best) = self.best_behind(blocks, class, size) else { return Ok(None) };
        if !fit(&blocks[best]) {
            return Err(best);
        }
        self.remove(blocks, best);
        Ok(Some(best))
    }

    /// Returns the first block of at least `size` bytes, starting at a class whose first block is
    /// shorter.
    #[inline(never)]
    fn best_behind(&mut self, blocks: &mut Blocks, class: usize, size: u64) -> Option<BlockId> {
        if !self.is_sorted(class) {
            let mut id = self.firsts[class];
            for _ in 0..MAX_SKIPPED {
                if blocks[id].size >= size {
                    return if id != NONE { Some(id) } else { self.first_from(class + 1) };
                }
                id = next_in_heap(blocks, id);
            }
            self.sort(blocks, class);
        }
        let found = self.first_sorted(class, u128::from(size) << 64);
        found.or_else(|| self.first_from(class + 1))
    }

    /// Returns the first block of a sorted class with at least this rank.
    fn first_sorted(&self, class: usize, from: u128) -> Option<BlockId> {
        Some(*self.sorted.get(class)?.as_ref()?.range(from..).next()?.1)
    }

    /// Returns the block that follows the one last returned by this method or by
    /// [`best_fit`](Self::best_fit).
    pub(crate) fn after(&self, blocks: &mut Blocks, id: BlockId) -> Option<BlockId> {
        let class = class_of(blocks[id].size);
        if self.is_sorted(class) {
            let found = self.first_sorted(class, blocks[id].key() + 1);
            return found.or_else(|| self.first_from(class + 1));
        }
        match next_in_heap(blocks, id) {
            NONE => self.first_from(class + 1),
            next => Some(next),
        }
    }

    /// Returns the last block in order: the largest. It takes time linear in the number of blocks
    /// of its class, unless the class is [sorted](Self::sort_largest).
    pub(crate) fn largest(&self, blocks: &Blocks) -> Option<BlockId> {
        let class = self.last_filled()?;
        if let Some(Some(sorted)) = self.sorted.get(class) {
            return sorted.last_key_value().map(|(_, last)| *last);
        }
        heap(blocks, self.firsts[class]).into_iter().max_by_key(|id| blocks[*id].key())
    }

    /// Makes [`largest`](Self::largest) fast for callers that need it often.
    pub(crate) fn sort_largest(&mut self, blocks: &Blocks) {
        if let Some(class) = self.last_filled()
            && !self.is_sorted(class)
            && blocks[self.firsts[class]].links.child != NONE
        {
            self.sort(blocks, class);
        }
    }

    fn last_filled(&self) -> Option<usize> {
        let word = self.filled.iter().rposition(|word| *word != 0)?;
        Some(word * 64 + self.filled[word].ilog2() as usize)
    }

    pub(crate) fn in_order(&self, blocks: &Blocks) -> Vec<BlockId> {
        let classes = self.firsts.iter().enumerate();
        let mut all: Vec<_> = classes
            .flat_map(|(class, first)| match self.sorted.get(class) {
                Some(Some(sorted)) => sorted.values().copied().collect(),
                _ => heap(blocks, *first),
            })
            .collect();
        all.sort_unstable_by_key(|id| blocks[*id].key());
        all
    }

    fn first_from(&self, class: usize) -> Option<BlockId> {
        Some(self.firsts[self.next_filled(class)?])
    }

    /// Returns the first class from this one on that is not empty.
    #[inline(always)]
    fn next_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = *self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

/// Merges two heaps, and returns the first block.
#[inline(always)]
fn meld(blocks: &mut Blocks, one: BlockId, other: BlockId) -> BlockId {
    let (first, second) =
        if blocks[other].key() < blocks[one].key() { (other, one) } else { (one, other) };
    let child = std::mem::replace(&mut blocks[first].links.child, second);
    let links = &mut blocks[second].links;
    (links.left, links.right) = (first, child);
    blocks[child].links.left = second;
    first
}

/// Merges a list of siblings into one heap, and returns the first block.
#[inline(always)]
fn join(blocks: &mut Blocks, siblings: BlockId) -> BlockId {
    if blocks[siblings].links.right == NONE { siblings } else { join_many(blocks, siblings) }
}

/// Merges siblings pairwise, and then the pairs into one heap. The result has half as many children
/// as there were siblings, so the next merge has less to do.
#[inline(never)]
fn join_many(blocks: &mut Blocks, siblings: BlockId) -> BlockId {
    let (mut pairs, mut rest) = (NONE, siblings);
    while rest != NONE {
        let one = rest;
        let other = blocks[one].links.right;
        rest = blocks[other].links.right;
        let pair = if other == NONE { one } else { meld(blocks, one, other) };
        blocks[pair].links.right = pairs;
        pairs = pair;
    }
    let (mut all, mut rest) = (pairs, blocks[pairs].links.right);
    while rest != NONE {
        let pair = rest;
        rest = blocks[pair].links.right;
        all = meld(blocks, all, pair);
    }
    blocks[all].links.right = NONE;
    all
}

/// Removes a block other than the first from its heap.
#[inline(never)]
fn detach(blocks: &mut Blocks, first: BlockId, id: BlockId) {
    let links = blocks[id].links;
    let left = &mut blocks[links.left].links;
    if left.child == id {
        left.child = links.right;
    } else {
        left.right = links.right;
    }
    blocks[links.right].links.left = links.left;
    if links.child != NONE {
        let below = join(blocks, links.child);
        meld(blocks, first, below);
    }
}

/// Merges the children of a block into one child, and returns that child, if any. If this was done
/// for all preceding blocks, starting with the first of the heap, the child is the next block in
/// order.
fn next_in_heap(blocks: &mut Blocks, id: BlockId) -> BlockId {
    let next = join(blocks, blocks[id].links.child);
    blocks[id].links.child = next;
    blocks[next].links.left = id;
    next
}

/// Returns all blocks of a heap, in no particular order.
fn heap(blocks: &Blocks, first: BlockId) -> Vec<BlockId> {
    let mut all = Vec::from_iter((first != NONE).then_some(first));
    let mut seen = 0;
    while let Some(id) = all.get(seen) {
        let mut child = blocks[*id].links.child;
        while child != NONE {
            all.push(child);
            child = blocks[child].links.right;
        }
        seen += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A set and its reference model.
    #[derive(Default)]
    struct Both {
        blocks: Blocks,
        set: FreeSet,
        model: BTreeMap<(u64, u64), BlockId>,
    }

    impl Both {
        fn insert(&mut self, size: u64, address: u64) {
            if !self.model.contains_key(&(size, address)) {
                let id = self.blocks.add(Block::whole(address, size, 0));
                self.set.insert(&mut self.blocks, id);
                self.model.insert((size, address), id);
            }
        }

        fn remove(&mut self, size: u64, address: u64) {
            if let Some(id) = self.model.remove(&(size, address)) {
                self.set.remove(&mut self.blocks, id);
                self.blocks.remove(id);
            }
        }

        fn from(&self, size: u64, address: u64) -> Option<BlockId> {
            self.model.range((size, address)..).next().map(|(_, id)| *id)
        }
    }

    #[test]
    fn size_classes_are_monotonic() {
        let sizes = (0..64).flat_map(|bit| {
            let size = 1u64 << bit;
            [size - 1, size, size.saturating_add(size / 8), size.saturating_add(size / 2)]
        });
        let mut sizes: Vec<_> = sizes.chain([u64::MAX]).collect();
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            assert!(class_of(pair[0]) <= class_of(pair[1]), "{pair:?}");
        }
        assert!(class_of(u64::MAX) < CLASSES);
    }

    proptest! {
        #[test]
        fn free_set_matches_ordered_map(
            steps in proptest::collection::vec((0u8..6, 0u64..80, 0u64..64, 0u32..60), 1..600),
        ) {
            let mut both = Both::default();
            for (kind, small, address, shift) in steps {
                // Few distinct sizes, so that a class holds several sizes and many blocks.
                let size = 1000 + if shift < 50 { small / 8 } else { small << (shift % 32) };
                match kind {
                    0..=2 => both.insert(size, address),
                    3 => both.remove(size, address),
                    4 => {
                        let expected = both.from(size, 0);
                        let fit = |block: &Block| !block.size.is_multiple_of(3);
                        let fits = expected.is_none_or(|id| fit(&both.blocks[id]));
                        let taken = both.set.take_best_fit(&mut both.blocks, size, fit);
                        let answer = if fits { Ok(expected) } else { Err(expected.unwrap_or(NONE)) };
                        prop_assert_eq!(taken, answer);
                        both.model.retain(|_, id| !(fits && Some(*id) == expected));
                    }
                    _ => {
                        let mut found = both.set.best_fit(&mut both.blocks, size);
                        prop_assert_eq!(found, both.from(size, 0));
                        for _ in 0..address {
                            let Some(id) = found else { break };
                            found = both.set.after(&mut both.blocks, id);
                            let Block { size, address, .. } = both.blocks[id];
                            prop_assert_eq!(found, both.from(size, address + 1));
                        }
                    }
                }
                let last = both.model.last_key_value().map(|(_, id)| *id);
                prop_assert_eq!(both.set.largest(&both.blocks), last);
            }
            let all = both.set.in_order(&both.blocks);
            prop_assert!(all.iter().eq(both.model.values()));
        }
    }

    #[test]
    fn equal_sized_blocks_are_found_in_address_order() {
        let mut both = Both::default();
        for index in 0..5000 {
            both.insert(512, index * 7 % 5000 * 512);
        }
        for index in 0..4990 {
            let found = both.set.best_fit(&mut both.blocks, 500);
            assert_eq!(found.map(|id| both.blocks[id].address), Some(index * 512));
            both.remove(512, index * 512);
        }
        assert_eq!(both.set.in_order(&both.blocks).len(), 10);
    }
}
