//! The order of the shown rows, and the selection.

use super::State;
use crate::overlay::Overlay;
use crate::rows::{Column, Row, RowKey, Subject, ancestry};
use crate::tree::{self, Branch};
use crate::view::{columns_on_screen, overlay_length, rows_on_screen};
use gpu_core::ProcessKey;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    pub(super) fn sort_by(&mut self, column: Column) {
        (self.sort, self.reversed) = (column, false);
        self.sort_rows();
    }

    /// Returns the next or the previous column on the screen.
    pub(super) fn next_column(&self, by: isize) -> Column {
        let shown = columns_on_screen(self);
        let count = shown.len() as isize;
        let at = shown.iter().position(|column| *column == self.sort);
        let next = at.map_or(if by > 0 { 0 } else { count - 1 }, |at| at as isize + by);
        let next = next.checked_rem_euclid(count).unwrap_or(0) as usize;
        shown.get(next).copied().unwrap_or(self.sort)
    }

    /// Filters and sorts the rows. The selection stays on its row; if that is gone, it moves to the
    /// row at the same index.
    pub(super) fn sort_rows(&mut self) {
        let Some(frame) = self.frame.as_deref() else { return };
        let rows = &frame.rows[..];
        let launchers = if self.tree && !self.filter.is_empty() {
            tree::launchers(frame)
        } else {
            BTreeMap::new()
        };
        let above = |row: &Row| -> Vec<&Row> {
            let pid = row.pid().filter(|_| !launchers.is_empty());
            let above = pid.into_iter().flat_map(|pid| ancestry(&frame.snapshot, pid));
            above.filter_map(|info| launchers.get(&info.key.pid).copied()).collect()
        };
        let is_shown = |row: &Row| self.filter.shows(row, &above(row));
        let shown = rows.iter().enumerate().filter(|(_, row)| is_shown(row));
        let mut order: Vec<usize> = shown.map(|(index, _)| index).collect();
        self.matching = order.len();
        let (sort, reversed) = (self.sort, self.reversed);
        order.sort_by(|a, b| sort.compare(&rows[*a], &rows[*b], reversed));
        self.order = if self.tree {
            tree::arrange(frame, &order, &self.folded)
        } else {
            order.into_iter().map(|index| Branch { index, lines: String::new() }).collect()
        };
        let users = rows.iter().filter_map(Row::process).collect::<BTreeSet<_>>();
        self.tagged.retain(|key| users.contains(key));
        let Some(key) = self.selected else { return };
        let followed = self.followed.filter(|followed| key.subject == Subject::Process(*followed));
        let is_it = |row: &Row| row.key == key;
        let is_same = |row: &Row| row.process().is_some() && row.process() == followed;
        let found = self.rows().position(is_it).or_else(|| self.rows().position(is_same));
        match found {
            Some(index) => self.select(index),
            // While the filter hides the row, it stays selected.
            None if rows.iter().chain(&frame.parents).any(|row| row.key == key) => {}
            // A box over the table belongs to the row that was selected.
            None if self.overlay.is_some() || followed.is_some() => {}
            None => self.select(self.selected_index),
        }
    }

    /// Shows the rows as a tree, or as a list.
    pub(super) fn toggle_tree(&mut self) {
        self.tree = !self.tree;
        if let Some(frame) = self.frame.as_deref_mut().filter(|_| self.tree) {
            frame.add_parents();
        }
        self.sort_rows();
    }

    /// Hides or shows the rows below the selected process in the tree.
    pub(super) fn fold(&mut self) {
        let Some(key) = self.selected_row().and_then(Row::process).filter(|_| self.tree) else {
            return;
        };
        if !self.folded.remove(&key) {
            self.folded.insert(key);
        }
        self.sort_rows();
    }

    /// Starts or stops following the selected process.
    pub(super) fn follow(&mut self) {
        let selected = self.selected_row().and_then(Row::process);
        self.followed = if self.followed == selected { None } else { selected };
    }

    /// Tags the selected process and those below it in the tree, shown or hidden.
    pub(super) fn tag_tree(&mut self) {
        let Some((frame, root)) =
            self.frame.as_deref().zip(self.selected_row().and_then(Row::process))
        else {
            return;
        };
        let is_below =
            |pid| ancestry(&frame.snapshot, pid).any(|above| above.key.definitely_same(&root));
        let below = frame.rows.iter().filter_map(Row::process).filter(|key| is_below(key.pid));
        self.tagged.extend(below.collect::<Vec<_>>());
    }

    /// Selects the row at this index, or the last one.
    pub(super) fn select(&mut self, index: usize) {
        self.selected_index = index.min(self.order.len().saturating_sub(1));
        let key = self.rows().nth(self.selected_index).map(|row| row.key);
        self.selected = key;
    }

    /// Moves the selection; with an overlay, scrolls its text.
    pub(super) fn step(&mut self, by: isize) {
        self.followed = self.followed.filter(|_| self.overlay.is_some());
        if self.overlay.is_some() {
            self.overlay_top = self.overlay_top.saturating_add_signed(by);
            return;
        }
        let visible = self.selected_row().is_some();
        match (visible, by) {
            (_, isize::MIN) => self.select(0),
            (false, isize::MAX) | (true, _) => {
                self.select(self.selected_index.saturating_add_signed(by))
            }
            (false, _) => self.select(self.top),
        }
    }

    pub(super) fn page(&self) -> isize {
        let room = match self.overlay {
            Some(overlay) => overlay_length(self, overlay).1,
            None => rows_on_screen(self),
        };
        isize::try_from(room).unwrap_or(isize::MAX).max(1)
    }

    /// Returns the row that keys act on: while a box is open, the row with which it was opened,
    /// even if it is gone; otherwise the selected row if it is shown.
    pub(crate) fn subject(&self) -> Option<RowKey> {
        self.selected.filter(|_| self.overlay.is_some() || self.selected_row().is_some())
    }

    /// Returns a row of the snapshot, even if the filter or a folded process hides it.
    pub(crate) fn row(&self, key: RowKey) -> Option<&Row> {
        let frame = self.frame.as_deref()?;
        frame.rows.iter().chain(&frame.parents).find(|row| row.key == key)
    }

    /// Returns whether a process existed at the snapshot.
    pub(crate) fn exists(&self, key: ProcessKey) -> bool {
        let Some(frame) = self.frame.as_deref() else { return false };
        let known = frame.snapshot.process(key.pid);
        known.is_ok_and(|info| info.key.definitely_same(&key))
            || frame.rows.iter().any(|row| row.process() == Some(key))
    }

    /// Keeps the selected row and the text of the overlay visible.
    pub(super) fn settle(&mut self) {
        let room = rows_on_screen(self).max(1);
        let last = self.order.len().saturating_sub(room);
        if self.selected_row().is_some() {
            self.top =
                self.top.clamp((self.selected_index + 1).saturating_sub(room), self.selected_index);
        }
        self.top = self.top.min(last);
        let (length, room) = self.overlay.map_or((0, 0), |overlay| overlay_length(self, overlay));
        self.overlay_top = self.overlay_top.min(length.saturating_sub(room));
        if self.overlay == Some(Overlay::Ending) {
            self.read = self.read.max(self.overlay_top + room);
        }
    }
}
