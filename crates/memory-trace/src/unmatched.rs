//! The recorded events of a step that a replay has not matched yet.

use crate::trace::{Action, Event};
use std::collections::BTreeSet;

/// Events with their numbers in the recording, in order. A step may free thousands of regions in a
/// different order than the replay, so events are found by address.
#[derive(Debug, Default)]
pub(crate) struct Unmatched {
    events: Vec<Option<(usize, Event)>>,
    /// The index of the first unmatched event.
    start: usize,
    /// The events that were not matched: action, address and index.
    by_address: BTreeSet<(u8, u64, usize)>,
}

fn key(event: &Event, index: usize) -> (u8, u64, usize) {
    (event.action as u8, event.address, index)
}

impl Unmatched {
    /// Adds the events of a step, after those of the previous step have been removed.
    pub(crate) fn add(&mut self, events: &[(usize, Event)]) {
        (self.start, self.by_address) = (0, BTreeSet::new());
        self.events.clear();
        for (index, (number, event)) in events.iter().enumerate() {
            self.by_address.insert(key(event, index));
            self.events.push(Some((*number, *event)));
        }
    }

    pub(crate) fn first(&self) -> Option<(usize, Event)> {
        *self.events.get(self.start)?
    }

    /// Removes the first event.
    pub(crate) fn pop(&mut self) -> Option<(usize, Event)> {
        let first = self.first()?;
        self.remove(self.start);
        Some(first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(usize, Event)> {
        self.events.get(self.start..).unwrap_or_default().iter().flatten()
    }

    /// Returns the index of the first event with this action and address that satisfies a
    /// condition.
    pub(crate) fn find(
        &self,
        action: Action,
        address: u64,
        condition: impl Fn(&Event) -> bool,
    ) -> Option<usize> {
        let range = (action as u8, address, 0)..=(action as u8, address, usize::MAX);
        let mut alike = self.by_address.range(range).map(|(.., index)| *index);
        alike.find(|index| self.events[*index].is_some_and(|(_, event)| condition(&event)))
    }

    /// Removes an event.
    pub(crate) fn remove(&mut self, index: usize) {
        if let Some((_, event)) = self.events[index].take() {
            self.by_address.remove(&key(&event, index));
        }
        while self.events.get(self.start).is_some_and(Option::is_none) {
            self.start += 1;
        }
    }

    /// Removes bytes from the start of an event.
    pub(crate) fn shorten(&mut self, index: usize, bytes: u64) {
        if let Some((_, event)) = &mut self.events[index] {
            self.by_address.remove(&key(event, index));
            event.address += bytes;
            event.size -= bytes;
            self.by_address.insert(key(event, index));
        }
    }
}
