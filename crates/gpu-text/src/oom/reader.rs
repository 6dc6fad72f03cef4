//! The scan of a log: its marks, and the open events between them.

use super::dedup::Events;
use super::engines::{self, Clue, Clues, Found, Notes, Short};
use super::event::{Event, Framework, Report, Wording};
use super::flatten::Flat;
use super::libraries::Bare;
use super::{bfc, libraries, short_messages, torch, xla};
use crate::work_meter;
use std::ops::Range;

/// How much of the text after a mark belongs to it, in bytes.
const MAX_PASSAGE: usize = 4096;

/// How much of the text before a mark belongs to it, in bytes.
const MAX_BEFORE: usize = 300;

/// The distance in bytes within which a message without figures is part of one with figures.
const NEAR: usize = 600;

/// The distance in lines within which two messages of one program are one failure, if only one of
/// them has sizes.
const SAME_FAILURE: usize = 40;

/// How many events back later text may refer.
const MAX_EVENTS_BACK: usize = 8;

/// The start of a message of one kind.
#[derive(Debug)]
enum Mark {
    Table(Box<Found>),
    Torch,
    HostTorch,
    DriverPoolTorch,
    Bfc(bfc::Mark),
    Xla(xla::Mark),
    Plain(libraries::Mark),
    Brief(short_messages::Mark),
}

/// The context of a mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage<'a> {
    /// The text from the mark to the next one.
    pub(super) text: &'a str,
    /// The text from the previous mark to this one.
    pub(super) before: &'a str,
    /// The line of the mark.
    pub(super) line: usize,
}

impl<'a> Passage<'a> {
    /// Returns the passage of the mark at a position, between the marks before and after it.
    fn of(flat: &'a Flat, before: usize, at: usize, end: usize) -> Self {
        let text = flat.text();
        Passage {
            text: &text[bounded(text, at..end.min(at.saturating_add(MAX_PASSAGE)))],
            before: &text[bounded(text, before.max(at.saturating_sub(MAX_BEFORE))..at)],
            line: flat.line(at),
        }
    }

    /// Returns the text after a phrase.
    pub(super) fn after(&self, phrase: &str) -> Option<&'a str> {
        self.text.split_once(phrase).map(|(_, rest)| rest)
    }
}

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
    context: (Option<Framework>, Option<Short>),
    /// The messages without figures.
    bare: Events,
}

impl Reader {
    /// Adds an event and returns its index. Once the list is full, returns the index of the last
    /// event.
    pub(super) fn add(&mut self, mut event: Event) -> usize {
        self.complete(&mut event);
        self.settle();
        self.add_complete(event)
    }

    fn add_complete(&mut self, event: Event) -> usize {
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
    fn settle(&mut self) {
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

impl Reader {
    /// Parses the messages that start on these lines of a flattened piece.
    pub(super) fn read(&mut self, flat: &Flat, lines: Range<usize>) {
        let Marks { marks, bare, mut clues } = Marks::of(flat.text());
        for (at, engine) in flat.engines() {
            clues.note(*at, Clue::Engine(*engine));
        }
        clues.sort();
        let with_figures = self.read_marks(flat, &marks, &clues, &lines);
        self.read_bare_marks(flat, bare, &clues, &with_figures, &lines);
    }

    /// Returns all messages.
    pub(super) fn finish(mut self) -> Report {
        for event in std::mem::take(&mut self.bare).finish() {
            let more = event.times - 1;
            self.settle();
            let index = self.add_complete(Event { times: 1, ..event });
            if let Some(known) = self.events.get_mut(index).filter(|_| !self.is_full) {
                known.times += more;
            }
        }
        if let Some(complaint) = self.complaint.take().filter(|_| self.events.list().is_empty()) {
            self.add(complaint);
        }
        self.settle();
        let mut events = self.events.finish();
        bfc::attribute(&mut events, &self.assumed);
        Report { events, is_cut: self.is_cut }
    }

    /// Parses the messages with figures, and returns their positions in the whole piece.
    fn read_marks(
        &mut self,
        flat: &Flat,
        marks: &[(usize, Mark)],
        clues: &Clues,
        lines: &Range<usize>,
    ) -> Vec<usize> {
        let mut with_figures = Vec::new();
        // Other pieces parse the messages outside these lines.
        let mut outside = Reader::default();
        for (index, (at, mark)) in marks.iter().enumerate() {
            let is_inside = lines.contains(&flat.line(*at));
            let reader = if is_inside { &mut *self } else { &mut outside };
            if reader.is_full {
                continue;
            }
            let before = index.checked_sub(1).map_or(0, |before| marks[before].0);
            let end = marks.get(index + 1).map_or(flat.text().len(), |(next, _)| *next);
            let passage = Passage::of(flat, before, *at, end);
            reader.context = clues.before(*at);
            let found = match mark {
                Mark::Table(found) => engines::read(reader, found, flat, *at),
                Mark::Torch => torch::read(reader, passage),
                Mark::HostTorch => torch::read_host(reader, passage),
                Mark::DriverPoolTorch => torch::read_driver_pool(reader, passage),
                Mark::Bfc(mark) => bfc::read(reader, *mark, passage),
                Mark::Xla(mark) => xla::read(reader, *mark, passage),
                Mark::Plain(mark) => libraries::read(reader, *mark, passage),
                Mark::Brief(mark) => short_messages::read(reader, *mark, passage),
            };
            if found {
                with_figures.push(*at);
            }
        }
        with_figures
    }

    /// Parses the messages without figures that are not part of one with figures.
    fn read_bare_marks(
        &mut self,
        flat: &Flat,
        marks: Vec<(usize, Bare)>,
        clues: &Clues,
        with_figures: &[usize],
        lines: &Range<usize>,
    ) {
        let text = flat.text();
        let is_part = |at: usize| {
            let next = with_figures.partition_point(|known| *known < at);
            let mut around = with_figures[next.saturating_sub(1)..].iter().take(2);
            around.any(|known| known.abs_diff(at) <= NEAR)
        };
        // The last message: a library's error code and its text count as one.
        let mut reported: Option<Reported> = None;
        for (at, what) in marks {
            if self.is_full {
                break;
            }
            let is_same =
                reported.as_mut().is_some_and(|reported| reported.is_one_message(flat, at));
            if is_same || libraries::is_source(&text[flat.line_start(at)..at], &text[at..]) {
                continue;
            }
            if !is_part(at)
                && let Some(mut event) = libraries::bare(what, Passage::of(flat, 0, at, text.len()))
            {
                self.context = clues.before(at);
                self.complete(&mut event);
                if lines.contains(&event.line) {
                    self.add_bare(event);
                }
                reported = Some(Reported { at, next_letter: None });
            }
        }
    }

    fn add_bare(&mut self, event: Event) {
        if let Some(index) = self.bare.find(&event, |known| event.repeats(known)) {
            if let Some(known) = self.bare.get_mut(index) {
                known.times += 1;
            }
        } else if self.bare.has_room() {
            self.bare.push(event);
        } else {
            self.is_cut = true;
        }
    }
}

/// The position of a message without figures.
struct Reported {
    at: usize,
    /// The position of the first letter after its first word; cached.
    next_letter: Option<usize>,
}

impl Reported {
    /// Returns whether a later position belongs to the same message: near it on the same line, or
    /// separated only by punctuation and numbers.
    fn is_one_message(&mut self, flat: &Flat, second: usize) -> bool {
        let is_near = second.saturating_sub(self.at) <= MAX_BEFORE;
        if is_near && flat.line_start(self.at) == flat.line_start(second) {
            return true;
        }
        self.next_letter(flat.text()) >= second
    }

    /// Searches only once for any number of later positions, which may be far away.
    fn next_letter(&mut self, text: &str) -> usize {
        let (first, text) = (self.at, text.get(self.at..).unwrap_or_default());
        *self.next_letter.get_or_insert_with(|| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let after = text.trim_start_matches(is_word);
            let letter = after.find(char::is_alphabetic).unwrap_or(after.len());
            let distance = text.len() - after.len() + letter;
            work_meter::add(distance);
            first + distance
        })
    }
}

/// Moves the ends of a range down to character boundaries.
fn bounded(text: &str, range: Range<usize>) -> Range<usize> {
    text.floor_char_boundary(range.start)..text.floor_char_boundary(range.end)
}

/// The marks of a text with their positions, in order.
#[derive(Default)]
struct Marks {
    marks: Vec<(usize, Mark)>,
    /// The marks of messages without figures, which do not end the passage of another message.
    bare: Vec<(usize, Bare)>,
    clues: Clues,
}

impl Marks {
    fn of(text: &str) -> Self {
        let mut found = Marks::default();
        // The end of the last message of the table, which is read as a unit.
        let mut end = 0;
        for at in runs(text) {
            let (word, rest) = (&text[at.clone()], &text[at.start..]);
            found.clues.note_word(at.start, word, rest);
            if at.start < end {
                continue;
            }
            if let Some(known) = engines::find(word, rest) {
                end = known.end(at.start);
                found.marks.push((at.start, Mark::Table(Box::new(known))));
            } else if let Some(mark) = mark(word, rest) {
                found.marks.push((at.start, mark));
            } else if let Some(mark) = libraries::bare_mark(word, rest) {
                found.bare.push((at.start, mark));
            }
        }
        found
    }
}

/// Returns the mark of a word, given the text after it.
fn mark(word: &str, rest: &str) -> Option<Mark> {
    match word {
        "Tried" if rest.starts_with("Tried to allocate ") => Some(Mark::Torch),
        "Allocation" if torch::is_driver_pool(rest) => Some(Mark::DriverPoolTorch),
        "DefaultCPUAllocator" => Some(Mark::HostTorch),
        _ => None,
    }
    .or_else(|| bfc::mark(word, rest).map(Mark::Bfc))
    .or_else(|| xla::mark(word, rest).map(Mark::Xla))
    .or_else(|| libraries::mark(word, rest).map(Mark::Plain))
    .or_else(|| short_messages::mark(word, rest).map(Mark::Brief))
}

/// Iterates over the words (letters, digits and `_`) that may start a mark.
fn runs(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let bytes = text.as_bytes();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes.get(at..)?.iter().position(is_word)?;
        let start = at;
        let length = bytes[start..].iter().position(|byte| !is_word(byte));
        at = length.map_or(bytes.len(), |length| start + length);
        Some(start..at)
    })
}

/// Returns the framework of the source file that a log line names before a mark.
pub(super) fn framework_of_path(before: &str) -> Option<Framework> {
    // The path nearest to the mark counts, because the previous line may come from another program.
    const PATHS: [(&str, Framework); 6] = [
        ("external/xla/", Framework::Xla),
        ("external/tsl/", Framework::Xla),
        ("external/org_tensorflow/", Framework::Xla),
        ("external/local_xla/", Framework::TensorFlow),
        ("external/local_tsl/", Framework::TensorFlow),
        ("tensorflow/", Framework::TensorFlow),
    ];
    let found = PATHS
        .iter()
        .filter_map(|(path, framework)| before.rfind(path).map(|at| (at + path.len(), *framework)));
    // `external/org_tensorflow/tensorflow/` contains two of them; the outer one counts.
    found.max_by_key(|(end, framework)| (*end, *framework == Framework::Xla)).map(|(_, f)| f).map(
        |framework| {
            if before.contains("external/org_tensorflow/") { Framework::Xla } else { framework }
        },
    )
}
