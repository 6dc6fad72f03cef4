//! The messages of engines, libraries and hosts, from one table of patterns.
//!
//! A row of the [table] has the program, a pattern with typed holes, and the meaning of the
//! message: a failure, a shortage that the program survived, figures for the program's next
//! message, or more about its last one. Messages that need their own code have a parser instead.

mod context;
mod fact;
mod pattern;
mod table;
mod vocabulary;

pub(super) use context::{Clue, Clues, Notes};
pub use fact::{Fact, Unit};
pub(super) use vocabulary::{expects_number, is_word};

use super::event::{Event, Framework, Wording};
use super::flatten::Flat;
use super::libraries;
use super::reader::Reader;
use super::short::Short;
use std::collections::HashMap;
use std::sync::LazyLock;

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

/// A match of the table in a text.
#[derive(Debug)]
pub(super) struct Found {
    role: Role,
    event: Event,
    /// The length of the message, in bytes.
    length: usize,
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
