//! Text and styles on a buffer.

use crate::options::Theme;
use gpu_report::text::Line;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use std::borrow::Cow;
use unicode_width::UnicodeWidthStr;

/// The style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// The default style.
    Plain,
    /// A title.
    Strong,
    /// Secondary text.
    Dim,
    /// Text that needs attention.
    Accent,
    /// Bars and graphs.
    Graph,
    /// Free devices.
    Good,
}

/// A buffer and the styles on it.
pub(crate) struct Paint<'a> {
    pub(crate) buffer: &'a mut Buffer,
    pub(crate) theme: Theme,
}

impl Paint<'_> {
    pub(crate) fn style(&self, tone: Tone) -> Style {
        let coloured = |dark: Color, light: Color| match self.theme {
            Theme::Dark => Style::new().fg(dark),
            Theme::Light => Style::new().fg(light),
            Theme::Mono => Style::new(),
        };
        match tone {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            // As in the other commands.
            Tone::Accent => coloured(Color::Yellow, Color::Red).add_modifier(Modifier::BOLD),
            Tone::Graph => coloured(Color::Cyan, Color::Blue),
            Tone::Good => coloured(Color::Green, Color::Green),
        }
    }

    /// Writes escaped text within `width` columns; cuts longer text with an ellipsis. Returns the
    /// column after it.
    pub(crate) fn put(&mut self, x: u16, y: u16, width: u16, text: &str, tone: Tone) -> u16 {
        let area = *self.buffer.area();
        let room = width.min(area.right().saturating_sub(x));
        if room == 0 || x < area.x || y < area.y || y >= area.bottom() {
            return x;
        }
        let style = self.style(tone);
        let fits = text.len() <= usize::from(room) || text.chars().nth(room.into()).is_none();
        if fits && text.chars().all(is_one_column) {
            let begin = self.buffer.index_of(x, y);
            let cells = self.buffer.content[begin..].iter_mut();
            let drawn = cells.zip(text.chars()).map(|(cell, symbol)| {
                cell.set_char(symbol).set_style(style);
            });
            return x + drawn.count() as u16;
        }
        // Fitting reads the whole text; a terminal column shows only a few characters of it.
        let most = usize::from(room).saturating_mul(8);
        let text = text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end]);
        let fitted = match columns_of(text) <= usize::from(room) {
            true => Cow::Borrowed(text),
            false => Cow::Owned(Line::new().fitted(text, room.into()).text().to_owned()),
        };
        self.buffer.set_stringn(x, y, fitted, usize::from(room), style).0
    }

    /// Writes one character that is one column wide.
    pub(crate) fn symbol(&mut self, x: u16, y: u16, symbol: char, tone: Tone) {
        let style = self.style(tone);
        if let Some(cell) = self.buffer.cell_mut((x, y)) {
            cell.set_char(symbol).set_style(style);
        }
    }

    /// Writes text so that it ends before the column `right`.
    pub(crate) fn put_right(&mut self, x: u16, right: u16, y: u16, text: &str, tone: Tone) {
        let width = u16::try_from(columns_of(text)).unwrap_or(u16::MAX);
        let from = right.saturating_sub(width).max(x);
        self.put(from, y, right.saturating_sub(from), text, tone);
    }

    /// Writes pieces one after another within an area of one line.
    pub(crate) fn pieces(&mut self, area: Rect, pieces: &[(Tone, String)]) -> u16 {
        let mut x = area.x;
        for (tone, text) in pieces {
            x = self.put(x, area.y, area.right().saturating_sub(x), text, *tone);
        }
        x
    }

    /// Draws a bar for `part` of `whole`.
    pub(crate) fn bar(&mut self, x: u16, y: u16, width: u16, part: u64, whole: u64) {
        let text = gpu_report::text::bar_of(part, whole, width);
        for (x, symbol) in (x..).zip(text.chars()) {
            let tone = if symbol == '░' { Tone::Dim } else { Tone::Graph };
            self.symbol(x, y, symbol, tone);
        }
    }

    /// Clears an area.
    pub(crate) fn clear(&mut self, area: Rect) {
        let area = area.intersection(*self.buffer.area());
        for y in area.top()..area.bottom() {
            for x in area.left()..area.right() {
                self.buffer[(x, y)].reset();
            }
        }
    }
}

/// Returns how many columns a text takes. Most text is ASCII, and needs no table.
pub(crate) fn columns_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Returns whether a character takes one column whatever its neighbours are. Most text has only
/// such characters, and needs no segmentation into graphemes.
fn is_one_column(symbol: char) -> bool {
    matches!(symbol, ' '..='~' | '°' | '·' | '–' | '…')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::text;

    /// Returns the text of an area of 8 columns and 2 lines that starts at column 1 and line 1.
    fn drawn(draw: impl FnOnce(&mut Paint<'_>)) -> String {
        let mut buffer = Buffer::empty(Rect::new(1, 1, 8, 2));
        draw(&mut Paint { buffer: &mut buffer, theme: Theme::Mono });
        text(&buffer)
    }

    #[test]
    fn text_is_cut_to_its_width_with_an_ellipsis() {
        for (width, given, shown, end) in [
            (8, "12345678", "12345678", 9),
            (7, "12345678", "123456…", 8),
            (9, "123456789", "1234567…", 9),
            (1, "12", "…", 2),
            (0, "12", "", 1),
            (4, "训练a", "训…", 4),
            (5, "训练a", "训练a", 6),
            (8, "é", "é", 2),
        ] {
            let text = drawn(|paint| {
                assert_eq!(paint.put(1, 1, width, given, Tone::Plain), end, "{given} in {width}");
            });
            assert_eq!(text, format!("{shown}\n\n"), "{given} in {width}");
        }
        // Only the columns that are left.
        let text = drawn(|paint| {
            paint.put(6, 2, 8, "12345", Tone::Plain);
        });
        assert_eq!(text, "\n     12…\n");
    }

    #[test]
    fn text_outside_the_buffer_is_not_written() {
        for (x, y) in [(0, 1), (9, 1), (20, 1), (1, 0), (1, 3)] {
            let text = drawn(|paint| {
                assert_eq!(paint.put(x, y, 5, "text", Tone::Plain), x);
                paint.symbol(x, y, 'x', Tone::Plain);
            });
            assert_eq!(text, "\n\n", "{x} {y}");
        }
    }

    #[test]
    fn text_on_the_right_ends_before_its_column() {
        let right =
            |x, right, text: &str| drawn(|paint| paint.put_right(x, right, 1, text, Tone::Plain));
        assert_eq!(right(1, 9, "abc"), "     abc\n\n");
        assert_eq!(right(3, 7, "abcd"), "  abcd\n\n");
        assert_eq!(right(3, 6, "abcd"), "  ab…\n\n");
        assert_eq!(right(1, 5, "训"), "  训\n\n");
    }

    #[test]
    fn pieces_follow_each_other_within_their_area() {
        let pieces = [(Tone::Plain, "ab".to_owned()), (Tone::Dim, "cdefg".to_owned())];
        let area = Rect::new(2, 2, 5, 1);
        let text = drawn(|paint| assert_eq!(paint.pieces(area, &pieces), 7));
        assert_eq!(text, "\n abcd…\n");
        let text = drawn(|paint| {
            paint.put(1, 1, 8, "12345678", Tone::Plain);
            paint.put(1, 2, 8, "12345678", Tone::Plain);
            paint.clear(Rect::new(0, 2, 4, 9));
        });
        assert_eq!(text, "12345678\n   45678\n");
    }
}
