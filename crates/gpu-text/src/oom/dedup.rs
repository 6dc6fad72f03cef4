//! The events so far, and the search for the event that a message repeats.
//!
//! A log of hundreds of thousands of messages keeps at most [`MAX_EVENTS`] events, but comparing
//! each message with each event takes minutes. Therefore each event has a short hash of everything
//! but its dump: equal events have equal hashes, and only events with equal hashes are compared.
//! The hash is recomputed after its event changes.

use super::MAX_EVENTS;
use super::event::Event;
use crate::work_meter;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The events so far.
#[derive(Debug, Default)]
pub(super) struct Events {
    list: Vec<Event>,
    /// One hash per event.
    marks: Vec<u64>,
    /// The events that may have changed since their hash was computed.
    changed: Vec<usize>,
}

impl Events {
    pub(super) fn list(&self) -> &[Event] {
        &self.list
    }

    pub(super) fn has_room(&self) -> bool {
        self.list.len() < MAX_EVENTS
    }

    /// Adds an event and returns its index.
    pub(super) fn push(&mut self, event: Event) -> usize {
        self.marks.push(mark(&event));
        self.list.push(event);
        self.list.len() - 1
    }

    /// Returns an event for modification.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Event> {
        let event = self.list.get_mut(index)?;
        if self.changed.last() != Some(&index) {
            self.changed.push(index);
        }
        Some(event)
    }

    /// Returns the last event, for modification.
    pub(super) fn last_mut(&mut self) -> Option<&mut Event> {
        self.get_mut(self.list.len().checked_sub(1)?)
    }

    /// Returns the latest event that a message repeats. Candidates are equal except for the
    /// compiler's message; `repeats` decides among them.
    pub(super) fn find(
        &mut self,
        message: &Event,
        repeats: impl Fn(&Event) -> bool,
    ) -> Option<usize> {
        self.find_before(self.list.len(), message, repeats)
    }

    /// Like `find`, but only among the events before an index.
    fn find_before(
        &mut self,
        end: usize,
        message: &Event,
        repeats: impl Fn(&Event) -> bool,
    ) -> Option<usize> {
        for index in self.changed.drain(..) {
            self.marks[index] = mark(&self.list[index]);
        }
        let wanted = mark(message);
        work_meter::add(1 + self.marks.len() / 64);
        let alike = self.marks[..end].iter().enumerate().rev().filter(|(_, mark)| **mark == wanted);
        alike.map(|(index, _)| index).find(|index| repeats(&self.list[*index]))
    }

    /// Drops the last event if it repeats an earlier one, and counts it there.
    pub(super) fn merge_last(&mut self) {
        let Some(last) = self.list.last().filter(|last| last.short.is_some()) else { return };
        let last = last.clone();
        let earlier = self.find_before(self.list.len() - 1, &last, |known| last.repeats(known));
        if let Some(index) = earlier {
            self.list[index].times += last.times;
            self.list.pop();
            self.marks.pop();
        }
    }

    /// Returns the events in the order of the log, and merges events that proved to be the same
    /// message once both were complete.
    pub(super) fn finish(mut self) -> Vec<Event> {
        self.list.sort_by_key(|event| event.line);
        let mut kept: Vec<Event> = Vec::with_capacity(self.list.len());
        let mut by_content: HashMap<u64, Vec<usize>> = HashMap::new();
        for event in self.list {
            let alike = by_content.entry(content(&event)).or_default();
            match alike.iter().find(|index| event.repeats(&kept[**index])) {
                Some(known) => kept[*known].times += event.times,
                None => {
                    alike.push(kept.len());
                    kept.push(event);
                }
            }
        }
        let mut merged: Vec<Event> = Vec::with_capacity(kept.len());
        for event in kept {
            let near = merged.iter_mut().rev().take(MAX_RANKS);
            match near.inspect(|_| work_meter::add(1)).find(|known| event.is_of_other_rank(known)) {
                Some(known) => {
                    let (times, line) = (known.times + event.times, known.line);
                    if event.left_bytes() < known.left_bytes() {
                        *known = event;
                    }
                    (known.times, known.line) = (times, line);
                }
                None => merged.push(event),
            }
        }
        merged
    }
}

/// Ranks of one job print their messages within this many events of each other.
const MAX_RANKS: usize = 16;

impl Event {
    /// Returns whether two messages of an engine come from two ranks: their figures differ
    /// slightly.
    fn is_of_other_rank(&self, known: &Event) -> bool {
        let is_own = self.short.is_some() && self.engine.is_none();
        is_own
            && (self.framework, self.short, self.wording, self.gpu)
                == (known.framework, known.short, known.wording, known.gpu)
            && (&self.part, &self.backend) == (&known.part, &known.backend)
            && self.facts.iter().all(|(fact, value)| {
                known.facts.get(fact).is_none_or(|other| is_close(*value as f64, *other as f64))
            })
            && self.sizes().into_iter().zip(known.sizes()).all(|sizes| match sizes {
                (Some(one), Some(other)) => is_close(one as f64, other as f64),
                _ => true,
            })
    }

    fn sizes(&self) -> [Option<u64>; 7] {
        let figures =
            [&self.tried, &self.free, &self.total, &self.limit, &self.needed, &self.allocated];
        let left = self.dump.pool.and_then(|pool| pool.available).map(|bytes| bytes.0);
        let [a, b, c, d, e, f] = figures.map(|figure| figure.as_ref()?.bytes.map(|bytes| bytes.0));
        [a, b, c, d, e, f, left]
    }

    /// The memory left for the request, which decides if ranks differ.
    fn left_bytes(&self) -> Option<u64> {
        let [_, free, .., left] = self.sizes();
        left.or(free)
    }
}

/// Whether two figures differ by at most one twentieth.
fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= one.abs().max(other.abs()) / 20.0
}

/// Returns the hash key of events that repeat each other, without the parts that may be long.
fn mark(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Event { framework, wording, backend, gpu, tried, total, free, allocated, .. } = event;
    (framework, wording, backend, gpu, tried, total, free, allocated).hash(&mut hasher);
    let Event { private_pools, reserved_unallocated, reserved_total, cached, .. } = event;
    (private_pools, reserved_unallocated, reserved_total, cached).hash(&mut hasher);
    let Event { this_process, other, limit, needed, processes, allocator, tensor, .. } = event;
    (this_process, other, limit, needed, processes, allocator, tensor).hash(&mut hasher);
    let Event { dump, ladder, rematerialization, .. } = event;
    let rows = [dump.bins.len(), dump.sums.len(), dump.regions.len(), dump.blocks.len()];
    (rows, ladder.len(), &dump.sum_in_use, &dump.stats, &dump.pool).hash(&mut hasher);
    (&event.engine, &event.short, &event.part, &event.facts).hash(&mut hasher);
    // XLA repeats an error with its compiler's complaint attached; an event without a request is
    // only the compiler's message.
    rematerialization.as_ref().filter(|_| tried.is_none()).hash(&mut hasher);
    hasher.finish()
}

/// Returns the content of an event except for its line and its count.
fn content(event: &Event) -> u64 {
    work_meter::add(event.dump.blocks.len() + event.dump.bins.len() + event.dump.sums.len());
    let mut hasher = DefaultHasher::new();
    mark(event).hash(&mut hasher);
    (&event.rematerialization, &event.dump, &event.ladder).hash(&mut hasher);
    hasher.finish()
}
