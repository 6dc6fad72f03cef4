//! Sets of events for waiting callers.

use crate::code::{Answer, Code};
use gpu_core::{DeviceEvent, DeviceEventKind};
use std::collections::{BTreeMap, VecDeque};

/// Kinds of events, as bits (`nvmlEventType*`).
pub(crate) mod kind {
    pub(crate) const SINGLE_BIT_ECC: u64 = 0x1;
    pub(crate) const DOUBLE_BIT_ECC: u64 = 0x2;
    pub(crate) const XID: u64 = 0x8;
    /// The kinds that a simulated device can report.
    pub(crate) const ALL: u64 = SINGLE_BIT_ECC | DOUBLE_BIT_ECC | XID;
}

/// The maximum number of unfetched events in a set.
const LONGEST: usize = 256;

/// All sets, by handle.
pub(crate) struct EventSets {
    sets: BTreeMap<usize, EventSet>,
    next: usize,
}

#[derive(Default)]
struct EventSet {
    /// The registered kinds of events, by device.
    registered: BTreeMap<u32, u64>,
    waiting: VecDeque<Report>,
}

/// An event for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) gpu: u32,
    pub(crate) kind: u64,
    pub(crate) data: u64,
}

impl Report {
    fn of(event: &DeviceEvent) -> Option<Self> {
        let (kind, data) = match event.kind {
            DeviceEventKind::Error(number) => (kind::XID, number),
            DeviceEventKind::CorrectedMemoryError => (kind::SINGLE_BIT_ECC, 0),
            DeviceEventKind::UncorrectedMemoryError => (kind::DOUBLE_BIT_ECC, 0),
        };
        Some(Report { gpu: event.device?, kind, data })
    }
}

impl EventSets {
    /// The first handle of a set: never null, and distinct from every device handle.
    const FIRST: usize = 0x6770_7e73_0000;

    pub(crate) const fn new() -> Self {
        EventSets { sets: BTreeMap::new(), next: Self::FIRST }
    }

    pub(crate) fn clear(&mut self) {
        self.sets.clear();
    }

    pub(crate) fn create(&mut self) -> usize {
        self.next += 1;
        self.sets.insert(self.next, EventSet::default());
        self.next
    }

    pub(crate) fn free(&mut self, set: usize) -> Answer {
        self.sets.remove(&set).map(|_| ()).ok_or(Code::INVALID_ARGUMENT)
    }

    /// Adds kinds of events of a device to a set.
    pub(crate) fn register(&mut self, set: usize, gpu: u32, kinds: u64) -> Answer {
        let set = self.sets.get_mut(&set).ok_or(Code::INVALID_ARGUMENT)?;
        *set.registered.entry(gpu).or_default() |= kinds;
        Ok(())
    }

    /// Adds reported events to the sets that request them.
    pub(crate) fn deliver(&mut self, events: &[DeviceEvent]) {
        for report in events.iter().filter_map(Report::of) {
            let wants = |set: &EventSet| {
                set.registered.get(&report.gpu).is_some_and(|kinds| kinds & report.kind != 0)
            };
            for set in self.sets.values_mut().filter(|set| wants(set)) {
                if set.waiting.len() < LONGEST {
                    set.waiting.push_back(report);
                }
            }
        }
    }

    /// Takes the oldest event out of a set.
    pub(crate) fn next(&mut self, set: usize) -> Answer<Option<Report>> {
        let set = self.sets.get_mut(&set).ok_or(Code::INVALID_ARGUMENT)?;
        Ok(set.waiting.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_set_receives_only_registered_events() {
        let mut sets = EventSets::new();
        let (both, one) = (sets.create(), sets.create());
        sets.register(both, 0, kind::XID).unwrap();
        sets.register(both, 1, kind::ALL).unwrap();
        sets.register(one, 1, kind::DOUBLE_BIT_ECC).unwrap();
        let event = |gpu, kind| DeviceEvent { device: Some(gpu), kind };
        sets.deliver(&[
            event(0, DeviceEventKind::UncorrectedMemoryError),
            event(0, DeviceEventKind::Error(79)),
            event(1, DeviceEventKind::UncorrectedMemoryError),
        ]);
        let xid = Report { gpu: 0, kind: kind::XID, data: 79 };
        let ecc = Report { gpu: 1, kind: kind::DOUBLE_BIT_ECC, data: 0 };
        assert_eq!(sets.next(both), Ok(Some(xid)));
        assert_eq!(sets.next(both), Ok(Some(ecc)));
        assert_eq!(sets.next(both), Ok(None));
        assert_eq!(sets.next(one), Ok(Some(ecc)));
        assert_eq!(sets.free(one), Ok(()));
        assert_eq!(sets.next(one), Err(Code::INVALID_ARGUMENT));
    }
}
