//! The tables of the selected columns.

use super::{Column, Columns, UserRow};
use crate::View;
use crate::text::{Align, Line, Table, packed};
use gpu_core::{Absent, Reading};

impl Columns {
    /// Returns the tables, in blocks that fit `room` columns of a terminal, and the columns without
    /// any value with the reason. A table without columns is left out.
    pub(crate) fn lines(&self, view: &View<'_>, room: usize) -> Vec<Line> {
        let snapshot = view.snapshot;
        let mut lines = Vec::new();
        if !self.devices.is_empty() {
            let keys = vec![("GPU", Align::Right)];
            let mut block = Block::new(keys, &self.devices, view.has_titles);
            for device in &snapshot.devices {
                let cells = self.devices.iter().map(|column| (column.cell)(device));
                block.rows.push((vec![device.id().index.to_string()], cells.collect()));
            }
            lines.extend(block.lines(room));
        }
        if !self.users.is_empty() {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            let keys = vec![("GPU", Align::Right), ("PID", Align::Right)];
            let mut block = Block::new(keys, &self.users, view.has_titles);
            for device in &snapshot.devices {
                for user in view.shown_on(device) {
                    let keys = vec![device.id().index.to_string(), user.pid.to_string()];
                    let row = UserRow { snapshot, before: view.before, user, device };
                    let cells = self.users.iter().map(|column| (column.cell)(&row));
                    block.rows.push((keys, cells.collect()));
                }
            }
            lines.extend(block.lines(room));
        }
        lines
    }
}

/// A table under construction.
struct Block {
    /// The titles of the columns that identify a row.
    keys: Vec<(&'static str, Align)>,
    titles: Vec<(&'static str, Align)>,
    names: Vec<&'static str>,
    rows: Vec<(Vec<String>, Vec<Reading<String>>)>,
    has_titles: bool,
}

impl Block {
    fn new<F>(
        keys: Vec<(&'static str, Align)>,
        columns: &[&'static Column<F>],
        has_titles: bool,
    ) -> Self {
        Block {
            has_titles,
            keys,
            titles: columns.iter().map(|column| column.title).collect(),
            names: columns.iter().map(|column| column.name).collect(),
            rows: Vec::new(),
        }
    }

    /// Returns the lines. Columns that do not fit follow in another block with the same keys.
    fn lines(self, room: usize) -> Vec<Line> {
        if self.rows.is_empty() {
            return vec![Line::new().dim("no processes")];
        }
        let widths: Vec<usize> = (0..self.titles.len()).map(|at| self.width(at)).collect();
        let mut lines: Vec<Line> = Vec::new();
        let mut from = 0;
        while from < self.titles.len() {
            let mut used = self.keys.len() * 10;
            let fits = |width: &&usize| {
                used += 2 + **width;
                used <= room
            };
            let to = from + widths[from..].iter().take_while(fits).count().max(1);
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            lines.extend(self.block(from, to).lines(room));
            from = to;
        }
        lines.extend(self.unreported(room));
        lines
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|(_, cells)| cell(&cells[column]).width());
        cells.chain([self.titles[column].0.len()]).max().unwrap_or(0)
    }

    fn block(&self, from: usize, to: usize) -> Table {
        let titles = self.keys.iter().chain(&self.titles[from..to]).copied();
        let mut table = Table::new(&titles.collect::<Vec<_>>());
        for (keys, cells) in &self.rows {
            let keys = keys.iter().map(|key| Line::new().plain(key));
            table.row(keys.chain(cells[from..to].iter().map(cell)));
        }
        if self.has_titles { table } else { table.without_header() }
    }

    /// Formats `not reported: fan (not supported), encoder (driver too old)`.
    fn unreported(&self, room: usize) -> Vec<Line> {
        let mut pieces = Vec::new();
        for (at, name) in self.names.iter().enumerate() {
            let reasons = self.rows.iter().map(|(_, cells)| cells[at].as_ref().err());
            // A value that does not exist for a process, such as its job, is not missing.
            let reasons: Option<Vec<&Absent>> = reasons.collect();
            let reason = reasons.and_then(|reasons| {
                reasons.into_iter().copied().find(|reason| *reason != Absent::NotFound)
            });
            pieces.extend(reason.map(|reason| format!("{name} ({reason})")));
        }
        let count = pieces.len();
        let pieces = pieces
            .into_iter()
            .enumerate()
            .map(|(at, piece)| Line::new().dim(piece).dim(if at + 1 < count { "," } else { "" }));
        match count {
            0 => Vec::new(),
            _ => packed(Line::new().dim("not reported: "), pieces, " ", 14, room),
        }
    }
}

fn cell(reading: &Reading<String>) -> Line {
    match reading {
        Ok(text) => Line::new().plain(text),
        Err(_) => Line::new().dim("–"),
    }
}
