//! Data that is read only when the user asks for it.

use super::{Effect, State};
use crate::inquiry::{Answer, Inquiry};
use crate::overlay::Overlay;
use crate::rows::{RowKey, Subject};
use std::time::Duration;

/// How long leases are shown before they are read again, if reading takes longer than a snapshot.
const SLOW: Duration = Duration::from_secs(60);

/// The last request for the leases.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseQuestion {
    /// The time of the last snapshot before it.
    asked: Duration,
    /// It is not yet answered.
    is_open: bool,
    /// The number of snapshots before its answer.
    snapshots: usize,
}

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
        // A process that blocks its reader is not read twice.
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
        let now = self.frame.as_deref().map_or(Duration::ZERO, |frame| frame.read_at);
        if self.overlay.is_some() && !self.lease_question.is_open {
            self.ask_for_leases(now)
        } else {
            Effect::Draw
        }
    }

    fn ask_for_leases(&mut self, now: Duration) -> Effect {
        self.lease_question = LeaseQuestion { asked: now, is_open: true, snapshots: 0 };
        Effect::Ask(Inquiry::Leases)
    }

    /// Asks for the leases again after a snapshot, if they are shown.
    pub(super) fn renew_leases(&mut self, now: Duration) -> Option<Effect> {
        let is_shown = self.overlay == Some(Overlay::Leases) && !self.is_frozen();
        let LeaseQuestion { asked, is_open, snapshots } = &mut self.lease_question;
        *snapshots += usize::from(*is_open);
        // The first one may come right after the question.
        let is_due = !*is_open && (*snapshots < 2 || now.saturating_sub(*asked) >= SLOW);
        (is_shown && is_due).then(|| self.ask_for_leases(now))
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
                self.lease_question.is_open = false;
                Overlay::Leases
            }
        };
        if self.overlay == Some(shown) { Effect::Draw } else { Effect::Nothing }
    }
}
