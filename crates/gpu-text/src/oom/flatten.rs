//! A log as one sequence of words.

use super::event::Framework;
use super::{prefix, wrap};
use crate::text::Text;
use crate::work_meter;

/// A text without line breaks; each run of blanks is one blank.
#[derive(Debug, Default)]
pub(super) struct Flat {
    text: String,
    /// The start of each line in the text, with its number in the original.
    lines: Vec<(usize, usize)>,
    /// The positions of lines whose prefix names an engine.
    engines: Vec<(usize, Framework)>,
}

impl Flat {
    /// Returns the text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the positions of lines whose prefix names an engine.
    pub(super) fn engines(&self) -> &[(usize, Framework)] {
        &self.engines
    }

    /// Returns the line number of a position in the text.
    pub(super) fn line(&self, at: usize) -> usize {
        self.line_of(at).1
    }

    /// Returns the start of the line of a position; a quoted line break also starts one.
    pub(super) fn line_start(&self, at: usize) -> usize {
        self.line_of(at).0
    }

    fn line_of(&self, at: usize) -> (usize, usize) {
        let after = self.lines.partition_point(|(start, _)| *start <= at);
        after.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or((0, 1))
    }
}

/// Flattens a cleaned text: removes line prefixes of logs, emphasis marks, and escaped line breaks
/// in quoted text.
pub(super) fn flatten(text: &Text) -> Flat {
    let mut flat = Flat { text: String::with_capacity(text.as_str().len()), ..Flat::default() };
    let mut lines: Vec<Line<'_>> = text.lines().filter_map(Line::of).collect();
    // Concurrent processes alternate by line.
    for together in lines.chunk_by_mut(|a, b| a.label.is_some() && b.label.is_some()) {
        together.sort_by_key(|line| line.label);
    }
    let mut width = 0;
    for Line { number, width: own, line, label } in lines {
        let goes_on = width >= wrap::LEAST_WIDTH && wrap::is_within_word(&flat.text, line);
        if !flat.text.is_empty() && !goes_on {
            blank(&mut flat.text);
        }
        flat.lines.push((flat.text.len(), number));
        let engine = label.and_then(prefix::engine);
        flat.engines.extend(engine.map(|engine| (flat.text.len(), engine)));
        push(&mut flat, line, number);
        width = own;
    }
    flat
}

/// A line of a log.
struct Line<'a> {
    number: usize,
    width: usize,
    /// The process that wrote it, if a launcher labels the lines.
    label: Option<&'a str>,
    /// The text without the prefix.
    line: &'a str,
}

impl<'a> Line<'a> {
    /// Parses a line; `None` if it is empty.
    fn of((number, raw): (usize, &'a str)) -> Option<Self> {
        let (label, line) = without_prefix(raw);
        (!line.is_empty()).then(|| Line { number, width: raw.chars().count(), label, line })
    }
}

/// Removes the prefixes of quotes, comments, tables and launchers from a line, and returns the
/// launcher's label.
fn without_prefix(line: &str) -> (Option<&str>, &str) {
    const BARS: [char; 3] = ['|', '\u{2502}', '\u{2503}'];
    let mut label = None;
    let mut line = line.trim();
    if line.starts_with(BARS) {
        // The other side of a panel.
        line = line.trim_end_matches(BARS).trim_end();
    }
    loop {
        let bare = line.trim_start_matches(['>', '#', '|', '\u{2502}', '\u{2503}', ' ', '\t']);
        let labelled =
            without_rank(bare).or_else(|| without_task(bare)).or_else(|| prefix::of_engine(bare));
        let bare = match labelled {
            Some((of, rest)) => {
                label = Some(of);
                rest
            }
            None => without_stamp(bare).or_else(|| prefix::of_logger(bare)).unwrap_or(bare),
        };
        if bare.len() == line.len() {
            return (label, line);
        }
        line = bare;
    }
}

/// Removes `[rank0]:`, which torchrun puts before every line.
fn without_rank(line: &str) -> Option<(&str, &str)> {
    let (inside, rest) = line.strip_prefix('[')?.split_once("]:")?;
    let is_rank = inside.strip_prefix("rank").or_else(|| inside.strip_prefix("default"))?;
    is_rank.bytes().all(|byte| byte.is_ascii_digit()).then_some((inside, rest))
}

/// Removes `0: `, the task number that `srun --label` puts before every line.
fn without_task(line: &str) -> Option<(&str, &str)> {
    let (task, rest) = line.split_once(": ")?;
    let is_task = (1..=5).contains(&task.len()) && task.bytes().all(|byte| byte.is_ascii_digit());
    is_task.then_some((task, rest))
}

/// Removes `2024-01-31T12:00:00.000000000Z stderr F `, which containers put before every line.
fn without_stamp(line: &str) -> Option<&str> {
    let (stamp, rest) = line.split_once(' ')?;
    let bytes = stamp.as_bytes();
    let is_sign = |byte: &u8| b"-:.+TZ".contains(byte);
    let is_stamp = (20..=40).contains(&bytes.len())
        && bytes[10] == b'T'
        && bytes.iter().all(|byte| byte.is_ascii_digit() || is_sign(byte));
    let stream = ["stderr F ", "stdout F ", "stderr P ", "stdout P "];
    let rest_of = |rest| stream.iter().find_map(|stream| str::strip_prefix(rest, stream));
    is_stamp.then(|| rest_of(rest).unwrap_or(rest))
}

fn blank(out: &mut String) {
    if !out.ends_with(' ') {
        out.push(' ');
    }
}

fn push(flat: &mut Flat, line: &str, number: usize) {
    let Flat { text: out, lines, .. } = flat;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '*' | '`' => {}
            '\\' => {
                let after = rest.trim_start_matches('\\');
                let run = rest.len() - after.len();
                work_meter::add(run);
                match after.bytes().next() {
                    Some(b'n' | b't' | b'r') => {
                        rest = &after[1..];
                        blank(out);
                        lines.push((out.len(), number));
                    }
                    // The whole run at once, because each of its characters would find the same
                    // text after it.
                    _ => {
                        out.extend(std::iter::repeat_n(c, run + 1));
                        rest = after;
                    }
                }
            }
            '<' => match emphasis(rest) {
                Some(after) => rest = after,
                None => out.push(c),
            },
            c if c.is_whitespace() => blank(out),
            c => out.push(c),
        }
    }
}

/// Returns the text after an emphasis tag, given after its `<`.
fn emphasis(rest: &str) -> Option<&str> {
    const TAGS: [&str; 6] = ["b>", "i>", "u>", "em>", "strong>", "mark>"];
    let inside = rest.strip_prefix('/').unwrap_or(rest);
    TAGS.iter().find_map(|tag| inside.strip_prefix(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;

    fn flat(text: &str) -> Flat {
        flatten(&clean(text.as_bytes()))
    }

    #[test]
    fn flattened_words_keep_line_numbers() {
        let flat = flat("  # one\n\n[rank12]: two\t three\n| > four\n");
        assert_eq!(flat.text(), "one two three four");
        assert_eq!(
            ["one", "two", "four"].map(|w| flat.line(flat.text().find(w).unwrap())),
            [1, 3, 4]
        );
    }

    #[test]
    fn markup_and_escaped_newlines_are_removed() {
        assert_eq!(flat("a **b** <u>c</u> `d`\\ne\\\\nf <x>").text(), "a b c d e f <x>");
        assert_eq!(flat("[note]: x").text(), "[note]: x");
        assert_eq!(flat("").text(), "");
        assert_eq!(flat("").line(7), 1);
    }

    #[test]
    fn only_prefixes_of_launchers_and_containers_are_removed() {
        let stamp = "2024-02-03T04:05:06.0Z";
        for (line, want) in [
            ("[rank0]: a".to_owned(), "a"),
            ("[default3]: a".to_owned(), "a"),
            ("[rankx]: a".to_owned(), "[rankx]: a"),
            ("[other0]: a".to_owned(), "[other0]: a"),
            ("12345: a".to_owned(), "a"),
            ("123456: a".to_owned(), "123456: a"),
            (": a".to_owned(), ": a"),
            ("1x: a".to_owned(), "1x: a"),
            ("1:a".to_owned(), "1:a"),
            (format!("{stamp} a"), "a"),
            (format!("{stamp} stdout F a"), "a"),
            (format!("{stamp} stderr P a"), "a"),
            (format!("{stamp} stdout P > 1: a"), "a"),
            ("2024-02-03T04:05:06 a".to_owned(), "2024-02-03T04:05:06 a"),
            ("2024-02-03T04:05:06Z a".to_owned(), "a"),
            ("2024-02-03 04:05:06Z a".to_owned(), "2024-02-03 04:05:06Z a"),
            ("2024-02-03x04:05:06Z a".to_owned(), "2024-02-03x04:05:06Z a"),
            ("2024-02-03T04:05:06z a".to_owned(), "2024-02-03T04:05:06z a"),
            ("\u{2502} a \u{2502}".to_owned(), "a"),
            ("\u{2503} a \u{2503}".to_owned(), "a"),
            ("# > | a".to_owned(), "a"),
            ("a |".to_owned(), "a |"),
            ("| a b |".to_owned(), "a b"),
        ] {
            assert_eq!(flat(&line).text(), want, "{line}");
        }
        let long = |length: usize| format!("2024-02-03T{} a", "0".repeat(length - 11));
        assert_eq!(flat(&long(40)).text(), "a");
        assert_eq!(flat(&long(41)).text(), long(41));
    }

    #[test]
    fn lines_of_labelled_processes_are_grouped() {
        assert_eq!(
            flat("[rank1]: a\n[rank0]: b\n[rank1]: c\nd\n1: e\n0: f\n").text(),
            "b a c d f e"
        );
    }

    #[test]
    fn quoted_line_breaks_start_lines() {
        let flat = flat("a\\nb\\\\tc\\rd\\x\\\\y\\");
        assert_eq!(flat.text(), "a b c d\\x\\\\y\\");
        let start = |word: &str| flat.line_start(flat.text().find(word).unwrap());
        assert_eq!(["a", "b", "c", "d"].map(start), [0, 2, 4, 6]);
        assert_eq!(flat.line(6), 1);
        assert_eq!(
            super::tests::flat("<b>a</b><i>b</i><em>c</em><strong>d</strong><mark>e</mark><a>")
                .text(),
            "abcde<a>"
        );
    }
}
