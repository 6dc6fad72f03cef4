//! Tables.

use super::{Line, Screen, Tone};
use crate::failure::Failure;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table: a dim header, two spaces between columns, the last column truncated to the terminal.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<Line>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Table {
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(name, _)| Line::new().add(Tone::Dim, name)).collect()],
        }
    }

    /// Adds a row; excess cells are dropped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Line>) {
        self.rows.push(cells.into_iter().take(self.aligns.len()).collect());
    }

    pub(crate) fn print(self, screen: &mut Screen) -> Result<(), Failure> {
        let width_of = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(Line::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.aligns.len()).map(width_of).collect();
        for row in self.rows {
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
            let room = screen.room(0);
            screen.print(&line.cut(room))?;
        }
        Ok(())
    }
}
