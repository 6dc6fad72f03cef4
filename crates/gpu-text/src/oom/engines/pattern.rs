//! Patterns with typed holes, matched from the start of a text.
//!
//! `{name}` is a hole: a size of the event (`asked`, `free`, `total`, `limit`, `used`, `needed`,
//! `left`), a [`Fact`] by its name, `gpu`, `part` (words up to what follows), or `_` (the same,
//! unread). `{free:GiB}` is a number without a unit, in that unit; `{limit:MB10}` a printed unit
//! with powers of ten. `…` skips up to [`GAP`] bytes. All other characters stand for themselves.

use super::super::event::{Event, Pool};
use super::super::figure::{Figure, integer};
use super::{Fact, Unit};
use crate::work_meter;

/// The maximum number of bytes that `…` skips.
const GAP: usize = 200;

/// The maximum length of a hole without a type, in bytes.
const MAX_PART: usize = 160;

/// The maximum distance from a message to an optional part, in bytes.
const REACH: usize = 150;

/// Matches a pattern and records the values of its holes; returns the rest of the text.
pub(super) fn matched<'t>(pattern: &str, mut text: &'t str, event: &mut Event) -> Option<&'t str> {
    let mut pattern = pattern;
    loop {
        let (literal, special) = split(pattern);
        text = without(literal, text)?;
        let Some(first) = special.chars().next() else { return Some(text) };
        if first == '{' {
            let (name, after) = special[1..].split_once('}')?;
            text = hole(name, text, split(after).0, event)?;
            pattern = after;
        } else {
            pattern = &special[first.len_utf8()..];
            text = skip(text, split(pattern).0, GAP)?.1;
        }
    }
}

/// Removes a literal from the start of a text. Where a terminal broke a line next to a punctuation
/// mark, the text has an extra blank.
fn without<'t>(literal: &str, text: &'t str) -> Option<&'t str> {
    if let Some(rest) = text.strip_prefix(literal) {
        return Some(rest);
    }
    let is_mark = |c: char| !c.is_alphanumeric() && c != ' ';
    let (mut rest, mut before) = (text, ' ');
    for c in literal.chars() {
        if !rest.starts_with(c) && (is_mark(c) || is_mark(before)) {
            rest = rest.strip_prefix(' ')?;
        }
        rest = rest.strip_prefix(c)?;
        before = c;
    }
    Some(rest)
}

/// Matches each of the optional patterns in turn, near the previous match; returns the rest.
pub(super) fn any_of<'t>(patterns: &[&str], mut text: &'t str, event: &mut Event) -> &'t str {
    for pattern in patterns {
        let Some((_, from)) = skip(text, split(pattern).0, REACH) else { continue };
        let mut tried = event.clone();
        if let Some(rest) = matched(pattern, from, &mut tried) {
            (*event, text) = (tried, rest);
        }
    }
    text
}

/// Returns the words before the counts and token numbers of a pattern.
pub(super) fn before_numbers(pattern: &'static str) -> impl Iterator<Item = &'static str> {
    let mut parts = pattern.split('{');
    let mut before = parts.next().unwrap_or_default();
    parts.filter_map(move |part| {
        let (name, after) = part.split_once('}')?;
        let words = std::mem::replace(&mut before, after);
        let fact = Fact::ALL.iter().find(|fact| fact.name() == name)?;
        let is_number = matches!(fact.unit(), Unit::Tokens | Unit::Count);
        let words = &words[words.ceil_char_boundary(words.len().saturating_sub(MAX_BEFORE))..];
        (is_number && words.len() >= LEAST_BEFORE).then_some(words)
    })
}

/// The maximum and minimum number of bytes before a number that identify it.
const MAX_BEFORE: usize = 20;
const LEAST_BEFORE: usize = 4;

/// Splits a pattern before its first hole or gap.
fn split(pattern: &str) -> (&str, &str) {
    pattern.split_at(pattern.find(['{', '…']).unwrap_or(pattern.len()))
}

/// Returns the text before a literal and the text from it on, if the literal is within a distance.
fn skip<'t>(text: &'t str, literal: &str, most: usize) -> Option<(&'t str, &'t str)> {
    let window = &text[..text.floor_char_boundary(most.saturating_add(literal.len()))];
    let found = window.find(literal);
    work_meter::add(found.unwrap_or(window.len()));
    found.map(|at| text.split_at(at))
}

/// Fills a hole from the start of a text, given the literal after the hole; returns the rest.
fn hole<'t>(hole: &str, text: &'t str, next: &str, event: &mut Event) -> Option<&'t str> {
    let (name, form) = hole.split_once(':').unwrap_or((hole, ""));
    match name {
        "_" | "part" => {
            let (words, rest) = match next {
                "" => text.split_at(text.find([' ', '"', ',']).unwrap_or(text.len())),
                _ => skip(text, next, MAX_PART)?,
            };
            if name == "part" {
                let bare = words.trim_matches(|c: char| c.is_whitespace() || "'\",.[]".contains(c));
                event.part = Some(bare.chars().take(MAX_PART).collect());
            }
            Some(rest)
        }
        "gpu" => {
            let (index, rest) = integer(text)?;
            event.gpu = Some(u32::try_from(index).ok()?);
            Some(rest)
        }
        _ => {
            let fact = Fact::ALL.iter().find(|fact| fact.name() == name).copied();
            match fact.map(Fact::unit) {
                None | Some(Unit::Bytes) => size(name, fact, form, text, event),
                Some(unit) => {
                    let (value, rest) = number(unit, text)?;
                    event.facts.insert(fact?, value);
                    Some(rest)
                }
            }
        }
    }
}

/// Parses a count or a fraction, `0.9` or `90 %`.
fn number(unit: Unit, text: &str) -> Option<(i64, &str)> {
    if unit != Unit::Millionths {
        let (value, rest) = integer(text)?;
        return Some((i64::try_from(value).ok()?, rest));
    }
    let bare = text.trim_start();
    let end = bare.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(bare.len());
    let digits = bare[..end].trim_end_matches('.');
    let rest = &bare[digits.len()..];
    let value: f64 = digits.parse().ok()?;
    let percent = rest.trim_start().starts_with('%');
    let millionths = value * if percent { 1e4 } else { 1e6 };
    (0.0..=1e9).contains(&millionths).then_some((millionths.round() as i64, rest))
}

/// Parses a size into the event's own figure of this name, or a fact.
fn size<'t>(
    name: &str,
    fact: Option<Fact>,
    form: &str,
    text: &'t str,
    event: &mut Event,
) -> Option<&'t str> {
    let bare = text.trim_start();
    let (is_negative, bare) = match bare.strip_prefix('-') {
        Some(bare) => (true, bare),
        None => (false, bare),
    };
    let (figure, rest) = match form {
        "" => Figure::or_count(bare)?,
        "ten" => Figure::in_powers_of_ten(bare)?,
        unit => Figure::in_unit(bare, unit)?,
    };
    if let Some(fact) = fact {
        let bytes = i64::try_from(figure.bytes?.0).ok()?;
        event.facts.insert(fact, if is_negative { -bytes } else { bytes });
        return Some(rest);
    }
    match name {
        "left" => event.dump.pool = Some(Pool { available: figure.bytes, ..Pool::default() }),
        _ => {
            let slot = match name {
                "asked" => &mut event.tried,
                "free" => &mut event.free,
                "total" => &mut event.total,
                "limit" => &mut event.limit,
                "used" => &mut event.allocated,
                "needed" => &mut event.needed,
                _ => return None,
            };
            *slot = Some(figure);
        }
    }
    (!is_negative).then_some(rest)
}
