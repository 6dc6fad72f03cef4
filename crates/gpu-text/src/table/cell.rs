//! Words of a cell: `30%`, `64 C`, `N/A`, `25W / 250W`, `GPU is lost`.

use crate::field;
use gpu_core::{Absent, Reading};

/// The maximum number of words of a cell; the fullest known cell has seven.
const MAX_WORDS: usize = 24;

/// Phrases that stand in place of a single value.
const PHRASES: [&str; 9] = [
    "N/A",
    "Not Supported",
    "Unknown Error",
    "GPU is lost",
    "GPU requires reset",
    "Insufficient Permissions",
    "Insufficient External Power",
    "No Permission",
    "Not Available",
];

const UNITS: [&str; 7] = ["W", "C", "%", "MiB", "MB", "GiB", "GB"];

/// Splits a cell into words; a number keeps its unit, a phrase is one word, and `/` is separate.
/// Asterisks and backticks, remnants of Markdown, count as blanks.
pub(super) fn words(cell: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = cell;
    while words.len() < MAX_WORDS {
        rest = rest.trim_start_matches(is_gap);
        let length = word_length(rest);
        let Some((word, after)) = rest.split_at_checked(length) else { break };
        if word.is_empty() {
            break;
        }
        words.push(word);
        rest = after;
    }
    words
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || matches!(c, '*' | '`')
}

fn word_length(text: &str) -> usize {
    if text.starts_with('/') {
        return 1;
    }
    if text.starts_with('[')
        && let Some(end) = text.find(']')
    {
        return end + 1;
    }
    if let Some(phrase) = PHRASES.iter().find(|phrase| starts_with(text, phrase)) {
        return phrase.len();
    }
    let end = |text: &str| text.find(|c| is_gap(c) || c == '/').unwrap_or(text.len());
    let length = end(text);
    let (word, after) = text.split_at(length);
    let unit = after.trim_start_matches(' ');
    let is_unit = UNITS.contains(&&unit[..end(unit)]);
    if is_unit && word.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return text.len() - unit.len() + end(unit);
    }
    length
}

fn starts_with(text: &str, phrase: &str) -> bool {
    text.get(..phrase.len()).is_some_and(|head| head.eq_ignore_ascii_case(phrase))
}

/// Splits the words at a `/`: the words before the pair, and the two sides of the pair.
pub(super) fn pair<'w, 'a>(words: &'w [&'a str]) -> Option<(&'w [&'a str], [Option<&'a str>; 2])> {
    let slash = words.iter().position(|word| *word == "/")?;
    let (before, after) = words.split_at(slash);
    let (first, before) = before.split_last().map_or((None, before), |(f, b)| (Some(*f), b));
    Some((before, [first, after.get(1).copied()]))
}

/// Parses a word with `read`, if it has one of `units` (`nvidia-smi` always prints them, so a
/// number without one was truncated), or the reason for a missing value.
pub(super) fn value<T>(
    word: Option<&str>,
    units: &[&str],
    read: fn(&str) -> Reading<T>,
) -> Reading<T> {
    let word = word.ok_or(Absent::NotRecorded)?;
    if field::absent(word).is_some() || units.iter().any(|unit| word.ends_with(unit)) {
        read(word)
    } else {
        Err(Absent::NotRecorded)
    }
}

/// Parses memory.
pub(super) fn memory(word: Option<&str>) -> Reading<u64> {
    value(word, &["MiB", "MB", "GiB", "GB"], field::mib)
}

/// Parses `used / total`; a text instead of the pair (`Not Supported`) applies to both.
pub(super) fn memory_pair(cell: &str) -> [Reading<u64>; 2] {
    let words = words(cell);
    match pair(&words) {
        Some((_, sides)) => sides.map(memory),
        None => {
            let first = words.first().and_then(|word| field::absent(word));
            [Err(first.unwrap_or(Absent::NotRecorded)); 2]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_units_and_phrases_stay_whole() {
        assert_eq!(
            words(" 33%   64 C  N/A   N/A /  N/A "),
            ["33%", "64 C", "N/A", "N/A", "/", "N/A"]
        );
        assert_eq!(words("163W/1200W"), ["163W", "/", "1200W"]);
        assert_eq!(
            words("ERR!  GPU is lost [Unknown Error]x"),
            ["ERR!", "GPU is lost", "[Unknown Error]", "x"]
        );
        assert_eq!(words("**407MiB /  1023MiB**"), ["407MiB", "/", "1023MiB"]);
        assert_eq!(words("5 %"), ["5 %"]);
        assert_eq!(words("[cut"), ["[cut"]);
        assert_eq!(words("N/A/N/A"), ["N/A", "/", "N/A"]);
    }

    #[test]
    fn memory_cell_is_pair_or_absence() {
        assert_eq!(memory_pair("  10MiB / 16280MiB "), [Ok(10), Ok(16_280)]);
        assert_eq!(memory_pair(" 19%   196MB  /     1023MB"), [Ok(196), Ok(1023)]);
        assert_eq!(memory_pair("0MiB / ERR!"), [Ok(0), Err(Absent::Failed)]);
        assert_eq!(memory_pair(" Not Supported  "), [Err(Absent::NotSupported); 2]);
        assert_eq!(memory_pair(" GPU is lost "), [Err(Absent::DeviceLost); 2]);
        assert_eq!(memory_pair("   "), [Err(Absent::NotRecorded); 2]);
    }

    #[test]
    fn number_without_unit_is_truncated() {
        assert_eq!(memory_pair("10253MiB / 162"), [Ok(10_253), Err(Absent::NotRecorded)]);
        assert_eq!(memory_pair("10253MiB / 16280Mi"), [Ok(10_253), Err(Absent::NotRecorded)]);
        assert_eq!(memory_pair("10253M"), [Err(Absent::NotRecorded); 2]);
    }

    #[test]
    fn words_end_at_gaps_slashes_and_brackets() {
        for (cell, want) in [
            ("gpu is lost x", &["gpu is lost", "x"][..]),
            ("5 W/9 GiB", &["5 W", "/", "9 GiB"]),
            ("5 Wx", &["5", "Wx"]),
            ("a W", &["a", "W"]),
            ("1.5   GB", &["1.5   GB"]),
            ("[a b][c]", &["[a b]", "[c]"]),
            ("`a` *b*", &["a", "b"]),
            ("", &[]),
        ] {
            assert_eq!(words(cell), want, "{cell}");
        }
        assert_eq!(words(&"a ".repeat(30)).len(), MAX_WORDS);
        assert_eq!(memory_pair("/ 5MiB"), [Err(Absent::NotRecorded), Ok(5)]);
        assert_eq!(memory_pair("1GiB / 2GB"), [Ok(1024), Ok(2048)]);
    }
}
