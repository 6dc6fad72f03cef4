//! Tables.

use super::{Line, Tone};

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table: a dim header, two spaces between columns, the last column truncated to the terminal.
#[derive(Clone, Debug)]
pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<Line>>,
}

impl Table {
    /// Returns a table with these columns and no rows.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Table {
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(name, _)| Line::new().add(Tone::Dim, name)).collect()],
        }
    }

    /// Adds a row; excess cells are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Line>) {
        self.rows.push(cells.into_iter().take(self.aligns.len()).collect());
    }

    /// Returns the table without its header.
    #[must_use]
    pub fn without_header(mut self) -> Self {
        self.rows.drain(..self.rows.len().min(1));
        self
    }

    /// Returns the lines, each truncated to `room` columns.
    pub fn lines(self, room: usize) -> Vec<Line> {
        let width_of = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(Line::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.aligns.len()).map(width_of).collect();
        let fitted = |row: Vec<Line>| {
            let mut line = Line::new();
            let mut start = 0;
            for ((cell, width), align) in row.into_iter().zip(&widths).zip(&self.aligns) {
                let blanks = match align {
                    Align::Left => 0,
                    Align::Right => width - cell.width(),
                };
                line = line.padded_to(start + blanks).line(cell);
                start += width + 2;
            }
            line.cut(room)
        };
        self.rows.into_iter().map(fitted).collect()
    }
}
