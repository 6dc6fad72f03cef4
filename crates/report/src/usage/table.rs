//! The table of `gpuws report`.

use super::{By, Usage, energy, hours, memory};
use crate::text::{Align, Line, Table};
use gpu_accounting::{Amounts, Energy};

/// Names are cut to this width, so that the table fits into 80 columns.
const NAME: usize = 28;

impl Usage<'_> {
    /// Returns the lines of a table, each truncated to `room` columns; `brief`: without headings
    /// and notes.
    pub fn table(&self, by: By, room: usize, brief: bool) -> Vec<Line> {
        let rows = self.rows(by);
        let with_user = by == By::Job;
        let mut columns = vec![(by.heading(), Align::Left)];
        if with_user {
            columns.push(("of", Align::Left));
        }
        let numbers = ["held h", "used h", "idle h", "peak", "energy"];
        columns.extend(numbers.map(|name| (name, Align::Right)));
        let mut table = Table::new(&columns);
        let width = if with_user { NAME - 2 } else { NAME };
        let total = self.accounts.total();
        let mut add = |name: &str, user: Option<&str>, cells: [String; 5], is_sum: bool| {
            let plain = |text: &str, width: usize| match is_sum {
                true => Line::new().dim(text),
                false => Line::new().fitted(text, width),
            };
            let mut line = vec![plain(name, width)];
            if with_user {
                line.push(plain(user.unwrap_or_default(), 10));
            }
            line.extend(cells.iter().map(|text| plain(text, room)));
            table.row(line);
        };
        for row in &rows {
            add(&row.name, row.user.as_deref(), cells(&row.amounts, total), false);
        }
        if let Some(energy) = self.unattributed(by) {
            add("not attributed", None, energy_only(energy, total), true);
        }
        if rows.len() != 1 || self.unattributed(by).is_some() {
            add("total", None, cells(total, total), true);
        }
        let mut lines = Vec::new();
        if !brief {
            lines.push(Line::new().plain(self.title()).cut(room));
            lines.push(Line::new().dim(self.extent()).cut(room));
            lines.push(Line::new());
        }
        lines.extend(table.lines(room));
        let notes = self.notes();
        if !brief && !notes.is_empty() {
            lines.push(Line::new());
            lines.extend(notes.into_iter().map(|note| Line::new().dim(note)));
        }
        lines
    }
}

/// Formats the numbers of a row with energy alone.
pub(super) fn energy_only(of_row: Energy, total: &Amounts) -> [String; 5] {
    let [held, used, idle, peak] = [(); 4].map(|()| "-".to_owned());
    [held, used, idle, peak, energy(of_row, total.energy)]
}

/// Formats the numbers of a row, with the units and decimals of the total.
pub(super) fn cells(amounts: &Amounts, total: &Amounts) -> [String; 5] {
    let most = total.held.max(total.used).max(total.idle);
    [
        hours(amounts.held, most),
        hours(amounts.used, most),
        hours(amounts.idle, most),
        memory(amounts.peak, total.peak),
        energy(amounts.energy, total.energy),
    ]
}
