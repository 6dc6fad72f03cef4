//! The words of the patterns, for lines that a terminal broke.

use super::{pattern, table};
use std::collections::HashSet;
use std::sync::LazyLock;

/// The words of all patterns, for lines that a terminal broke inside a word.
pub(in crate::oom) fn is_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
        let patterns = table::all().flat_map(|shape| [&[shape.text][..], shape.more].concat());
        let words = patterns.flat_map(|pattern| pattern.split(|c: char| !c.is_ascii_alphabetic()));
        words.filter(|word| word.len() >= LEAST_LETTERS).collect()
    });
    WORDS.contains(word)
}

/// A single letter of a pattern is too often just the end of a line.
const LEAST_LETTERS: usize = 2;

/// Returns whether a count or a number of tokens follows this text in a message.
pub(in crate::oom) fn expects_number(before: &str) -> bool {
    static ENDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let patterns = table::all().flat_map(|shape| [&[shape.text][..], shape.more].concat());
        patterns.flat_map(pattern::before_numbers).collect()
    });
    ENDS.iter().any(|end| before.ends_with(end))
}
