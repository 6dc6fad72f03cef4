//! The text around a mark.

use super::event::Framework;
use super::flatten::Flat;
use std::ops::Range;

/// How much of the text after a mark belongs to it, in bytes.
const MAX_PASSAGE: usize = 4096;

/// How much of the text before a mark belongs to it, in bytes.
pub(super) const MAX_BEFORE: usize = 300;

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
    pub(super) fn of(flat: &'a Flat, before: usize, at: usize, end: usize) -> Self {
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

/// Moves the ends of a range down to character boundaries.
fn bounded(text: &str, range: Range<usize>) -> Range<usize> {
    text.floor_char_boundary(range.start)..text.floor_char_boundary(range.end)
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
