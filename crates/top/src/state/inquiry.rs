//! What is read only when the user asks for it.

use super::{Effect, Overlay, State};
use crate::inquiry::{Answer, Inquiry};
use crate::rows::{RowKey, Subject};

impl State {
    /// Opens or closes the environment of the selected process. Values that may be secrets are
    /// hidden again.
    pub(super) fn toggle_environment(&mut self) -> Effect {
        let Some(RowKey { subject: Subject::Process(key), .. }) = self.subject() else {
            return Effect::Nothing;
        };
        self.toggle(Overlay::Environment);
        self.reveals = false;
        if self.overlay.is_none() {
            self.environment = None;
            return Effect::Draw;
        }
        // A process that makes its reader wait is not read twice.
        let waits =
            self.environment.as_ref().is_some_and(|(of, read)| *of == key && read.is_none());
        if waits {
            return Effect::Draw;
        }
        self.environment = Some((key, None));
        Effect::Ask(Inquiry::Environment(key))
    }

    pub(super) fn toggle_leases(&mut self) -> Effect {
        self.toggle(Overlay::Leases);
        match self.overlay {
            Some(_) => Effect::Ask(Inquiry::Leases),
            None => Effect::Draw,
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) -> Effect {
        let shown = match answer {
            Answer::Environment(key, read) => match &mut self.environment {
                Some((of, known)) if *of == key => {
                    *known = Some(read);
                    Overlay::Environment
                }
                _ => return Effect::Nothing,
            },
            Answer::Leases(read) => {
                self.leases = Some(read);
                Overlay::Leases
            }
        };
        if self.overlay == Some(shown) { Effect::Draw } else { Effect::Nothing }
    }
}
