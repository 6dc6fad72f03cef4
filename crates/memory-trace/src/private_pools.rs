//! The private pools of recorded memory, for example those of CUDA graphs.

use crate::trace::{Action, DeviceTrace};
use std::collections::BTreeMap;

/// The regions of private pools that were held when a recording ended. A recording does not show
/// whether a region freed earlier was private, so it counts as common.
#[derive(Debug, Default)]
pub(crate) struct Private {
    regions: BTreeMap<u64, Region>,
}

#[derive(Debug)]
struct Region {
    end: u64,
    pool: (u64, u64),
    /// The event that took the region. Before it, another region may have used its addresses.
    since: usize,
}

impl Private {
    pub(crate) fn of(trace: &DeviceTrace) -> Self {
        let mut regions = BTreeMap::new();
        for segment in trace.segments.iter().flatten().filter(|segment| segment.pool != (0, 0)) {
            let end = segment.address.saturating_add(segment.size);
            let region = Region { end, pool: segment.pool, since: 0 };
            regions.insert(segment.address, region);
        }
        if !regions.is_empty() {
            let taken = trace.events.iter().enumerate();
            for (number, event) in taken.filter(|(_, event)| event.action == Action::SegmentAlloc) {
                if let Some(region) = regions.get_mut(&event.address) {
                    region.since = number;
                }
            }
        }
        Private { regions }
    }

    /// Returns the pool of the memory at an address, as of an event.
    pub(crate) fn pool(&self, address: u64, event: usize) -> (u64, u64) {
        match self.regions.range(..=address).next_back() {
            Some((_, region)) if address < region.end && event >= region.since => region.pool,
            _ => (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Segment};

    #[test]
    fn segment_belongs_to_private_pool_from_its_allocation() {
        let event = |action, address| Event { action, address, size: 9, stream: 0, time_us: 0 };
        let segment = |address, pool| Segment { address, size: 100, pool, ..Segment::default() };
        let trace = DeviceTrace {
            segments: Some(vec![segment(0, (0, 7)), segment(100, (0, 0)), segment(200, (3, 0))]),
            events: vec![event(Action::Alloc, 200), event(Action::SegmentAlloc, 200)],
            ..DeviceTrace::default()
        };
        let private = Private::of(&trace);
        assert_eq!((private.pool(0, 0), private.pool(99, 5)), ((0, 7), (0, 7)));
        assert_eq!((private.pool(100, 5), private.pool(300, 5)), ((0, 0), (0, 0)));
        assert_eq!((private.pool(250, 0), private.pool(250, 2)), ((0, 0), (3, 0)));
    }
}
