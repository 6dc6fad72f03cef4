//! The scan of a log: its marks, and the messages that start at them.

use super::engines::{self, Clue, Clues, Found};
use super::event::{Event, Report};
use super::flatten::Flat;
use super::libraries::Bare;
use super::passage::{MAX_BEFORE, Passage};
use super::reader::Reader;
use super::{bfc, libraries, short_messages, torch, xla};
use crate::work_meter;
use std::ops::Range;

/// The distance in bytes within which a message without figures is part of one with figures.
const NEAR: usize = 600;

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
