//! Which rows are shown in which order, and which one is selected.

use super::{Overlay, State};
use crate::rows::Column;
use crate::view::{overlay_length, rows_on_screen};

impl State {
    pub(super) fn sort_by(&mut self, column: Column) {
        (self.sort, self.reversed) = (column, false);
        self.sort_rows();
    }

    /// Filters and sorts the rows. The selection stays on its row; if that is gone, it moves to the
    /// row that has taken the place.
    pub(super) fn sort_rows(&mut self) {
        let rows = self.frame.as_deref().map_or(&[][..], |frame| &frame.rows[..]);
        self.order.clear();
        let shown = rows.iter().enumerate().filter(|(_, row)| self.filter.shows(row));
        self.order.extend(shown.map(|(index, _)| index));
        let (sort, reversed) = (self.sort, self.reversed);
        self.order.sort_by(|a, b| sort.compare(&rows[*a], &rows[*b], reversed));
        let Some(key) = self.selected else { return };
        match self.order.iter().position(|index| rows[*index].key == key) {
            Some(place) => self.place = place,
            // While the filter hides the row, it stays selected.
            None if rows.iter().any(|row| row.key == key) => {}
            None if self.overlay == Some(Overlay::Details) => {}
            None => self.select(self.place),
        }
    }

    /// Selects the row at this place, or the last one.
    pub(super) fn select(&mut self, place: usize) {
        self.place = place.min(self.order.len().saturating_sub(1));
        let key = self.rows().nth(self.place).map(|row| row.key);
        self.selected = key;
    }

    /// Moves the selection; with an overlay, moves its text.
    pub(super) fn step(&mut self, by: isize) {
        if self.overlay.is_some() {
            self.overlay_top = self.overlay_top.saturating_add_signed(by);
            return;
        }
        let visible = self.selected_row().is_some();
        match (visible, by) {
            (_, isize::MIN) => self.select(0),
            (false, isize::MAX) | (true, _) => self.select(self.place.saturating_add_signed(by)),
            (false, _) => self.select(self.top),
        }
    }

    pub(super) fn page(&self) -> isize {
        isize::try_from(rows_on_screen(self)).unwrap_or(isize::MAX).max(1)
    }

    /// Keeps the selected row and the text of the overlay on the screen.
    pub(super) fn settle(&mut self) {
        let room = rows_on_screen(self).max(1);
        let last = self.order.len().saturating_sub(room);
        if self.selected_row().is_some() {
            self.top = self.top.clamp((self.place + 1).saturating_sub(room), self.place);
        }
        self.top = self.top.min(last);
        let (length, room) = self.overlay.map_or((0, 0), |overlay| overlay_length(self, overlay));
        self.overlay_top = self.overlay_top.min(length.saturating_sub(room));
    }
}
