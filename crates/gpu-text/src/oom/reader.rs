//! The scan of a log: its marks, and the open events between them.

use super::dedup::Events;
use super::event::{Event, Framework, Report};
use super::flatten::Flat;
use super::libraries::Bare;
use super::{bfc, libraries, short_messages, torch, xla};
use crate::work_meter;
use std::ops::Range;

/// How much of the text after a mark belongs to it, in bytes.
const MAX_PASSAGE: usize = 4096;

/// How much of the text before a mark belongs to it, in bytes.
const MAX_BEFORE: usize = 300;

/// Within this many bytes of a message with figures, one without them is part of it.
const NEAR: usize = 600;

/// A typical position of messages of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
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
    /// From the mark to the next one.
    pub(super) text: &'a str,
    /// From the previous mark to this one.
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
    pub(super) open_ladder: Option<usize>,
    /// A complaint of the compiler without a following message yet.
    pub(super) complaint: Option<Event>,
    pub(super) is_cut: bool,
    /// There is no room for another event: parsing stops.
    pub(super) is_full: bool,
    /// The number of rows of all dumps.
    pub(super) rows: usize,
    /// The messages without figures.
    bare: Events,
}

impl Reader {
    /// Adds an event and returns its position; the last one absorbs the rest.
    pub(super) fn add(&mut self, event: Event) -> usize {
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
}

impl Reader {
    /// Parses the messages that begin on these lines of a flattened piece.
    pub(super) fn read(&mut self, flat: &Flat, lines: Range<usize>) {
        let (marks, bare_marks) = marks(flat.text());
        let with_figures = self.read_marks(flat, &marks, &lines);
        self.read_bare_marks(flat, bare_marks, &with_figures, &lines);
    }

    /// Returns all messages.
    pub(super) fn finish(mut self) -> Report {
        for event in std::mem::take(&mut self.bare).finish() {
            let more = event.times - 1;
            let index = self.add(Event { times: 1, ..event });
            if let Some(known) = self.events.get_mut(index).filter(|_| !self.is_full) {
                known.times += more;
            }
        }
        if let Some(complaint) = self.complaint.take().filter(|_| self.events.list().is_empty()) {
            self.add(complaint);
        }
        Report { events: self.events.finish(), is_cut: self.is_cut }
    }

    /// Parses the messages with figures, and returns the positions of those in the whole piece.
    fn read_marks(&mut self, flat: &Flat, marks: &Marks<Mark>, lines: &Range<usize>) -> Vec<usize> {
        let mut with_figures = Vec::new();
        // Another piece parses what is outside of these lines.
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
            let found = match mark {
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
        marks: Marks<Bare>,
        with_figures: &[usize],
        lines: &Range<usize>,
    ) {
        let text = flat.text();
        let is_part = |at: usize| {
            let next = with_figures.partition_point(|known| *known < at);
            let mut around = with_figures[next.saturating_sub(1)..].iter().take(2);
            around.any(|known| known.abs_diff(at) <= NEAR)
        };
        // The last position that created an event: a library's code and its text are one message.
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
                && let Some(event) = libraries::bare(what, Passage::of(flat, 0, at, text.len()))
            {
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
    /// The position of the first letter after its first word, once it was searched for.
    next_letter: Option<usize>,
}

impl Reported {
    /// Returns whether a later position belongs to the same message: near on the same line, or with
    /// only punctuation and numbers between.
    fn is_one_message(&mut self, flat: &Flat, second: usize) -> bool {
        let is_near = second.saturating_sub(self.at) <= MAX_BEFORE;
        if is_near && flat.line_start(self.at) == flat.line_start(second) {
            return true;
        }
        self.next_letter(flat.text()) >= second
    }

    /// Searched for once, however many positions follow: they may follow much later.
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

/// Marks with their positions, in order.
type Marks<M> = Vec<(usize, M)>;

/// Returns the marks of a text, and those of messages without figures, which do not end the passage
/// of another.
fn marks(text: &str) -> (Marks<Mark>, Marks<Bare>) {
    let (mut marks, mut bare) = (Vec::new(), Vec::new());
    for at in runs(text) {
        let (word, rest) = (&text[at.clone()], &text[at.start..]);
        if let Some(mark) = mark(word, rest) {
            marks.push((at.start, mark));
        } else if let Some(mark) = libraries::bare_mark(word, rest) {
            bare.push((at.start, mark));
        }
    }
    (marks, bare)
}

/// Returns the mark of a word and its following text.
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

/// Iterates over the words of letters, digits and `_` that may start a mark.
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

/// Returns the framework whose source file a log line names before a mark.
pub(super) fn framework_of_path(before: &str) -> Option<Framework> {
    // The nearest one to the mark counts: the previous line may come from another program.
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
    // `external/org_tensorflow/tensorflow/` has two of them: the outer one counts.
    found.max_by_key(|(end, framework)| (*end, *framework == Framework::Xla)).map(|(_, f)| f).map(
        |framework| match before.contains("external/org_tensorflow/") {
            true => Framework::Xla,
            false => framework,
        },
    )
}
