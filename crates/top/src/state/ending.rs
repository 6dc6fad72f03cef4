//! The dialog that ends processes, and the rows that it is about.

use super::{Effect, State};
use crate::dialog::Dialog;
use crate::ending::{Aim, News};
use crate::overlay::Overlay;
use crate::rows::{Row, Subject};
use crate::view::{is_legible, overlay_length};
use gpu_report::wording;
use gpu_report::wording::reap::Paragraph;
use std::collections::BTreeSet;

/// The message of the dialog if no row is selected.
const NO_ROW: &str = "no row is selected: select one, or tag rows with Space";
/// The message of the dialog if the row of the box from which it is opened is gone.
const GONE: &str = "this row is gone: the process has ended, or the memory is accounted for";

impl State {
    /// Returns whether new snapshots are withheld: while the display is paused or the dialog is
    /// open.
    pub(crate) fn is_frozen(&self) -> bool {
        self.paused || self.overlay == Some(Overlay::Ending)
    }

    /// Shows the latest snapshot, unless the display is still frozen.
    pub(super) fn thaw(&mut self) {
        if self.is_frozen() {
            return;
        }
        self.frozen = None;
        if let Some(frame) = self.pending.take() {
            self.frame = Some(frame);
            self.sort_rows();
        }
    }

    /// Tags or untags the selected process, and selects the next row.
    pub(super) fn tag(&mut self) {
        let user = self.selected_row().filter(|row| row.key.gpu.is_some());
        if let Some(key) = user.and_then(Row::process)
            && !self.tagged.remove(&key)
        {
            self.tagged.insert(key);
        }
        self.step(1);
    }

    /// Opens the dialog: with the plan in progress, or else with a new one.
    pub(super) fn end(&mut self) -> Effect {
        if self.overlay == Some(Overlay::Ending) {
            return Effect::Nothing;
        }
        let from = self.overlay.replace(Overlay::Ending);
        self.overlay_top = 0;
        if self.dialog.is_some() {
            return Effect::Draw;
        }
        self.plans += 1;
        let is_about_tags = from.is_none() && !self.tagged.is_empty();
        let aim = match (is_about_tags, from) {
            (true, _) => Some(Aim::Processes(self.tagged.iter().copied().collect())),
            (false, None) => self.selected_row().and_then(|row| self.aim(row)),
            (false, Some(_)) => self.selected.and_then(|key| self.aim(self.row(key)?)),
        };
        self.dialog = Some(match &aim {
            Some(_) if is_about_tags => Dialog::asked(self.plans).about(self.tags()),
            Some(_) => Dialog::asked(self.plans),
            None if from.is_some() => Dialog::saying(self.plans, GONE),
            None => Dialog::saying(self.plans, NO_ROW),
        });
        aim.map_or(Effect::Draw, |aim| Effect::Plan(self.plans, aim))
    }

    /// Names the tagged processes, and states how many of them are not in the table.
    fn tags(&self) -> String {
        let shown: BTreeSet<_> = self.rows().filter_map(Row::process).collect();
        let what = wording::count(self.tagged.len(), "tagged process", "tagged processes");
        match self.tagged.difference(&shown).count() {
            0 => what,
            hidden => format!("{what}; the table does not show {hidden} of them"),
        }
    }

    /// Returns the aim that ends the subject of a row.
    fn aim(&self, row: &Row) -> Option<Aim> {
        match row.key.subject {
            Subject::Process(key) => Some(Aim::Processes(vec![key])),
            Subject::Foreign(_) | Subject::Unlisted => {
                let mut devices = self.frame.as_deref()?.snapshot.devices.iter();
                let device = devices.find(|device| Some(device.id().index) == row.key.gpu)?;
                Some(Aim::Unlisted(device.id().clone()))
            }
        }
    }

    pub(super) fn confirm(&mut self) -> Effect {
        if !self.is_confirmable() {
            return Effect::Nothing;
        }
        let Some(dialog) = &mut self.dialog else { return Effect::Nothing };
        dialog.confirm();
        self.tagged.clear();
        self.overlay_top = usize::MAX;
        Effect::Execute(dialog.number())
    }

    /// Returns whether a plan waits for its confirmation. Each event must then be drawn before the
    /// next one is applied, so that the user cannot confirm a plan that was not on the screen.
    pub fn is_proposing(&self) -> bool {
        let dialog = self.dialog.as_ref().filter(|_| self.overlay == Some(Overlay::Ending));
        dialog.is_some_and(Dialog::is_proposal)
    }

    /// Returns whether the plan that waits for its confirmation was on the screen to its end.
    pub(crate) fn is_confirmable(&self) -> bool {
        self.is_proposing()
            && is_legible(self)
            && self.has_read(overlay_length(self, Overlay::Ending).0)
    }

    /// Returns whether a plan of this many lines was on the screen to its end.
    pub(crate) fn has_read(&self, lines: usize) -> bool {
        self.read >= lines
    }

    /// Closes the dialog. An execution in progress continues.
    pub(super) fn close_dialog(&mut self) {
        if self.dialog.as_mut().is_some_and(Dialog::stay) {
            return;
        }
        self.dialog.take_if(|dialog| !dialog.is_running());
        self.overlay = None;
        self.thaw();
    }

    /// Quits; while processes are being ended, asks first, and stops after the current step.
    pub(super) fn quit(&mut self) -> Effect {
        let Some(dialog) = self.dialog.as_mut().filter(|dialog| dialog.is_running()) else {
            return Effect::Quit;
        };
        if dialog.is_leaving() {
            return Effect::Quit;
        }
        let stops = dialog.leave();
        (self.overlay, self.overlay_top) = (Some(Overlay::Ending), usize::MAX);
        self.editing = false;
        if stops { Effect::Stop } else { Effect::Draw }
    }

    pub(super) fn hear(&mut self, news: News) -> Effect {
        let Some(dialog) = &mut self.dialog else { return Effect::Nothing };
        let (is_over, leaves) = (matches!(news, News::Over(_)), dialog.is_leaving());
        let is_plan = matches!(news, News::Planned(..));
        if !dialog.news(news) {
            return Effect::Nothing;
        }
        if is_over && leaves {
            return Effect::Quit;
        }
        if self.overlay == Some(Overlay::Ending) {
            // Scroll so that the last step is visible.
            self.overlay_top = if is_plan { 0 } else { usize::MAX };
            self.read = 0;
        }
        Effect::Draw
    }

    /// Returns whether processes are being ended.
    pub fn is_ending(&self) -> bool {
        self.dialog.as_ref().is_some_and(Dialog::is_running)
    }

    /// Returns the last executed plan, with its steps and its result so far; `None` if the user has
    /// closed the dialog since.
    pub fn record(&self) -> Option<&[Paragraph]> {
        self.dialog.as_ref().filter(|dialog| dialog.was_confirmed()).map(Dialog::text)
    }
}
