//! The state of the view of a recording.

use super::{Effect, State};
use crate::counters::Counters;
use crate::history::Past;
use crate::keys::Action;
use crate::replay::{Control, Replayed};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The most characters of a time.
const MOST: usize = 40;

impl State {
    pub(super) fn replayed(&mut self, replayed: Replayed) -> Effect {
        match replayed {
            Replayed::Played(frame) => self.accept(frame),
            Replayed::Sought(frame, before) => {
                self.sent = None;
                self.past = Past::default();
                self.counters = Counters::default();
                self.cpu_before = before.unwrap_or_default();
                // A recorded snapshot without devices does not keep those of another time.
                self.frame = None;
                self.accept(frame)
            }
            Replayed::Past(of, snapshots) => {
                let shown = self.frame.as_deref().map(|frame| frame.snapshot.taken_at);
                if shown != Some(of) {
                    return Effect::Nothing;
                }
                self.past.prepend(&snapshots);
                Effect::Draw
            }
            Replayed::Playback(playback) => {
                if playback.objection.is_some() {
                    self.objection.clone_from(&playback.objection);
                    // A refused time can be corrected.
                    self.timecode = self.timecode.take().or(self.sent.take());
                }
                self.playback = Some(playback);
                Effect::Draw
            }
        }
    }

    /// Edits the time to show.
    pub(super) fn edit_time(&mut self, key: KeyEvent) -> Effect {
        let Some(text) = &mut self.timecode else { return Effect::Nothing };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char(letter) if !control => add(text, letter.encode_utf8(&mut [0; 4])),
            KeyCode::Char('u') if control => text.clear(),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Enter => {
                let text = self.timecode.take().unwrap_or_default().trim().to_owned();
                if text.is_empty() {
                    return Effect::Draw;
                }
                self.sent = Some(text.clone());
                return Effect::Play(Control::To(text));
            }
            KeyCode::Esc => self.timecode = None,
            _ => match self.action(key) {
                Some(action @ (Action::Quit | Action::Suspend | Action::Repaint)) => {
                    return self.act(action);
                }
                _ => return Effect::Nothing,
            },
        }
        Effect::Draw
    }

    /// Adds pasted text to the time to show.
    pub(super) fn paste_time(&mut self, pasted: &str) -> Effect {
        let Some(text) = &mut self.timecode else { return Effect::Nothing };
        add(text, pasted);
        Effect::Draw
    }
}

/// Appends as much to a typed time as fits.
fn add(text: &mut String, more: &str) {
    let room = MOST.saturating_sub(text.chars().count());
    text.extend(more.chars().filter(|letter| !gpu_core::acts(*letter)).take(room));
}
