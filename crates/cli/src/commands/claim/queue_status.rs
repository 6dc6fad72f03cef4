//! The status line of a waiting claim.

use crate::terminal::{Line, terminal_columns};
use crate::users::user;
use gpu_claim::Waiting;
use gpu_core::{Claim, Pid};
use gpu_report::wording::claims::{Notices, asked, clock, waited, waiting_for};
use rustix::termios::tcgetpgrp;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The interval at which the status line on a terminal is updated.
const SPINS: Duration = Duration::from_millis(100);
/// The interval without a terminal. A cancelled wait is noticed only then.
const NOTICES: Duration = Duration::from_secs(2);

/// Returns the interval at which a wait is reported.
pub(crate) fn pace(quiet: bool) -> Duration {
    if !quiet && std::io::stderr().is_terminal() { SPINS } else { NOTICES }
}

/// The frames of the spinner on the status line.
const SPINNER: [char; 8] = ['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠼'];

/// Reports on standard error how long a claim waits and why: on a terminal in one line that is
/// updated, otherwise in a new line for each change.
pub(crate) struct QueueStatus {
    claim: String,
    /// The command that previews the claim.
    preview: String,
    /// The process group that must own the terminal.
    group: Option<Pid>,
    /// The status line of a terminal was written last.
    is_terminal: bool,
    columns: usize,
    turns: usize,
    notices: Notices,
    silent: bool,
}

impl QueueStatus {
    /// Returns the status of a claim of this process group; `quiet` suppresses it.
    pub(crate) fn new(claim: &Claim, preview: String, group: Option<Pid>, quiet: bool) -> Self {
        QueueStatus {
            claim: asked(claim),
            preview,
            group,
            is_terminal: false,
            columns: terminal_columns(std::io::stderr()).unwrap_or(80),
            turns: 0,
            notices: Notices::default(),
            silent: quiet,
        }
    }

    pub(crate) fn show(&mut self, waiting: &Waiting<'_>) {
        let how = waiting_for(&self.claim, waiting, &user, Some(&self.preview));
        // A background job must not overwrite the command line that the user types.
        let front = tcgetpgrp(std::io::stderr());
        let front = front.ok().map(|front| Pid(front.as_raw_nonzero().get().unsigned_abs()));
        self.is_terminal = front.is_some() && front == self.group;
        if !self.notices.is_due(&how, waiting.waited) && !self.is_terminal || self.silent {
            return;
        }
        let line = Line::new().plain("gpuws: ").plain(&how);
        // An error here must not fail the claim.
        let mut stderr = std::io::stderr();
        if self.is_terminal {
            let turn = SPINNER[self.turns % SPINNER.len()];
            self.turns += 1;
            let clock = format!(" {turn} {}", clock(waiting.waited));
            let room = self.columns.saturating_sub(clock.chars().count() + 1);
            let _ = write!(stderr, "\r\x1b[K{}{clock}", line.cut(room).text());
            let _ = stderr.flush();
        } else {
            crate::terminal::report(format_args!("{}{}", line.text(), waited(waiting)));
        }
    }

    /// Erases the status line.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal && std::mem::take(&mut self.turns) > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for QueueStatus {
    fn drop(&mut self) {
        self.clear();
    }
}
