//! The messages of engines, libraries and hosts, from one table of patterns.
//!
//! A row of the [table] has the program, a pattern with typed holes, and the meaning of the
//! message: a failure, a shortage that the program survived, figures for the program's next
//! message, or more about its last one. Messages that need their own code have a parser instead.

mod context;
mod fact;
mod pattern;
mod table;

pub(super) use context::{Clue, Clues, Notes};
pub use fact::{Fact, Unit};

use super::event::{Event, Framework, Wording};
use super::flatten::Flat;
use super::libraries;
use super::reader::Reader;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What ran short, or what else happened, in the words of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Short {
    /// At startup, the device had less free memory than the engine was configured to take.
    Startup,
    /// One device of the job has less free memory than the others.
    Unbalanced,
    /// The weights did not fit.
    Weights,
    /// The weights left nothing for the KV cache.
    NoCache,
    /// The KV cache holds less than one request of the configured length.
    Cache,
    /// More sequences than the engine has blocks of state for.
    Sequences,
    /// Tensors of a computation did not fit: a prefill, a warm-up, compute buffers.
    Compute,
    /// The capture of CUDA graphs did not fit.
    Graphs,
    /// The component that [`Event::part`] names did not fit.
    Component,
    /// Memory that the engine gave back was taken when it woke up.
    WakeUp,
    /// A single buffer exceeds the device's limit, regardless of free memory.
    OneBuffer,
    /// A limit on the device memory of the process or container.
    Quota,
    /// A pool of the program that is smaller than the device.
    Pool,
    /// The program as a whole: it needs more than the device has.
    Program,
    /// Requests compete for the KV cache, which is full.
    Crowded,
    /// The KV cache has too little room for the next batch.
    Batch,
    /// The context of a sequence is full, not the device.
    Context,
    /// Pinned memory of the host.
    Pinned,
    /// Memory of the host.
    Host,
    /// The memory of a control group, a job or a container on the host.
    HostLimit,
    /// A signal that the kernel's killer shares with other senders ended a process.
    Killed,
    /// A former process has not given its memory back.
    NotReturned,
    /// Other programs changed the free memory while the engine measured it; nothing ran short.
    Disturbed,
    /// An error that may or may not concern memory.
    Unclear,
}

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A failure: this ran short.
    Fails(Short),
    /// A failure explained only by its figures.
    Figures,
    /// The program continued without the memory.
    GoesOn(Short),
    /// Figures for the next messages of this program; not an event itself.
    Before,
    /// More about the last message of this program.
    After(Option<Short>),
    /// The program survived its last message.
    Retry(Short),
}

/// A message in the table.
#[derive(Debug)]
struct Shape {
    program: Framework,
    backend: Option<&'static str>,
    role: Role,
    /// The pattern of the message, in the syntax of [`pattern::matched`].
    text: &'static str,
    /// Optional further patterns, in this order.
    more: &'static [&'static str],
}

/// The rows by the first word of their pattern.
static BY_WORD: LazyLock<HashMap<&'static str, Vec<&'static Shape>>> = LazyLock::new(|| {
    let mut rows: HashMap<_, Vec<_>> = HashMap::new();
    for shape in table::all() {
        let end = shape.text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        rows.entry(&shape.text[..end.unwrap_or(shape.text.len())]).or_default().push(shape);
    }
    rows
});

/// The words of all patterns, for lines that a terminal broke inside a word.
pub(super) fn is_word(word: &str) -> bool {
    static WORDS: LazyLock<std::collections::HashSet<&'static str>> = LazyLock::new(|| {
        let patterns = table::all().flat_map(|shape| [&[shape.text][..], shape.more].concat());
        let words = patterns.flat_map(|pattern| pattern.split(|c: char| !c.is_ascii_alphabetic()));
        words.filter(|word| word.len() >= LEAST_LETTERS).collect()
    });
    WORDS.contains(word)
}

/// A single letter of a pattern is too often just the end of a line.
const LEAST_LETTERS: usize = 2;

/// Returns whether a count or a number of tokens follows this text in a message.
pub(super) fn expects_number(before: &str) -> bool {
    static ENDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let patterns = table::all().flat_map(|shape| [&[shape.text][..], shape.more].concat());
        patterns.flat_map(pattern::before_numbers).collect()
    });
    ENDS.iter().any(|end| before.ends_with(end))
}

/// A match of the table in a text.
#[derive(Debug)]
pub(super) struct Found {
    role: Role,
    event: Event,
    /// The length of the message, in bytes.
    length: usize,
}

impl Short {
    /// Returns whether two messages may be parts of one failure: one of them names it more
    /// precisely.
    pub(super) fn is_part_of(self, other: Short) -> bool {
        let is_open = |short| matches!(short, Short::Unclear | Short::Compute);
        let has_parts = |short| {
            !matches!(
                short,
                Short::NotReturned | Short::Disturbed | Short::Crowded | Short::Context
            )
        };
        let is_host = |short| matches!(short, Short::Host | Short::HostLimit | Short::Killed);
        let is_one = self == other || is_open(self) || is_open(other);
        has_parts(self) && has_parts(other) && (is_one || (is_host(self) && is_host(other)))
    }
}

impl Found {
    /// Returns the end of the message that begins at a position.
    pub(super) fn end(&self, at: usize) -> usize {
        at + self.length
    }
}

/// Returns the message that begins with a word, given the text from there.
pub(super) fn find(word: &str, rest: &str) -> Option<Found> {
    BY_WORD.get(word)?.iter().find_map(|shape| {
        let mut event = Event::new(shape.program, 0);
        let after = pattern::matched(shape.text, rest, &mut event)?;
        let after = pattern::any_of(shape.more, after, &mut event);
        event.backend = event.backend.take().or_else(|| shape.backend.map(str::to_owned));
        let length = rest.len() - after.len();
        Some(Found { role: shape.role, event, length })
    })
}

/// Adds a message to the events; returns whether it belongs to an event.
pub(super) fn read(reader: &mut Reader, found: &Found, flat: &Flat, at: usize) -> bool {
    let text = flat.text();
    if libraries::is_source(&text[flat.line_start(at)..at], &text[at..]) {
        return false;
    }
    let mut event = Event { line: flat.line(at), ..found.event.clone() };
    match found.role {
        Role::Before => {
            reader.notes.keep(event);
            return false;
        }
        Role::After(short) => {
            return reader.amend(&event, |last| {
                last.fill_from(&event);
                // The allocator's own message names neither, because weights and the cache share
                // it.
                let is_cache = short == Some(Short::Cache);
                last.short = if is_cache { short } else { last.short.or(short) };
            });
        }
        Role::Retry(short) => {
            let survived = reader.amend(&event, |last| last.wording = Some(Wording::NoFailure));
            if !survived {
                (event.short, event.wording) = (Some(short), Some(Wording::NoFailure));
                reader.add(event);
            }
            return true;
        }
        Role::GoesOn(short) => {
            (event.short, event.wording) = (Some(short), Some(Wording::NoFailure));
        }
        Role::Fails(short) => event.short = Some(short),
        Role::Figures => {}
    }
    if !reader.amend_same_failure(&event) {
        reader.add(event);
    }
    true
}

#[cfg(test)]
mod tests;
