//! The dialog that ends processes: a plan, its confirmation, its steps and its result.

use crate::ending::{News, Shown};
use gpu_report::text::Line;
use gpu_report::wording;
use gpu_report::wording::reap::Paragraph;

/// The phase of the dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A plan is being made.
    Planning,
    /// The plan is shown. It would end this many processes; with 0 there is none to confirm.
    Proposed(usize),
    /// The plan is being executed.
    Running,
    /// The plan is being executed, and no further signal will be sent.
    Stopping,
    /// The result is shown, or why there is no result.
    Over,
}

/// The dialog.
#[derive(Clone, Debug)]
pub(crate) struct Dialog {
    number: u64,
    phase: Phase,
    text: Vec<Paragraph>,
    /// The processes that the plan is about, unless it is the selected one.
    about: Option<String>,
    /// How many processes are ended.
    targets: usize,
    /// The plan was confirmed.
    confirmed: bool,
    /// The user wants to quit while the plan is being executed.
    leaving: bool,
}

/// The text while a plan is being made.
const SCANNING: &str = "checking the current state of the machine …";

impl Dialog {
    /// Returns a dialog that waits for the plan of this number.
    pub(crate) fn asked(number: u64) -> Self {
        let text = vec![Line::new().dim(SCANNING).into()];
        let phase = Phase::Planning;
        Dialog { number, phase, text, about: None, targets: 0, confirmed: false, leaving: false }
    }

    /// Begins the plan with the processes that it is about.
    pub(crate) fn about(self, what: String) -> Self {
        Dialog { about: Some(what), ..self }
    }

    /// Returns a dialog that only shows a message.
    pub(crate) fn saying(number: u64, what: &str) -> Self {
        let text = vec![Line::new().plain(what).into()];
        Dialog { phase: Phase::Over, text, ..Dialog::asked(number) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the plan was confirmed.
    pub(crate) fn was_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Returns whether a plan waits for its confirmation.
    pub(crate) fn is_proposal(&self) -> bool {
        matches!(self.phase, Phase::Proposed(targets) if targets > 0)
    }

    /// Returns whether the plan is being executed.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopping)
    }

    /// Returns whether the program ends when the execution is over.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving && self.phase == Phase::Stopping
    }

    /// Applies an event of the ending; returns whether it concerns this dialog.
    pub(crate) fn news(&mut self, news: News) -> bool {
        match (news, self.phase) {
            (News::Planned(number, planned), Phase::Planning) if number == self.number => {
                self.show(planned);
            }
            (News::Planned(..), _) => return false,
            (News::Step(line), _) => self.text.push(line.into()),
            (News::Over(Ok(result)), _) => {
                self.text.extend(result);
                self.phase = Phase::Over;
            }
            (News::Over(Err(why)), _) => {
                self.text.push(failure(why));
                self.phase = Phase::Over;
            }
        }
        true
    }

    fn show(&mut self, planned: Result<Shown, String>) {
        match planned {
            Ok(Shown { text, targets, obstacle }) => {
                let about = self.about.take().map(|what| Line::new().accent(what).into());
                self.text = about.into_iter().chain(text).collect();
                self.targets = targets;
                let refused = obstacle.map(|why| Line::new().plain(why).into());
                self.phase = Phase::Proposed(if refused.is_some() { 0 } else { targets });
                self.text.extend(refused);
            }
            Err(why) => {
                self.text = vec![failure(why)];
                self.phase = Phase::Over;
            }
        }
    }

    /// Confirms the plan that is shown, which is then executed.
    pub(crate) fn confirm(&mut self) {
        (self.phase, self.confirmed) = (Phase::Running, true);
        self.text.push(Paragraph::default());
    }

    /// Handles a request to quit while a plan is being executed: the first asks, the second stops
    /// it. Returns whether it should be stopped now.
    pub(crate) fn leave(&mut self) -> bool {
        let stops = self.leaving && self.phase == Phase::Running;
        if stops {
            self.phase = Phase::Stopping;
        }
        self.leaving = true;
        stops
    }

    /// Handles a request to stay; returns whether the user wanted to leave.
    pub(crate) fn stay(&mut self) -> bool {
        self.phase == Phase::Running && std::mem::take(&mut self.leaving)
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &[Paragraph] {
        &self.text
    }

    /// Returns the current meaning of the keys, or what the dialog waits for, in parts. `read`: the
    /// plan was on the screen to its end.
    pub(crate) fn prompt(&self, read: bool) -> Vec<Line> {
        let line = Line::new;
        let key = |name, does: &str| line().accent(name).plain(": ").plain(does);
        match self.phase {
            Phase::Planning => vec![line().dim("Esc: cancel")],
            Phase::Proposed(0) => vec![line().dim("nothing was done; Esc: close")],
            Phase::Proposed(_) if !read => {
                vec![key("PgDn", "show the rest of the plan"), key("Esc", "cancel")]
            }
            Phase::Proposed(count) => {
                let what = wording::count(count, "process", "processes");
                vec![key("y", &format!("end {what}")), key("Esc", "cancel")]
            }
            Phase::Running if self.leaving => vec![
                line().accent("processes are being ended:"),
                key("q", "send no further signal and quit"),
                key("Esc", "continue"),
            ],
            Phase::Running => vec![line().dim("Esc: close; the processes are still ended")],
            Phase::Stopping => {
                vec![line().accent("no further signal is sent; quits after this step")]
            }
            Phase::Over => vec![line().dim("Esc: close")],
        }
    }

    /// Returns the notice in the header while the dialog is closed.
    pub(crate) fn notice(&self) -> Option<String> {
        let what = wording::count(self.targets, "process", "processes");
        match self.phase {
            Phase::Running | Phase::Stopping => Some(format!("ending {what}")),
            Phase::Over => Some("processes were ended: K shows the result".to_owned()),
            Phase::Planning | Phase::Proposed(_) => None,
        }
    }
}

fn failure(why: String) -> Paragraph {
    Paragraph { head: Line::new(), text: why }
}
