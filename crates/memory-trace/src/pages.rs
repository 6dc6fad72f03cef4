//! The pages of expandable segments.

use crate::trace::{Action, Event, SegmentKind};
use std::collections::BTreeSet;

/// What distinguishes the pages of one address range from those of another: their stream and kind.
pub(crate) type Owner = (u64, SegmentKind);

/// Returns the owner of pages that an event maps.
pub(crate) fn owner_of(event: &Event) -> Owner {
    (event.stream, kind_of_pages(event.size))
}

/// The addresses at which a recording maps pages.
#[derive(Debug, Default)]
pub(crate) struct MappedPages {
    /// Every address with its owner, sorted.
    all: Vec<(u64, Owner)>,
    /// For each of them, the index of the next one with another owner.
    next_other: Vec<usize>,
    /// The addresses of an owner by their distance from a page boundary.
    by_owner: BTreeSet<(u64, bool, u64, u64)>,
}

impl MappedPages {
    pub(crate) fn of<'a>(events: impl Iterator<Item = &'a Event>) -> Self {
        let maps = events.filter(|event| event.action == Action::SegmentMap);
        let mut all: Vec<_> = maps.map(|event| (event.address, owner_of(event))).collect();
        all.sort_unstable_by_key(|(address, (stream, kind))| (*address, *stream, *kind as u8));
        all.dedup();
        let mut next_other = vec![all.len(); all.len()];
        for index in (1..all.len()).rev() {
            let is_other = all[index].1 != all[index - 1].1;
            next_other[index - 1] = if is_other { index } else { next_other[index] };
        }
        let by_owner = all.iter().map(|(address, owner)| key(*owner, *address, *address)).collect();
        MappedPages { all, next_other, by_owner }
    }

    /// Returns the lowest address at or above this one that is mapped for another owner.
    pub(crate) fn other_from(&self, from: u64, owner: Owner) -> Option<u64> {
        let index = self.all.partition_point(|(address, _)| *address < from);
        let (_, its) = self.all.get(index)?;
        let index = if *its == owner { self.next_other[index] } else { index };
        self.all.get(index).map(|(address, _)| *address)
    }

    /// Returns the lowest address in a range that is mapped for this owner, at a distance of whole
    /// pages from the end of the range.
    pub(crate) fn first_below(&self, range: std::ops::Range<u64>, owner: Owner) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let (from, to) = (key(owner, range.end, range.start), key(owner, range.end, range.end));
        self.by_owner.range(from..to).next().map(|(.., address)| *address)
    }
}

fn key((stream, kind): Owner, aligned_as: u64, address: u64) -> (u64, bool, u64, u64) {
    (stream, kind == SegmentKind::Large, aligned_as % page_of(kind), address)
}

/// Returns the kind of pages of this size; a recording contains no kind for pages.
pub(crate) fn kind_of_pages(size: u64) -> SegmentKind {
    if size.is_multiple_of(page_of(SegmentKind::Large)) {
        SegmentKind::Large
    } else {
        SegmentKind::Small
    }
}

/// Returns the page size of expandable segments of a kind.
pub(crate) fn page_of(kind: SegmentKind) -> u64 {
    match kind {
        SegmentKind::Small => 2 << 20,
        SegmentKind::Large => 20 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn page_lookup_matches_linear_search(
            maps in proptest::collection::vec((0u64..40, 0u64..3, any::<bool>()), 0..30),
            from in 0u64..40,
            stream in 0u64..3,
            is_large in any::<bool>(),
        ) {
            let mib = 1 << 20;
            let kind = |is_large| if is_large { SegmentKind::Large } else { SegmentKind::Small };
            let events: Vec<Event> = maps
                .iter()
                .map(|(address, stream, is_large)| Event {
                    action: Action::SegmentMap,
                    address: address * mib,
                    size: page_of(kind(*is_large)),
                    stream: *stream,
                    time_us: 0,
                })
                .collect();
            let pages = MappedPages::of(events.iter());
            let owner = (stream, kind(is_large));
            let others = events.iter().filter(|event| owner_of(event) != owner);
            let others = others.map(|event| event.address).filter(|at| *at >= from * mib);
            prop_assert_eq!(pages.other_from(from * mib, owner), others.min());
            let end = 30 * mib;
            let own = events.iter().filter(|event| owner_of(event) == owner);
            let own = own.map(|event| event.address).filter(|at| {
                (from * mib..end).contains(at) && (end - at).is_multiple_of(page_of(owner.1))
            });
            prop_assert_eq!(pages.first_below(from * mib..end, owner), own.min());
        }
    }
}
