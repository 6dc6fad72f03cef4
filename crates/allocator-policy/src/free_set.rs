//! Free blocks in the order of best fit.
//!
//! Both PyTorch's allocator and TensorFlow's take the smallest block that suffices and, among
//! equals, the one at the lowest address; TensorFlow's bins divide that order and do not change it.
//! The blocks lie in classes of size, eight to each power of two, and a bitmap names the classes
//! that hold any, so that the usual operation touches a few cache lines. A class with many blocks
//! is a tree: no operation costs more than the logarithm of what is free.

use crate::blocks::BlockId;
use std::collections::BTreeMap;

/// Classes to each power of two, as a power of two itself.
const STEPS: u32 = 3;
/// Classes there are: sizes below 2^STEPS have one each.
const CLASSES: usize = ((64 - STEPS as usize) + 1) << STEPS;
/// How many blocks of a class lie in a row.
const MOST_IN_ROW: usize = 256;
/// Up to here a row is looked through from its begin.
const SHORT: usize = 8;
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

#[derive(Debug)]
enum Class {
    Row(Vec<Free>),
    Tree(BTreeMap<Key, BlockId>),
}

/// Free blocks, ordered by size and address.
#[derive(Debug)]
pub(crate) struct FreeSet {
    classes: Vec<Class>,
    filled: [u64; CLASSES.div_ceil(64)],
}

impl Default for FreeSet {
    fn default() -> Self {
        let filled = [0; CLASSES.div_ceil(64)];
        FreeSet { classes: Vec::new(), filled }
    }
}

/// Returns the class of a size; the order of classes is that of their sizes.
fn class_of(size: u64) -> usize {
    if size < 1 << STEPS {
        return size as usize;
    }
    let exponent = size.ilog2();
    let step = (size >> (exponent - STEPS)) & ((1 << STEPS) - 1);
    (((exponent - STEPS + 1) as usize) << STEPS) + step as usize
}

impl FreeSet {
    /// Adds a block.
    pub(crate) fn insert(&mut self, free: Free) {
        if self.classes.is_empty() {
            self.classes.resize_with(CLASSES, || Class::Row(Vec::new()));
        }
        let number = class_of(free.size);
        self.filled[number / 64] |= 1 << (number % 64);
        self.classes[number].insert(free);
    }

    /// Removes a block; tells whether it was there.
    pub(crate) fn remove(&mut self, size: u64, address: u64) -> bool {
        let number = class_of(size);
        let Some(class) = self.classes.get_mut(number) else { return false };
        let removed = class.remove(key(size, address));
        if removed && class.is_empty() {
            self.filled[number / 64] &= !(1 << (number % 64));
        }
        removed
    }

    /// Returns the first block in order of at least `size` bytes.
    pub(crate) fn best_fit(&self, size: u64) -> Option<Free> {
        let number = class_of(size);
        let class = self.classes.get(number)?;
        class.first_from(key(size, 0)).or_else(|| {
            let next = self.next_filled(number + 1)?;
            self.classes[next].first_from(0)
        })
    }

    /// Removes the first block in order of at least `size` bytes, if it is fit; returns it, or the
    /// one that is not fit as the error.
    #[inline]
    pub(crate) fn take_best_fit(
        &mut self,
        size: u64,
        fit: impl Fn(&Free) -> bool,
    ) -> Result<Option<Free>, Free> {
        let mut number = class_of(size);
        let mut from = key(size, 0);
        loop {
            let Some(class) = self.classes.get_mut(number) else { return Ok(None) };
            if let Some(best) = class.take_first_from(from, &fit)? {
                if class.is_empty() {
                    self.filled[number / 64] &= !(1 << (number % 64));
                }
                return Ok(Some(best));
            }
            let Some(next) = self.next_filled(number + 1) else { return Ok(None) };
            (number, from) = (next, 0);
        }
    }

    /// Returns the block that follows another in order.
    pub(crate) fn after(&self, free: Free) -> Option<Free> {
        let number = class_of(free.size);
        let class = self.classes.get(number)?;
        class.first_from(free.key() + 1).or_else(|| {
            let next = self.next_filled(number + 1)?;
            self.classes[next].first_from(0)
        })
    }

    /// Returns the last block in order: the largest.
    pub(crate) fn largest(&self) -> Option<Free> {
        let word = self.filled.iter().rposition(|word| *word != 0)?;
        let number = word * 64 + 63 - self.filled[word].leading_zeros() as usize;
        self.classes[number].last()
    }

    /// Visits the blocks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Free> + '_ {
        self.classes.iter().flat_map(Class::iter)
    }

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

impl Class {
    fn is_empty(&self) -> bool {
        match self {
            Class::Row(row) => row.is_empty(),
            Class::Tree(tree) => tree.is_empty(),
        }
    }

    fn insert(&mut self, free: Free) {
        match self {
            Class::Row(row) if row.len() <= SHORT => {
                row.push(free);
                let mut place = row.len() - 1;
                while place > 0 && row[place - 1].key() > free.key() {
                    row[place] = row[place - 1];
                    place -= 1;
                }
                row[place] = free;
            }
            Class::Row(row) if row.len() < MOST_IN_ROW => {
                let place = place(row, free.key());
                row.insert(place, free);
            }
            Class::Row(row) => {
                let mut tree: BTreeMap<_, _> =
                    row.iter().map(|free| (free.key(), free.block)).collect();
                tree.insert(free.key(), free.block);
                *self = Class::Tree(tree);
            }
            Class::Tree(tree) => {
                tree.insert(free.key(), free.block);
            }
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        match self {
            Class::Row(row) => {
                let place = place(row, key);
                let found = row.get(place).is_some_and(|free| free.key() == key);
                if found {
                    row.remove(place);
                }
                found
            }
            Class::Tree(tree) => {
                let found = tree.remove(&key).is_some();
                if tree.len() <= FEW {
                    *self = Class::Row(self.iter().collect());
                }
                found
            }
        }
    }

    fn first_from(&self, key: Key) -> Option<Free> {
        match self {
            Class::Row(row) => row.get(place(row, key)).copied(),
            Class::Tree(tree) => tree.range(key..).next().map(free),
        }
    }

    #[inline]
    fn take_first_from(
        &mut self,
        key: Key,
        fit: impl Fn(&Free) -> bool,
    ) -> Result<Option<Free>, Free> {
        let first = match self {
            Class::Row(row) => {
                let place = place(row, key);
                match row.get(place).copied() {
                    Some(first) if fit(&first) => {
                        row.remove(place);
                        return Ok(Some(first));
                    }
                    first => first,
                }
            }
            Class::Tree(_) => self.first_from(key),
        };
        let Some(first) = first else { return Ok(None) };
        if !fit(&first) {
            return Err(first);
        }
        self.remove(first.key());
        Ok(Some(first))
    }

    fn last(&self) -> Option<Free> {
        match self {
            Class::Row(row) => row.last().copied(),
            Class::Tree(tree) => tree.last_key_value().map(free),
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = Free> + '_> {
        match self {
            Class::Row(row) => Box::new(row.iter().copied()),
            Class::Tree(tree) => Box::new(tree.iter().map(free)),
        }
    }
}

/// Returns where in a row a key belongs.
#[inline]
fn place(row: &[Free], key: Key) -> usize {
    if row.len() <= SHORT {
        return row.iter().map(|free| usize::from(free.key() < key)).sum();
    }
    row.partition_point(|free| free.key() < key)
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
