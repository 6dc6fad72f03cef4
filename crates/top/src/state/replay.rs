//! What is shown of a recording.

use super::{Effect, State};
use crate::history::Past;
use crate::keys::Action;
use crate::replay::{Control, Replayed};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The most characters of a time.
const MOST: usize = 40;

impl State {
    pub(super) fn replayed(&mut self, replayed: Replayed) -> Effect {
        match replayed {
            Replayed::Played(frame) => self.look(frame),
            Replayed::Sought(frame, before) => {
                self.past = Past::default();
                self.cpu_before = Default::default();
                if let Some(mut before) = before {
                    self.add_cpu(&mut before);
                }
                // A recorded look without devices keeps none of another time.
                self.frame = None;
                self.look(frame)
            }
            Replayed::Past(of, looks) => {
                let shown = self.frame.as_deref().map(|frame| frame.snapshot.taken_at);
                if shown != Some(of) {
                    return Effect::Nothing;
                }
                self.past.prepend(&looks);
                Effect::Draw
            }
            Replayed::Playback(playback) => {
                self.objection = playback.objection.clone().or(self.objection.take());
                self.playback = Some(playback);
                Effect::Draw
            }
        }
    }

    /// Edits the time that is to be shown.
    pub(super) fn edit_time(&mut self, key: KeyEvent) -> Effect {
        let Some(text) = &mut self.timecode else { return Effect::Nothing };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char(letter) if !control && !gpu_core::acts(letter) => {
                if text.chars().count() < MOST {
                    text.push(letter);
                }
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Enter => {
                let text = self.timecode.take().unwrap_or_default();
                return match text.trim().is_empty() {
                    true => Effect::Draw,
                    false => Effect::Play(Control::To(text.trim().to_owned())),
                };
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
}
