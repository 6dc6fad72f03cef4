//! A line of text with tones, and its width on the terminal.

use super::clean::clean;
use anstyle::{AnsiColor, Style};
use std::fmt;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a piece of text is shown: one accent, and dim for what needs no attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As text is.
    Plain,
    /// Needs attention.
    Accent,
    /// Needs none.
    Dim,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Accent => AnsiColor::Yellow.on_default().bold(),
            Tone::Dim => Style::new().dimmed(),
        }
    }
}

/// A line in the making. Whatever is added is made harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pieces: Vec<(Tone, String)>,
    width: usize,
}

impl Line {
    /// Returns an empty line.
    pub(crate) fn new() -> Self {
        Line::default()
    }

    /// Adds text in a tone.
    pub(crate) fn add(mut self, tone: Tone, text: impl AsRef<str>) -> Self {
        let text = clean(text.as_ref());
        self.width += text.width();
        self.pieces.push((tone, text.into_owned()));
        self
    }

    /// Adds text as it is.
    pub(crate) fn plain(self, text: impl AsRef<str>) -> Self {
        self.add(Tone::Plain, text)
    }

    /// Adds text that needs attention.
    pub(crate) fn accent(self, text: impl AsRef<str>) -> Self {
        self.add(Tone::Accent, text)
    }

    /// Adds text that needs none.
    pub(crate) fn dim(self, text: impl AsRef<str>) -> Self {
        self.add(Tone::Dim, text)
    }

    /// Adds all of another line.
    pub(crate) fn line(mut self, other: Line) -> Self {
        self.width += other.width;
        self.pieces.extend(other.pieces);
        self
    }

    /// Adds blanks up to a column; nothing when it lies behind.
    pub(crate) fn padded_to(self, column: usize) -> Self {
        let blanks = column.saturating_sub(self.width);
        if blanks == 0 { self } else { self.plain(" ".repeat(blanks)) }
    }

    /// Cuts to `columns`, with `…` at the end where something was cut.
    pub(crate) fn cut(self, columns: usize) -> Self {
        if self.width <= columns {
            return self;
        }
        let mut cut = Line::new();
        for (tone, text) in self.pieces {
            let room = columns - cut.width;
            if text.width() >= room {
                let (end, width) = prefix_within(&text, room.saturating_sub(1));
                cut.width += width + usize::from(room > 0);
                let sign = if room > 0 { "…" } else { "" };
                cut.pieces.push((tone, format!("{}{sign}", &text[..end])));
                break;
            }
            cut.width += text.width();
            cut.pieces.push((tone, text));
        }
        cut
    }

    /// Returns how many columns the line takes.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

/// Returns the end and the width of the longest beginning of `text` within `columns`.
fn prefix_within(text: &str, columns: usize) -> (usize, usize) {
    let (mut end, mut width) = (0, 0);
    for (at, character) in text.char_indices() {
        let wider = width + character.width().unwrap_or(0);
        if wider > columns {
            break;
        }
        (end, width) = (at + character.len_utf8(), wider);
    }
    (end, width)
}

impl fmt::Display for Line {
    /// Writes the pieces with their escape sequences, without blanks at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.pieces.iter().rposition(|(_, text)| !text.trim_end().is_empty());
        for (at, (tone, text)) in self.pieces.iter().enumerate().take(last.map_or(0, |at| at + 1)) {
            let text = if Some(at) == last { text.trim_end() } else { text };
            let style = tone.style();
            write!(f, "{style}{text}{style:#}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_harmless_and_measured_as_shown() {
        let line = Line::new().plain("训练\x1b").dim(" é");
        assert_eq!(line.width(), 4 + 4 + 2);
        assert_eq!(line.to_string(), "训练\\x1b\x1b[2m é\x1b[0m");
    }

    #[test]
    fn lines_are_cut_by_columns_and_say_so() {
        for (columns, shown) in [
            (0, ""),
            (1, "…"),
            (3, "训…"),
            (4, "训…"),
            (6, "训练a…"),
            (7, "训练abc"),
            (9, "训练abc"),
        ] {
            let cut = Line::new().plain("训练a").plain("bc").cut(columns);
            assert_eq!(cut.to_string(), shown, "{columns}");
            assert!(cut.width() <= columns);
            assert_eq!(cut.width(), shown.width(), "{columns}");
        }
    }

    #[test]
    fn blanks_fill_to_a_column_and_never_end_a_line() {
        let line = Line::new().plain("a").padded_to(4).plain("b").padded_to(2).padded_to(9);
        assert_eq!(line.to_string(), "a   b");
        assert_eq!(Line::new().plain("  ").dim(" ").to_string(), "");
    }
}
