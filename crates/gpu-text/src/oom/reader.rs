//! The events of a log so far, and the open ones.

use super::dedup::Events;
use super::engines::Notes;
use super::event::{Event, Framework, Wording};
use super::short::Short;

/// The distance in lines within which two messages of one program are one failure, if only one of
/// them has sizes.
const SAME_FAILURE: usize = 40;

/// How many events back later text may refer.
const MAX_EVENTS_BACK: usize = 8;

/// The events so far, and the open ones.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) events: Events,
    /// The event whose dump is being parsed.
    pub(super) open_dump: Option<usize>,
    /// The event whose retry sizes are being parsed.
    pub(super) open_retries: Option<usize>,
    /// A complaint of the compiler that is not yet attached to a message.
    pub(super) complaint: Option<Event>,
    pub(super) is_cut: bool,
    /// Whether there is no room for another event; parsing then stops.
    pub(super) is_full: bool,
    /// The number of rows of all dumps.
    pub(super) rows: usize,
    /// Figures that programs printed before any failure.
    pub(super) notes: Notes,
    /// The lines of events attributed to TensorFlow only for lack of other evidence.
    pub(super) assumed: Vec<usize>,
    /// The engine around the current position, and its phase.
    pub(super) context: (Option<Framework>, Option<Short>),
    /// The messages without figures.
    pub(super) bare: Events,
}

impl Reader {
    /// Adds an event and returns its index. Once the list is full, returns the index of the last
    /// event.
    pub(super) fn add(&mut self, mut event: Event) -> usize {
        self.complete(&mut event);
        self.settle();
        self.add_complete(event)
    }

    pub(super) fn add_complete(&mut self, event: Event) -> usize {
        if let Some(index) = self.events.find(&event, |known| event.repeats(known)) {
            self.count(index);
            return index;
        }
        if self.events.has_room() {
            return self.events.push(event);
        }
        (self.is_cut, self.is_full) = (true, true);
        self.events.list().len() - 1
    }

    /// Counts a message that repeats an event.
    pub(super) fn count(&mut self, index: usize) {
        if let Some(known) = self.events.get_mut(index) {
            known.times += 1;
        }
    }

    /// Adds data from the text around a message.
    pub(super) fn complete(&self, event: &mut Event) {
        let (engine, phase) = self.context;
        let fits = |engine: &Framework| match event.framework {
            Framework::LlamaCpp => *engine == Framework::Ollama,
            Framework::PyTorch | Framework::Cuda => *engine != Framework::Ollama,
            _ => false,
        };
        if event.engine.is_none()
            && let Some(engine) = engine.filter(fits)
        {
            event.engine = Some(engine);
            event.short = event.short.or(phase);
        }
        self.notes.fill(event);
    }

    /// Drops the last event if, now that it is complete, it repeats an earlier one.
    pub(super) fn settle(&mut self) {
        let last = self.events.list().len().checked_sub(1);
        if self.open_dump != last && self.open_retries != last {
            self.events.merge_last();
        }
    }

    /// Changes the last event if it belongs to the program of a line and is near it; returns
    /// whether it did.
    pub(super) fn amend(&mut self, line: &Event, change: impl FnOnce(&mut Event)) -> bool {
        let list = self.events.list().iter().enumerate().rev().take(MAX_EVENTS_BACK);
        let is_failure = |known: &Event| known.wording != Some(Wording::NoFailure);
        let fits = |known: &Event| {
            known.is_of(line.framework) && known.is_near(line.line) && is_failure(known)
        };
        let index = list.filter(|(_, known)| fits(known)).map(|(index, _)| index).next();
        index.and_then(|index| self.events.get_mut(index)).map(change).is_some()
    }

    /// Adds the figures of a message to the last event if both are parts of one failure: one of
    /// them has no sizes, and the figures do not conflict.
    pub(super) fn amend_same_failure(&mut self, event: &Event) -> bool {
        let Some(known) = self.events.last_mut() else { return false };
        let is_one = known.is_of(event.framework)
            && known.line.abs_diff(event.line) <= SAME_FAILURE
            && known.wording == event.wording
            && known.short.zip(event.short).is_some_and(|(own, further)| own.is_part_of(further))
            && !(known.has_sizes() && event.has_sizes())
            && known.agrees_with(event);
        if is_one {
            let (own, further) = (known.short, event.short);
            known.short = match own {
                Some(Short::Unclear) => further,
                Some(Short::Compute) if further != Some(Short::Unclear) => further,
                _ => own,
            };
            known.fill_from(event);
        }
        is_one
    }
}
