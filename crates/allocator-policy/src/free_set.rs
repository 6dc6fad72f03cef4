//! Free blocks in the order of best fit.
//!
//! Both PyTorch's allocator and TensorFlow's take the smallest block that suffices and, among
//! equals, the one at the lowest address; TensorFlow's bins divide that order and do not change it.
//! The blocks lie in classes of size, eight to each power of two, and a bitmap names the classes
//! that hold any. The first block of each class, which is nearly always the one that is asked for,
//! lies apart from those behind it, so that the usual operation touches a few cache lines. Many
//! blocks behind a first one are a tree: no operation costs more than the logarithm of what is free.

use crate::blocks::{BlockId, NONE};
use std::collections::BTreeMap;

/// Classes to each power of two, as a power of two itself.
const STEPS: u32 = 3;
/// How many classes there are at least; a power of two, so that a number is kept below it by a mask.
const CLASSES: usize = ((64 - STEPS as usize) << STEPS).next_power_of_two();
/// How many blocks lie in a row behind the first.
const MOST_IN_ROW: usize = 256;
/// How many blocks of a row are looked at, one by one, before it is halved.
const NEAR: usize = 8;
/// How few blocks of a tree become a row again.
const FEW: usize = 64;

/// A free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    /// How long it is.
    pub(crate) size: u64,
    /// Where it begins.
    pub(crate) address: u64,
    /// Which block it is.
    pub(crate) block: BlockId,
}

/// The order of blocks as one number, which is compared without a branch.
type Key = u128;

fn key(size: u64, address: u64) -> Key {
    Key::from(size) << 64 | Key::from(address)
}

impl Free {
    fn key(&self) -> Key {
        key(self.size, self.address)
    }
}

/// Free blocks, ordered by size and address.
#[derive(Debug)]
pub(crate) struct FreeSet {
    /// Which classes hold any.
    filled: [u64; CLASSES / 64],
    /// Of each class that holds any, the first.
    firsts: Box<[Free; CLASSES]>,
    /// Of each class, those behind the first.
    others: Box<[Others; CLASSES]>,
}

/// The blocks of a class but the first.
#[derive(Debug)]
enum Others {
    /// Those that are last in order come first, so that the usual one is taken off the end.
    Row(Vec<Free>),
    Tree(BTreeMap<Key, BlockId>),
}

impl Default for FreeSet {
    fn default() -> Self {
        let none = Free { size: 0, address: 0, block: NONE };
        FreeSet {
            filled: [0; CLASSES / 64],
            firsts: Box::new([none; CLASSES]),
            others: Box::new([const { Others::Row(Vec::new()) }; CLASSES]),
        }
    }
}

/// Returns the class of a size; the order of classes is that of their sizes.
#[inline]
fn class_of(size: u64) -> usize {
    let size = size.max(1 << STEPS);
    let shift = size.ilog2() - STEPS;
    let class = (u64::from(shift) << STEPS) + (size >> shift) - (1 << STEPS);
    class as usize & (CLASSES - 1)
}

impl FreeSet {
    /// Adds a block.
    #[inline]
    pub(crate) fn insert(&mut self, free: Free) {
        let class = class_of(free.size);
        let first = &mut self.firsts[class];
        if self.filled[class / 64] & 1 << (class % 64) == 0 {
            self.filled[class / 64] |= 1 << (class % 64);
            *first = free;
            return;
        }
        let behind = if free.key() < first.key() { std::mem::replace(first, free) } else { free };
        self.others[class].insert(behind);
    }

    /// Removes a block; tells whether it was there.
    #[inline]
    pub(crate) fn remove(&mut self, size: u64, address: u64) -> bool {
        let class = class_of(size);
        self.holds(class) && self.remove_of(class, key(size, address))
    }

    /// Returns the first block in order of at least `size` bytes.
    #[inline]
    pub(crate) fn best_fit(&self, size: u64) -> Option<Free> {
        self.from(key(size, 0)).map(|(_, best)| best)
    }

    /// Removes the first block in order of at least `size` bytes, if it is fit; returns it, or the
    /// one that is not fit as the error.
    #[inline]
    pub(crate) fn take_best_fit(
        &mut self,
        size: u64,
        fit: impl FnOnce(&Free) -> bool,
    ) -> Result<Option<Free>, Free> {
        let Some((class, best)) = self.from(key(size, 0)) else { return Ok(None) };
        if !fit(&best) {
            return Err(best);
        }
        self.remove_of(class, best.key());
        Ok(Some(best))
    }

    /// Returns the block that follows another in order.
    pub(crate) fn after(&self, free: Free) -> Option<Free> {
        self.from(free.key() + 1).map(|(_, next)| next)
    }

    /// Returns the last block in order: the largest.
    pub(crate) fn largest(&self) -> Option<Free> {
        let word = self.filled.iter().rposition(|word| *word != 0)?;
        let class = word * 64 + 63 - self.filled[word].leading_zeros() as usize;
        self.others[class].last().or(Some(self.firsts[class]))
    }

    /// Visits the blocks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Free> + '_ {
        let filled = (0..CLASSES).filter(|class| self.holds(*class));
        filled
            .flat_map(|class| std::iter::once(self.firsts[class]).chain(self.others[class].iter()))
    }

    #[inline]
    fn holds(&self, class: usize) -> bool {
        self.filled[class / 64] & 1 << (class % 64) != 0
    }

    /// Returns the first block at a key or behind it in order, and its class.
    #[inline]
    fn from(&self, key: Key) -> Option<(usize, Free)> {
        let class = class_of((key >> 64) as u64);
        if self.holds(class) {
            let first = self.firsts[class];
            if first.key() >= key {
                return Some((class, first));
            }
            if let Some(other) = self.others[class].from(key) {
                return Some((class, other));
            }
        }
        let next = self.next_filled(class + 1)?;
        Some((next, self.firsts[next]))
    }

    /// Removes a block of a class that holds any; tells whether it was there.
    #[inline]
    fn remove_of(&mut self, class: usize, key: Key) -> bool {
        let first = &mut self.firsts[class];
        if first.key() != key {
            return self.others[class].remove(key);
        }
        match self.others[class].pop() {
            Some(next) => *first = next,
            None => self.filled[class / 64] &= !(1 << (class % 64)),
        }
        true
    }

    #[inline]
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

impl Others {
    fn insert(&mut self, free: Free) {
        match self {
            Others::Row(row) if row.len() < MOST_IN_ROW => {
                let place = count_from(row, free.key());
                if place == row.len() {
                    row.push(free);
                } else {
                    row.insert(place, free);
                }
            }
            _ => self.insert_in_tree(free),
        }
    }

    #[cold]
    fn insert_in_tree(&mut self, free: Free) {
        if let Others::Row(row) = self {
            *self = Others::Tree(row.iter().map(|free| (free.key(), free.block)).collect());
        }
        if let Others::Tree(tree) = self {
            tree.insert(free.key(), free.block);
        }
    }

    /// Removes the first block.
    #[inline]
    fn pop(&mut self) -> Option<Free> {
        match self {
            Others::Row(row) => row.pop(),
            Others::Tree(_) => self.pop_of_tree(),
        }
    }

    #[cold]
    fn pop_of_tree(&mut self) -> Option<Free> {
        let first = self.from(0)?;
        self.remove(first.key());
        Some(first)
    }

    fn remove(&mut self, key: Key) -> bool {
        match self {
            Others::Row(row) => {
                let place = count_from(row, key).wrapping_sub(1);
                let found = row.get(place).is_some_and(|free| free.key() == key);
                if found {
                    row.remove(place);
                }
                found
            }
            Others::Tree(tree) => {
                let found = tree.remove(&key).is_some();
                if tree.len() <= FEW {
                    *self = Others::Row(tree.iter().rev().map(free).collect());
                }
                found
            }
        }
    }

    fn from(&self, key: Key) -> Option<Free> {
        match self {
            Others::Row(row) => row[..count_from(row, key)].last().copied(),
            Others::Tree(tree) => tree.range(key..).next().map(free),
        }
    }

    fn last(&self) -> Option<Free> {
        match self {
            Others::Row(row) => row.first().copied(),
            Others::Tree(tree) => tree.last_key_value().map(free),
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Free> + '_> {
        match self {
            Others::Row(row) => Box::new(row.iter().rev().copied()),
            Others::Tree(tree) => Box::new(tree.iter().map(free)),
        }
    }
}

/// Returns how many blocks of a row are at a key or behind it in order.
#[inline]
fn count_from(row: &[Free], key: Key) -> usize {
    let far = row.len().saturating_sub(NEAR);
    match row[far..].iter().rposition(|free| free.key() >= key) {
        Some(place) => far + place + 1,
        None => row[..far].partition_point(|free| free.key() >= key),
    }
}

fn free((&key, &block): (&Key, &BlockId)) -> Free {
    Free { size: (key >> 64) as u64, address: key as u64, block }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pair(free: Free) -> (u64, u64) {
        (free.size, free.address)
    }

    #[test]
    fn classes_are_in_the_order_of_sizes() {
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
        fn it_answers_as_an_ordered_set_does(
            steps in proptest::collection::vec((0u8..4, 0u64..40, 0u64..64, 0u32..60), 1..600),
        ) {
            let mut set = FreeSet::default();
            let mut model = BTreeSet::new();
            for (kind, small, address, shift) in steps {
                // Most sizes are few and alike, so that rows become trees and rows again.
                let size = if shift < 50 { small / 8 } else { small << (shift % 32) };
                match kind {
                    0 | 1 => {
                        if model.insert((size, address)) {
                            set.insert(Free { size, address, block: (size ^ address) as u32 });
                        }
                    }
                    2 => prop_assert_eq!(set.remove(size, address), model.remove(&(size, address))),
                    _ => prop_assert_eq!(
                        set.best_fit(size).map(pair),
                        model.range((size, 0)..).next().copied()
                    ),
                }
                if kind == 3 && shift % 2 == 0 {
                    let expected = model.range((size, 0)..).next().copied();
                    let fit = expected.is_none_or(|(size, _)| size % 3 != 0);
                    let taken = set.take_best_fit(size, |free| free.size % 3 != 0);
                    let (Ok(found) | Err(found)) = taken.map_err(Some);
                    prop_assert_eq!(found.map(pair), expected);
                    prop_assert_eq!(taken.is_ok(), fit);
                    model.retain(|free| !(fit && Some(*free) == expected));
                }
                let here = Free { size, address, block: 0 };
                prop_assert_eq!(
                    set.after(here).map(pair),
                    model.range((size, address + 1)..).next().copied()
                );
                prop_assert_eq!(set.iter().count(), model.len());
                prop_assert_eq!(set.largest().map(pair), model.last().copied());
            }
            prop_assert_eq!(set.iter().map(pair).collect::<Vec<_>>(), Vec::from_iter(model));
        }
    }

    #[test]
    fn many_blocks_of_one_size_are_found_by_address() {
        let mut set = FreeSet::default();
        for address in (0..1000).rev() {
            set.insert(Free { size: 512, address: address * 512, block: address as u32 });
        }
        for address in 0..990 {
            assert_eq!(set.best_fit(500).map(|free| free.block), Some(address));
            assert!(set.remove(512, u64::from(address) * 512));
        }
        assert_eq!(set.iter().count(), 10);
        assert!(!set.remove(512, 0));
    }
}
