//! The mapped parts of an address range.

use std::collections::BTreeMap;

/// Disjoint parts: their start and end addresses.
#[derive(Debug, Default)]
pub(super) struct Mapped(BTreeMap<u64, u64>);

impl Mapped {
    /// Returns whether no address in the interval is mapped.
    pub(super) fn is_vacant(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_none_or(|(_, its)| *its <= start)
    }

    /// Adds an unmapped interval.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let below = self.0.range(..start).next_back();
        let start = below.filter(|(_, its)| **its == start).map_or(start, |(below, _)| *below);
        let end = self.0.remove(&end).unwrap_or(end);
        self.0.insert(start, end);
    }

    /// Removes an interval; returns whether all of it was mapped.
    pub(super) fn remove(&mut self, start: u64, end: u64) -> bool {
        let part = self.0.range(..=start).next_back().filter(|(_, its)| **its >= end);
        let Some((&first, &last)) = part else { return false };
        self.0.remove(&first);
        for (start, end) in [(first, start), (end, last)] {
            if start < end {
                self.0.insert(start, end);
            }
        }
        true
    }

    /// Returns the number of mapped bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn mapped_matches_page_array(
            steps in proptest::collection::vec((any::<bool>(), 0usize..24, 1usize..8), 1..200),
        ) {
            let mut mapped = Mapped::default();
            let mut pages = [false; 32];
            for (adds, start, length) in steps {
                let part = start..start + length;
                let (from, to) = (start as u64, (start + length) as u64);
                let vacant = pages[part.clone()].iter().all(|has| !has);
                prop_assert_eq!(mapped.is_vacant(from, to), vacant);
                if adds && vacant {
                    mapped.add(from, to);
                    pages[part].fill(true);
                } else if !adds {
                    let full = pages[part.clone()].iter().all(|has| *has);
                    prop_assert_eq!(mapped.remove(from, to), full);
                    if full {
                        pages[part].fill(false);
                    }
                }
                prop_assert_eq!(mapped.bytes(), pages.iter().filter(|has| **has).count() as u64);
            }
        }
    }
}
