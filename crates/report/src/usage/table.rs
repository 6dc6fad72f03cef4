//! The table of `gpuws report`.

use super::{By, Row, Usage, energy, hours};
use crate::text::{Align, Line, Table};
use gpu_accounting::{Amounts, Energy};
use gpu_core::amount;

/// Names are cut to this width, so that the table fits 80 columns.
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
        let mut add = |row: &Row, is_sum: bool| {
            let plain = |text: &str, width: usize| match is_sum {
                true => Line::new().dim(text),
                false => Line::new().fitted(text, width),
            };
            let mut cells = vec![plain(&row.name, width)];
            if with_user {
                cells.push(plain(row.user.as_deref().unwrap_or_default(), 10));
            }
            cells.extend(
                cell(&row.amounts, total.energy).into_iter().map(|text| plain(&text, room)),
            );
            table.row(cells);
        };
        rows.iter().for_each(|row| add(row, false));
        let named = |name: &str, amounts| Row { name: name.to_owned(), user: None, amounts };
        if let Some(energy) = self.unattributed(by) {
            add(&named("not attributed", Amounts { energy, ..Amounts::default() }), true);
        }
        if rows.len() != 1 || self.unattributed(by).is_some() {
            add(&named("total", *total), true);
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

/// The numbers of a row, the energy in the unit of this total; a dash for an amount that it has none
/// of.
fn cell(amounts: &Amounts, total: Energy) -> [String; 5] {
    let dash = |is_none: bool, text: String| if is_none { "-".to_owned() } else { text };
    let has_energy = amounts.energy > Energy::default();
    [
        dash(amounts.held.is_zero(), hours(amounts.held)),
        dash(amounts.used.is_zero(), hours(amounts.used)),
        dash(amounts.idle.is_zero(), hours(amounts.idle)),
        dash(amounts.peak.0 == 0, amount(amounts.peak)),
        dash(!has_energy, energy(amounts.energy, total)),
    ]
}
