//! Lines of a table: rules, rows, and other text.
//!
//! Rules (`+----+`, `|====|`) show the positions of the borders, so rows are found after a log's
//! prefix and before a remark. A table that a terminal wrapped at its width, or a mailer at blanks,
//! is joined first.

use crate::field;
use crate::stamp;
use crate::text::Text;
use crate::work_meter;

/// The number of dashes that make a rule.
const RULE_RUN: usize = 8;

/// The maximum number of lines into which a terminal wraps one line.
const MAX_PIECES: usize = 16;

/// A line, by its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// `+----+` or `|----|`
    Rule,
    /// `|====|`: rows of values follow.
    DoubleRule,
    /// Anything else.
    Row(Row<'a>),
}

/// A table line without its borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// The text between the borders.
    pub(super) text: &'a str,
    /// Whether the left border is present.
    pub(super) opened: bool,
    /// Whether the right border is present: the row is complete.
    pub(super) closed: bool,
    /// Whether the text ends within this line.
    pub(super) last: bool,
}

impl<'a> Row<'a> {
    /// Iterates over the cells, including their blanks.
    pub(super) fn cells(self) -> impl Iterator<Item = &'a str> {
        self.text.split('|')
    }

    /// Returns whether the row has any border.
    pub(super) fn is_bordered(self) -> bool {
        self.opened || self.closed || self.text.contains('|')
    }

    /// Returns a cell, and whether a border follows it.
    pub(super) fn cell(self, at: usize) -> Option<(&'a str, bool)> {
        let mut cells = self.cells().skip(at).take(2);
        let cell = cells.next()?;
        Some((cell, self.closed || cells.next().is_some()))
    }
}

/// The positions of the borders, in characters, from the last rule.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    left: Option<usize>,
    /// Whether every line has text before the left border.
    prefixed: bool,
    right: Option<usize>,
}

impl Frame {
    /// Classifies a line; a rule updates the frame.
    pub(super) fn read<'a>(&mut self, line: &'a str, last: bool) -> Line<'a> {
        if let Some(rule) = self.rule(line) {
            return rule;
        }
        let at = |column: Option<usize>| {
            line.char_indices().nth(column?).filter(|(_, c)| *c == '|').map(|(at, _)| at)
        };
        let left = at(self.left).or_else(|| first_border(line, self.prefixed));
        let blanks = line.len() - line.trim_start().len();
        let start = left.map_or(blanks, |at| at + 1);
        let body = line.get(start..).unwrap_or_default();
        let right = at(self.right).and_then(|at| body.get(..at.checked_sub(start)?));
        let (text, closed) = match last_border(body).or(right) {
            Some(text) => (text, true),
            None => (body, false),
        };
        Line::Row(Row { text, opened: left.is_some(), closed, last })
    }

    fn rule<'a>(&mut self, line: &str) -> Option<Line<'a>> {
        let (start, _) = line.char_indices().find(|(at, c)| {
            let mut rest = line.get(at + 1..).unwrap_or_default().chars().take(RULE_RUN);
            matches!(c, '+' | '|')
                && line.get(at + 1..).is_some_and(|rest| rest.starts_with(is_dash))
                && rest.by_ref().filter(|c| is_border(*c)).count() == RULE_RUN
        })?;
        let (prefix, rule) = line.split_at_checked(start)?;
        let column = prefix.chars().count();
        let bare = prefix.trim();
        let known = bare.is_empty() || !bare.contains('|') || self.left == Some(column);
        // `service-1  | ` of docker compose, optionally followed by a time.
        let rest = bare.rsplit_once('|').map_or(bare, |(_, rest)| rest.trim_start());
        let is_log = rest.is_empty() || stamp::of_line(rest).is_some();
        if !known && (self.left.is_some() || !is_log) {
            return None;
        }
        (self.left, self.prefixed) = (Some(column), !bare.is_empty());
        let borders = rule.chars().take_while(|c| is_border(*c));
        let end = borders.enumerate().last().filter(|(_, c)| matches!(c, '+' | '|'));
        self.right = end.map(|(at, _)| column + at);
        let double = rule.chars().nth(1).is_some_and(|c| matches!(c, '=' | '═'));
        Some(if double { Line::DoubleRule } else { Line::Rule })
    }
}

/// Returns the start of a row, possibly after a comment or list mark. If lines are `prefixed`, the
/// prefix may also have another length.
fn first_border(line: &str, prefixed: bool) -> Option<usize> {
    let (mark, _) = line.split_once('|')?;
    let is_mark = mark.trim().len() <= 4 && !mark.contains(char::is_alphanumeric);
    (is_mark || prefixed).then_some(mark.len())
}

/// Returns the text before the final border of a row; marks or a remark may follow the border.
fn last_border(body: &str) -> Option<&str> {
    let marks = |c: char| c.is_whitespace() || matches!(c, '`' | '*' | '\\');
    [body, field::without_remark(body)]
        .into_iter()
        .find_map(|body| body.trim_end_matches(marks).strip_suffix('|'))
}

/// A dash, including those of word processors and fonts.
fn is_dash(c: char) -> bool {
    matches!(c, '-' | '=' | '–' | '—' | '―' | '−' | '─' | '━' | '═')
}

fn is_border(c: char) -> bool {
    is_dash(c) || matches!(c, '+' | '|')
}

/// Calls `each` with every line, its number and whether the text ends within it; lines that a
/// narrow terminal wrapped are joined.
pub(super) fn for_each_line(text: &Text, mut each: impl FnMut(usize, &str, bool)) {
    let ended = text.as_str().ends_with(['\n', '\r']);
    let mut lines = text.lines().peekable();
    let Some(wrap) = Wrap::find(text) else {
        let mut width = 0;
        while let Some((number, line)) = lines.next() {
            let bare = line.trim();
            if bare.len() > RULE_RUN && bare.chars().all(is_border) {
                width = bare.chars().count();
            }
            let torn = torn(line, width, lines.clone().map(|(_, line)| line));
            let Some((row, more)) = torn else {
                each(number, line, !ended && lines.peek().is_none());
                continue;
            };
            lines.by_ref().take(more).for_each(drop);
            each(number, &row, !ended && lines.peek().is_none());
        }
        return;
    };
    while let Some((number, line)) = lines.next() {
        let mut joined = line.to_owned();
        if line.starts_with(['|', '+']) {
            for width in (1..wrap.pieces).map(|piece| piece * wrap.width) {
                let length = joined.chars().count();
                let full = length == width;
                let tail = lines.next_if(|(_, next)| {
                    length <= width && !next.is_empty() && (full || !next.starts_with(['|', '+']))
                });
                let Some((_, tail)) = tail else { break };
                work_meter::add(width);
                joined.extend(std::iter::repeat_n(' ', width - length));
                joined.push_str(tail);
            }
        }
        each(number, &joined, !ended && lines.peek().is_none());
    }
}

/// The maximum number of lines into which a mailer breaks a row, and the minimum length of the
/// first one.
const MAX_TORN: usize = 4;
const MIN_TORN: usize = 20;

/// Returns the row that starts in a line and ends in a later one, and the number of further lines.
/// A mailer breaks lines at blanks, so rules stay whole. `width` is the width of the last rule: a
/// narrower row may break after a border.
fn torn<'a>(
    line: &str,
    width: usize,
    following: impl Iterator<Item = &'a str>,
) -> Option<(String, usize)> {
    let head = line.trim();
    let length = head.chars().count();
    let is_whole = head.ends_with('|') && length >= width;
    if !head.starts_with('|') || is_whole || length < MIN_TORN || head.chars().all(is_border) {
        return None;
    }
    let mut row = head.to_owned();
    for (at, piece) in following.take(MAX_TORN - 1).enumerate() {
        let piece = piece.trim();
        let starts = piece.len() > 1 && piece.starts_with(['|', '+']);
        work_meter::add(piece.len());
        if piece.is_empty() || starts || piece.len() > MAX_WIDTH {
            return None;
        }
        row.push_str("  ");
        row.push_str(piece);
        if piece.ends_with('|') {
            return Some((row, at + 1));
        }
    }
    None
}

/// The maximum width of a terminal that wraps a table: the tables themselves are less than half as
/// wide.
const MAX_WIDTH: usize = 256;

/// How a terminal wrapped the table.
struct Wrap {
    /// Characters of a full line.
    width: usize,
    /// Lines per row.
    pieces: usize,
}

impl Wrap {
    /// Finds a rule that continues on the next lines.
    fn find(text: &Text) -> Option<Wrap> {
        let mut lines = text.lines().map(|(_, line)| line.trim_end()).peekable();
        while let Some(line) = lines.next() {
            let head = line.starts_with(['+', '|']) && line.chars().all(is_border);
            if !head || line.len() <= RULE_RUN || line.ends_with(['+', '|']) {
                continue;
            }
            let width = line.chars().count();
            if width > MAX_WIDTH {
                continue;
            }
            let mut pieces = 1;
            while let Some(tail) = lines.next_if(|next| {
                next.starts_with(is_dash)
                    && next.chars().all(is_border)
                    && next.chars().count() <= width
            }) {
                pieces += 1;
                if pieces > MAX_PIECES {
                    break;
                }
                if tail.ends_with(['+', '|']) {
                    return Some(Wrap { width, pieces });
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;

    fn rows(frame: &mut Frame, line: &'static str) -> Option<(&'static str, bool)> {
        match frame.read(line, false) {
            Line::Row(row) => Some((row.text, row.closed)),
            _ => None,
        }
    }

    fn joined(text: &str) -> Vec<(usize, String)> {
        let mut lines = Vec::new();
        for_each_line(&clean(text.as_bytes()), |number, line, _| {
            lines.push((number, line.to_owned()));
        });
        lines
    }

    #[test]
    fn rules_of_every_style_are_recognised() {
        let mut frame = Frame::default();
        assert_eq!(frame.read("+-----------+---+", false), Line::Rule);
        assert_eq!(frame.read("   |-----------|---+   ", false), Line::Rule);
        assert_eq!(frame.read("|===========+===neutral", false), Line::DoubleRule);
        assert_eq!(frame.read("+—————————————+", false), Line::Rule);
        assert_eq!(frame.read("+--------", false), Line::Rule);
        assert!(matches!(frame.read("+--+ |--|", false), Line::Row(_)));
        assert!(matches!(frame.read("| a--------------- |", false), Line::Row(_)));
    }

    #[test]
    fn rows_broken_by_mailer_are_joined() {
        let rule = format!("+{}+\n", "-".repeat(40));
        let whole = "| 0  Example 9000          On |        Off |";
        let text = format!(
            "{rule}| 0  Example 9000          On |\n Off |\n{whole}\nN/A |\n\
             | 1  Example 9000\n  On\n|\n| 2  Example 9000\n{rule}| 3  short\nx |\n"
        );
        let lines: Vec<String> = joined(&text).into_iter().map(|(_, line)| line).collect();
        let rule = rule.trim_end();
        assert_eq!(
            lines,
            [
                rule,
                "| 0  Example 9000          On |  Off |",
                whole,
                "N/A |",
                "| 1  Example 9000",
                "  On",
                "|",
                "| 2  Example 9000",
                rule,
                "| 3  short",
                "x |",
            ]
        );
        let text = "| 1  Example 9000 and more\n  On\n|\n";
        assert_eq!(joined(text), [(1, "| 1  Example 9000 and more  On  |".to_owned())]);
    }

    #[test]
    fn rows_with_prefix_or_remark_are_found() {
        let mut frame = Frame::default();
        assert_eq!(rows(&mut frame, "  | 0 | 1 |  "), Some((" 0 | 1 ", true)));
        assert_eq!(rows(&mut frame, " 0 | 1 "), Some(("0 | 1 ", false)));
        assert_eq!(rows(&mut frame, "12:00:01 | +--------+"), None);
        assert_eq!(rows(&mut frame, "12:00:01 | | 0 | 1  |"), Some((" 0 | 1  ", true)));
        assert_eq!(rows(&mut frame, "12:00:02 | | 0 | 1  | <- mine"), Some((" 0 | 1  ", true)));
    }

    #[test]
    fn quote_marks_around_row_are_stripped() {
        let mut frame = Frame::default();
        assert_eq!(rows(&mut frame, "# | 0 | 1 |"), Some((" 0 | 1 ", true)));
        assert_eq!(rows(&mut frame, "`| 0 | 1 |`"), Some((" 0 | 1 ", true)));
        assert_eq!(rows(&mut frame, "<!-- | 0 | 1 |"), Some((" 0 | 1 ", true)));
        assert_eq!(rows(&mut frame, "<!--- | 0 | 1 |"), Some(("<!--- | 0 | 1 ", true)));
        assert_eq!(rows(&mut frame, "| 0 | 1 |  # busy"), Some((" 0 | 1 ", true)));
        assert_eq!(rows(&mut frame, "| 0 | 1 #1"), Some((" 0 | 1 #1", false)));
        assert_eq!(rows(&mut frame, "a | 0 |"), Some(("a | 0 ", true)));
        assert_eq!(rows(&mut frame, "9: +--------+---+"), None);
        assert_eq!(rows(&mut frame, "10: | 0 | 1 |"), Some((" 0 | 1 ", true)));
        // A rule without its end does not show where rows end.
        assert_eq!(rows(&mut frame, "+--------+------"), None);
        assert_eq!(rows(&mut frame, "| 0      | 1"), Some((" 0      | 1", false)));
    }

    #[test]
    fn process_name_cannot_forge_rule() {
        let mut frame = Frame::default();
        assert_eq!(rows(&mut frame, "+----------------+"), None);
        let name = "|  0  77  C  x+---------+  1MiB |";
        assert_eq!(rows(&mut frame, name), Some(("  0  77  C  x+---------+  1MiB ", true)));
    }

    #[test]
    fn wrapped_lines_are_joined_by_rule_width() {
        let text = "+---------\n-----+\n| 0  Tesla\n K80 |\n| 30%\n 4C |\ndone\n";
        let want =
            [(1, "+--------------+"), (3, "| 0  Tesla K80 |"), (5, "| 30%      4C |"), (7, "done")];
        assert_eq!(joined(text), want.map(|(n, l)| (n, l.to_owned())));
        let plain = "+---------\n| 0\n K80 |\n";
        assert_eq!(joined(plain).len(), 3);
    }

    #[test]
    fn only_rule_without_its_end_is_wrapped() {
        let lines = |head: &str| joined(&format!("{head}| a\n b |\n")).len();
        let rule = "-".repeat(9);
        for (head, lines_left) in [
            (format!("+{rule}\n{rule}+\n"), 2),
            (format!("+{rule}\n{rule}\n{rule}+\n"), 2),
            (format!("+{}\n{rule}+\n", "-".repeat(7)), 4),
            (format!("+{}\n{}+\n", "-".repeat(8), "-".repeat(7)), 2),
            (format!("+{rule}\n{rule}--+\n"), 4),
            (format!("+{rule}+\n{rule}+\n"), 4),
            (format!("x{rule}\n{rule}+\n"), 4),
            (format!("+{rule}x\n{rule}+\n"), 4),
            (format!("+{rule}\n{rule}x+\n"), 4),
            (format!("+{rule}\n{rule}\n"), 4),
            (format!("+{}\n{rule}+\n", "-".repeat(255)), 2),
            (format!("+{}\n{rule}+\n", "-".repeat(256)), 4),
            (format!("+{rule}\n{}{rule}+\n", format!("{rule}\n").repeat(14)), 2),
            (format!("+{rule}\n{}{rule}+\n", format!("{rule}\n").repeat(15)), 19),
        ] {
            assert_eq!(lines(&head), lines_left, "{head}");
        }
    }

    #[test]
    fn wrapped_row_ends_at_next_row_or_empty_line() {
        let joined = |rows: &str| {
            let lines = joined(&format!("+---------\n---+\n{rows}"));
            lines.into_iter().skip(1).map(|(_, line)| line).collect::<Vec<_>>()
        };
        assert_eq!(joined("| a\n| b\n"), ["| a", "| b"]);
        assert_eq!(joined("| a\n\n| b\n"), ["| a", "", "| b"]);
        assert_eq!(joined("| a\n b\nc\n"), ["| a        b", "c"]);
        assert_eq!(joined("|123456789\n| b\n"), ["|123456789| b"]);
        assert_eq!(joined("|1234567890\n b\n"), ["|1234567890", " b"]);
        assert_eq!(joined("a\nb\n"), ["a", "b"]);
    }

    #[test]
    fn rule_has_a_border_and_eight_marks() {
        for (line, want) in [
            ("+--------", Some(Line::Rule)),
            ("|========", Some(Line::DoubleRule)),
            ("+═════════", Some(Line::DoubleRule)),
            ("+-------", None),
            ("-+-------", None),
            ("+ --------", None),
            ("a |---------|", Some(Line::Rule)),
            ("a b|c +---------", None),
        ] {
            let read = Frame::default().read(line, false);
            match want {
                Some(rule) => assert_eq!(read, rule, "{line}"),
                None => assert!(matches!(read, Line::Row(_)), "{line}"),
            }
        }
        let mut frame = Frame::default();
        assert_eq!(rows(&mut frame, "+--------+"), None);
        let cut = frame.read("| 0      | x", true);
        assert_eq!(
            cut,
            Line::Row(Row { text: " 0      ", opened: true, closed: true, last: true })
        );
        assert_eq!(rows(&mut frame, "  0      | x"), Some(("0      ", true)));
    }
}
