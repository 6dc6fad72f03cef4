//! The contents of the terminal, and their changes by a new frame.
//!
//! ratatui compares two buffers, which hold each symbol as a string. Most cells do not change, and
//! an open view compares thousands each second; here the written cells are kept as numbers.

use ratatui_core::buffer::{Buffer, Cell, CellWidth};
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier};

/// The contents of the terminal.
#[derive(Default)]
pub(crate) struct Shown {
    area: Rect,
    /// Line by line.
    columns: Vec<Column>,
}

/// A column of one line.
#[derive(Clone, Copy)]
struct Column {
    symbol: Symbol,
    fg: Color,
    bg: Color,
    modifier: Modifier,
    /// The number of columns that the symbol takes.
    width: u8,
}

/// The content of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Symbol {
    /// The UTF-8 bytes of a symbol of up to seven bytes, padded with zeros.
    Short([u8; 7]),
    /// A longer symbol, or a continuation of the previous symbol: it is written again with each
    /// frame.
    Other,
}

impl Symbol {
    fn of(text: &str) -> Self {
        let mut short = [0; 7];
        match *text.as_bytes() {
            // Nearly all have one of these lengths.
            [byte] => short[0] = byte,
            [first, second, third] => short[..3].copy_from_slice(&[first, second, third]),
            ref bytes if bytes.len() <= short.len() => short[..bytes.len()].copy_from_slice(bytes),
            _ => return Symbol::Other,
        }
        Symbol::Short(short)
    }
}

impl Column {
    /// A column of a cleared terminal.
    const BLANK: Self = Column {
        symbol: Symbol::Short(*b" \0\0\0\0\0\0"),
        fg: Color::Reset,
        bg: Color::Reset,
        modifier: Modifier::empty(),
        width: 1,
    };
    /// A column that the previous symbol covers.
    const COVERED: Self = Column { symbol: Symbol::Other, ..Column::BLANK };

    fn shows(&self, cell: &Cell, symbol: Symbol) -> bool {
        self.fg == cell.fg
            && self.bg == cell.bg
            && self.modifier == cell.modifier
            && symbol != Symbol::Other
            && self.symbol == symbol
    }
}

impl Shown {
    /// Returns the area of the last frame.
    pub(crate) fn area(&self) -> Rect {
        self.area
    }

    /// Records that the terminal was cleared and has this area.
    pub(crate) fn clear(&mut self, area: Rect) {
        self.area = area;
        self.columns.clear();
        self.columns.resize(area.area() as usize, Column::BLANK);
    }

    /// Records that a frame of the same area is drawn; returns the cells to write for it, in this
    /// order.
    pub(crate) fn update<'a>(&mut self, frame: &'a Buffer) -> Vec<(u16, u16, &'a Cell)> {
        const BLANK: &Cell = &Cell::EMPTY;
        let mut changes = Vec::new();
        let columns = usize::from(self.area.width).max(1);
        let lines = frame.content.chunks(columns).zip(self.columns.chunks_mut(columns));
        for (y, (cells, shown)) in (self.area.y..).zip(lines) {
            let mut covered = 0;
            for (at, cell) in cells.iter().enumerate() {
                if covered > 0 {
                    covered -= 1;
                    continue;
                }
                let symbol = Symbol::of(cell.symbol());
                let column = &mut shown[at];
                if column.shows(cell, symbol) {
                    covered = column.width - 1;
                    continue;
                }
                let &Cell { fg, bg, modifier, .. } = cell;
                let width = u8::try_from(cell.cell_width().max(1)).unwrap_or(u8::MAX);
                *column = Column { symbol, fg, bg, modifier, width };
                covered = width - 1;
                let x = self.area.x + at as u16;
                // A terminal that considers the symbol narrower still shows the previous content of
                // these columns.
                for (column_x, column) in
                    (x + 1..).zip(shown[at + 1..].iter_mut().take(covered.into()))
                {
                    *column = Column::COVERED;
                    changes.push((column_x, y, BLANK));
                }
                changes.push((x, y, cell));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratatui_core::style::Style;

    const AREA: Rect = Rect { x: 0, y: 0, width: 9, height: 2 };

    /// A terminal: for each column its symbol and style; `None` where the previous symbol covers
    /// it.
    type Terminal = Vec<Option<(String, Style)>>;

    /// Characters of one and of two columns, of several code points, and of zero width.
    const TEXT: &str = "[ ab训é▁👍⌨️e\u{301}👨‍👩‍👧]{0,6}";

    fn cleared() -> (Shown, Terminal) {
        let mut shown = Shown::default();
        shown.clear(AREA);
        (shown, vec![Some((" ".to_owned(), Cell::EMPTY.style())); AREA.area() as usize])
    }

    fn write(terminal: &mut Terminal, changes: &[(u16, u16, &Cell)]) {
        let blank = || Some((" ".to_owned(), Cell::EMPTY.style()));
        for (x, y, cell) in changes {
            let at = usize::from(*y) * usize::from(AREA.width) + usize::from(*x);
            let width = usize::from(cell.cell_width());
            // When a symbol loses one of its columns, the others become blank.
            for lost in at..at + width {
                let begin = (0..=lost).rev().find(|begin| terminal[*begin].is_some()).unwrap();
                let covered = terminal[begin + 1..].iter().take_while(|column| column.is_none());
                let end = begin + 1 + covered.count();
                if end - begin > 1 {
                    terminal[begin..end].fill(blank());
                }
            }
            terminal[at] = Some((cell.symbol().to_owned(), cell.style()));
            terminal[at + 1..at + width].fill(None);
        }
    }

    fn frame(texts: &[(u16, u16, String, bool)]) -> Buffer {
        let mut frame = Buffer::empty(AREA);
        for (x, y, text, bold) in texts {
            let style = if *bold { Style::new().bold().on_blue() } else { Style::new() };
            frame.set_stringn(*x, *y, text, usize::from(AREA.width - x), style);
        }
        frame
    }

    #[test]
    fn change_of_each_part_of_a_cell_is_written() {
        let cell = |text: &str, style| {
            let mut frame = Buffer::empty(AREA);
            frame.set_stringn(3, 1, text, 1, style);
            frame
        };
        let first = cell("a", Style::new());
        for second in [
            cell("b", Style::new()),
            cell("é", Style::new()),
            cell("a", Style::new().red()),
            cell("a", Style::new().on_red()),
            cell("a", Style::new().bold()),
        ] {
            let (mut shown, _) = cleared();
            assert_eq!(shown.update(&first).len(), 1);
            assert!(shown.update(&first).is_empty(), "nothing has changed");
            let changes = shown.update(&second);
            assert_eq!(changes, [(3, 1, &second[(3, 1)])]);
            assert_eq!(shown.update(&first).len(), 1);
        }
    }

    proptest! {
        #[test]
        fn terminal_shows_each_frame(
            frames in prop::collection::vec(
                prop::collection::vec((0..9_u16, 0..2_u16, TEXT, any::<bool>()), 0..4),
                1..5,
            ),
        ) {
            let (mut shown, mut terminal) = cleared();
            for texts in frames {
                let frame = frame(&texts);
                write(&mut terminal, &shown.update(&frame));
                let (mut whole, mut anew) = cleared();
                write(&mut anew, &whole.update(&frame));
                prop_assert_eq!(&terminal, &anew);
                for (at, cell) in frame.content.iter().enumerate() {
                    if let Some((symbol, style)) = &terminal[at] {
                        prop_assert_eq!((symbol.as_str(), *style), (cell.symbol(), cell.style()));
                    }
                }
                let long = |(_, _, cell): &(u16, u16, &Cell)| cell.symbol().len() > 7;
                let again = shown.update(&frame);
                prop_assert!(again.iter().all(|change| long(change) || change.2 == &Cell::EMPTY));
                prop_assert!(again.is_empty() || again.iter().any(long));
            }
        }
    }
}
