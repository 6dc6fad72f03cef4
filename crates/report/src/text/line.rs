//! A line of styled text and its width on the terminal.

use anstyle::{AnsiColor, Style};
use gpu_core::clean;
use std::borrow::Cow;
use std::fmt::{self, Write};
use unicode_width::UnicodeWidthStr;

/// The style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The default style.
    Plain,
    /// Text that needs attention.
    Accent,
    /// Secondary text.
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

/// The length in bytes that most lines do not exceed.
const USUAL_LENGTH: usize = 96;

/// A line under construction. Control characters in added text are escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// The tones, each with the byte offset where it ends.
    tones: Vec<(Tone, usize)>,
    width: usize,
}

impl Line {
    /// Returns an empty line.
    pub fn new() -> Self {
        Line::default()
    }

    /// Appends text in a tone.
    #[must_use]
    pub fn add(mut self, tone: Tone, text: impl fmt::Display) -> Self {
        if self.text.is_empty() {
            self.text.reserve(USUAL_LENGTH);
        }
        let begin = self.text.len();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{text}");
        if let Cow::Owned(safe) = clean(&self.text[begin..]) {
            self.text.replace_range(begin.., &safe);
        }
        let added = &self.text[begin..];
        self.width += if added.is_ascii() { added.len() } else { added.width() };
        self.end(tone);
        self
    }

    /// Assigns a tone to the text after the last piece.
    fn end(&mut self, tone: Tone) {
        match self.tones.last_mut() {
            Some((last, end)) if *last == tone => *end = self.text.len(),
            _ => self.tones.push((tone, self.text.len())),
        }
    }

    /// Appends text in the default style.
    #[must_use]
    pub fn plain(self, text: impl fmt::Display) -> Self {
        self.add(Tone::Plain, text)
    }

    /// Appends text that needs attention.
    #[must_use]
    pub fn accent(self, text: impl fmt::Display) -> Self {
        self.add(Tone::Accent, text)
    }

    /// Appends secondary text.
    #[must_use]
    pub fn dim(self, text: impl fmt::Display) -> Self {
        self.add(Tone::Dim, text)
    }

    /// Appends text in the default style, truncated to `columns`.
    #[must_use]
    pub fn fitted(self, text: impl fmt::Display, columns: usize) -> Self {
        let (begin, width) = (self.text.len(), self.width);
        self.plain(text).cut_behind(begin, width, columns)
    }

    /// Appends another line.
    #[must_use]
    pub fn line(mut self, other: Line) -> Self {
        self.width += other.width;
        for (tone, text) in other.pieces() {
            self.text.push_str(text);
            self.end(tone);
        }
        self
    }

    /// Pads with spaces up to a column; does nothing if the line is already longer.
    #[must_use]
    pub fn padded_to(mut self, column: usize) -> Self {
        let blanks = column.saturating_sub(self.width);
        self.text.extend(std::iter::repeat_n(' ', blanks));
        self.width += blanks;
        self.end(Tone::Plain);
        self
    }

    /// Truncates to `columns`, and marks the truncation with `…`.
    #[must_use]
    pub fn cut(self, columns: usize) -> Self {
        self.cut_behind(0, 0, columns)
    }

    /// Truncates the text after the first `begin` bytes, which take `before` columns.
    fn cut_behind(mut self, begin: usize, before: usize, columns: usize) -> Self {
        if self.width - before <= columns {
            return self;
        }
        let (end, width) = prefix_within(&self.text[begin..], columns.saturating_sub(1));
        self.text.truncate(begin + end);
        self.width = before + width;
        let whole = self.tones.iter().take_while(|(_, to)| *to <= begin + end).count();
        if columns > 0 {
            self.text.push('…');
            self.width += 1;
        }
        // The ellipsis has the tone of the text that it replaces.
        self.tones.truncate(whole + 1);
        if let Some((_, to)) = self.tones.last_mut() {
            *to = self.text.len();
        }
        self
    }

    /// Returns the width, in columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the text without styles and trailing spaces.
    pub fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// Returns the text piece by piece, each with its tone.
    pub fn pieces(&self) -> impl Iterator<Item = (Tone, &str)> {
        let mut begin = 0;
        self.tones.iter().map(move |(tone, end)| {
            let piece = &self.text[begin..*end];
            begin = *end;
            (*tone, piece)
        })
    }
}

/// Returns the end and the width of the longest prefix of the escaped `text` within `columns`.
fn prefix_within(text: &str, columns: usize) -> (usize, usize) {
    if text.is_ascii() {
        let end = columns.min(text.len());
        return (end, end);
    }
    let (mut end, mut width) = (0, 0);
    for (at, character) in text.char_indices() {
        // Measured as a whole: a character can change the width of the previous one.
        let longer = at + character.len_utf8();
        let wider = text[..longer].width();
        if wider > columns {
            break;
        }
        (end, width) = (longer, wider);
    }
    (end, width)
}

impl fmt::Display for Line {
    /// Writes the text with the escape sequences of its tones, without trailing spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.text().len();
        for (tone, text) in self.pieces() {
            let text = &text[..text.len().min(left)];
            left -= text.len();
            if !text.is_empty() {
                let style = tone.style();
                write!(f, "{style}{text}{style:#}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_text_is_escaped_and_measured_in_columns() {
        let line = Line::new().plain("训练\x1b").dim(" é");
        assert_eq!(line.width(), 4 + 4 + 2);
        assert_eq!(line.to_string(), "训练\\x1b\x1b[2m é\x1b[0m");
    }

    #[test]
    fn lines_are_truncated_by_columns_with_ellipsis() {
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
    fn variation_selectors_count_in_width() {
        let hearts = "\u{2764}\u{fe0f}".repeat(6);
        for columns in 0..14 {
            let cut = Line::new().plain(&hearts).cut(columns);
            assert!(cut.text().width() <= columns, "{columns}: {}", cut.text());
            assert_eq!(cut.width(), cut.text().width(), "{columns}");
        }
    }

    #[test]
    fn fitted_text_leaves_rest_of_line_unchanged() {
        let line = Line::new().dim("训 ").fitted("abcdef", 4).plain("|");
        assert_eq!((line.text(), line.width()), ("训 abc…|", 8));
        assert_eq!(line.to_string(), "\x1b[2m训 \x1b[0mabc…|");
        assert_eq!(Line::new().dim("a").fitted("bc", 0).dim("d").text(), "ad");
        assert_eq!(Line::new().fitted("abcd", 4).text(), "abcd");
    }

    #[test]
    fn padding_fills_to_column_without_trailing_blanks() {
        let line = Line::new().plain("a").padded_to(4).plain("b").padded_to(2).padded_to(9);
        assert_eq!(line.to_string(), "a   b");
        assert_eq!(Line::new().plain("  ").dim(" ").to_string(), "");
    }
}
