//! The effects of keys and the mouse.

use super::{Effect, State};
use crate::filter::Filter;
use crate::keys::{Action, Scope};
use crate::options::Marker;
use crate::overlay::Overlay;
use crate::replay::Control;
use crate::view::{Target, target};
use ratatui_crossterm::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseEvent, MouseEventKind,
};

impl State {
    /// Returns the current action of a key.
    pub(super) fn action(&self, key: KeyEvent) -> Option<Action> {
        self.scope().action(key).filter(|action| self.offers(*action))
    }

    /// Returns the current context of keys.
    pub(crate) fn scope(&self) -> Scope {
        Scope { overlay: self.overlay, replays: self.options.replays }
    }

    /// Returns whether an action is possible with these options.
    pub(crate) fn offers(&self, action: Action) -> bool {
        match action {
            Action::End | Action::Tag | Action::TagTree | Action::Untag => self.options.can_end,
            Action::Confirm => self.options.can_end && self.is_confirmable(),
            Action::Environment | Action::Reveal | Action::Leases => self.options.can_ask,
            _ => true,
        }
    }

    pub(super) fn act(&mut self, action: Action) -> Effect {
        match action {
            Action::Quit => return self.quit(),
            Action::End => return self.end(),
            Action::Confirm => return self.confirm(),
            Action::Tag => self.tag(),
            Action::Environment => return self.toggle_environment(),
            Action::Reveal if self.overlay == Some(Overlay::Environment) => {
                self.reveals = !self.reveals;
            }
            Action::Reveal => return Effect::Nothing,
            Action::Leases => return self.toggle_leases(),
            Action::TagTree => self.tag_tree(),
            Action::Tree => self.toggle_tree(),
            Action::Fold => self.fold(),
            Action::Follow => self.follow(),
            Action::Untag => self.tagged.clear(),
            Action::Suspend => return Effect::Suspend,
            Action::Repaint => return Effect::Repaint,
            Action::Help => self.toggle(Overlay::Help),
            Action::Details => {
                if self.subject().is_none() {
                    self.select(0);
                }
                if self.selected.is_none() {
                    return Effect::Nothing;
                }
                self.toggle(Overlay::Details);
            }
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.step(-self.page()),
            Action::PageDown => self.step(self.page()),
            Action::First => self.step(isize::MIN),
            Action::Last => self.step(isize::MAX),
            Action::Filter => self.editing = true,
            Action::NextColumn => self.sort_by(self.next_column(1)),
            Action::PreviousColumn => self.sort_by(self.next_column(-1)),
            Action::SortBy(column) => self.sort_by(column),
            Action::Reverse => {
                self.reversed = !self.reversed;
                self.sort_rows();
            }
            Action::Play(to) => return Effect::Play(to.control()),
            Action::Timecode => self.timecode = Some(String::new()),
            Action::Pause if self.options.replays => return Effect::Play(Control::Toggle),
            Action::Pause => {
                self.paused = !self.paused;
                self.thaw();
            }
            Action::More => self.more = !self.more,
            Action::Markers => {
                self.marker = match self.marker {
                    _ if self.options.ascii => Marker::Ascii,
                    Marker::Braille => Marker::Block,
                    Marker::Block => Marker::Ascii,
                    Marker::Ascii => Marker::Braille,
                }
            }
            Action::Clear => {
                if self.overlay == Some(Overlay::Ending) {
                    self.close_dialog();
                } else if self.overlay.take().is_none() {
                    if self.filter.text().is_empty() {
                        (self.selected, self.followed) = (None, None)
                    } else {
                        return self.set_filter("");
                    }
                }
            }
        }
        Effect::Draw
    }

    pub(super) fn toggle(&mut self, overlay: Overlay) {
        self.overlay = if self.overlay == Some(overlay) { None } else { Some(overlay) };
        self.overlay_top = 0;
    }

    /// Edits the filter. Every key is text here; only ^C still ends the program.
    pub(super) fn edit(&mut self, key: KeyEvent) -> Effect {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.set_filter(""),
            KeyCode::Char(letter) if !control && !key.modifiers.contains(KeyModifiers::ALT) => {
                self.set_filter(&format!("{}{letter}", self.filter.text()))
            }
            KeyCode::Backspace => {
                let mut text = self.filter.text().to_owned();
                text.pop();
                self.set_filter(&text)
            }
            KeyCode::Enter => {
                self.editing = false;
                Effect::Draw
            }
            KeyCode::Esc => {
                self.editing = false;
                self.set_filter("")
            }
            _ => match self.action(key) {
                Some(
                    action @ (Action::Quit
                    | Action::Suspend
                    | Action::Repaint
                    | Action::Up
                    | Action::Down
                    | Action::PageUp
                    | Action::PageDown),
                ) => self.act(action),
                _ => Effect::Nothing,
            },
        }
    }

    pub(super) fn set_filter(&mut self, text: &str) -> Effect {
        self.filter = Filter::new(text);
        self.top = 0;
        self.sort_rows();
        Effect::Draw
    }

    pub(super) fn click(&mut self, mouse: MouseEvent) -> Effect {
        match mouse.kind {
            // In a small box, no line is skipped.
            MouseEventKind::ScrollUp => self.step(-self.page().min(3)),
            MouseEventKind::ScrollDown => self.step(self.page().min(3)),
            // A click does not answer a question.
            MouseEventKind::Down(_) if self.overlay == Some(Overlay::Ending) => {
                return Effect::Nothing;
            }
            MouseEventKind::Down(_) if self.overlay.is_some() => self.overlay = None,
            MouseEventKind::Down(_) => match target(self, mouse.column, mouse.row) {
                Some(Target::Title(column)) if column == self.sort => {
                    return self.act(Action::Reverse);
                }
                Some(Target::Title(column)) => self.sort_by(column),
                Some(Target::Row(index)) => {
                    self.followed = None;
                    self.select(index);
                }
                None => return Effect::Nothing,
            },
            _ => return Effect::Nothing,
        }
        Effect::Draw
    }
}
