//! What a claim that waits tells the one who waits for it.

use crate::terminal::Line;
use gpu_claim::Waiting;
use gpu_core::{Claim, LeaseEntry, Pid};
use gpu_host::user_name;
use gpu_report::wording::claims::{asked, waiting_for};
use rustix::termios::tcgetpgrp;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// A line that changes on a terminal does so this often.
const SPINS: Duration = Duration::from_millis(100);
/// Without a terminal, so long may pass until it is noticed that nobody waits any more.
const NOTICES: Duration = Duration::from_secs(2);

/// Returns how often a wait is to be told of: only on a terminal does the line change by itself.
pub(crate) fn pace(quiet: bool) -> Duration {
    match !quiet && std::io::stderr().is_terminal() {
        true => SPINS,
        false => NOTICES,
    }
}

/// Without a terminal the same is told again only after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// What turns while one waits.
const SPINNER: [char; 8] = ['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠼'];

/// Tells on standard error how a claim waits: on a terminal in one line that changes, else in a
/// line for each change.
pub(crate) struct Teller {
    claim: String,
    /// The process group for which it speaks.
    group: Option<Pid>,
    /// What was told last stands in the line that changes.
    is_terminal: bool,
    columns: usize,
    turns: usize,
    /// What was told last, and when.
    reported: Option<(String, Duration)>,
    silent: bool,
}

impl Teller {
    /// Returns one for a claim, which speaks for a process group; `quiet` tells nothing.
    pub(crate) fn new(claim: &Claim, group: Option<Pid>, quiet: bool) -> Self {
        let size = terminal_size::terminal_size_of(std::io::stderr());
        Teller {
            claim: asked(claim),
            group,
            is_terminal: false,
            columns: size.map_or(80, |(width, _)| width.0.into()),
            turns: 0,
            reported: None,
            silent: quiet,
        }
    }

    /// Tells how it stands.
    pub(crate) fn tell(&mut self, waiting: &Waiting<'_>) {
        let how = waiting_for(&self.claim, waiting, &user);
        // In the background it would write over what is typed.
        let front = tcgetpgrp(std::io::stderr());
        let front = front.ok().map(|front| Pid(front.as_raw_nonzero().get().unsigned_abs()));
        self.is_terminal = front.is_some() && front == self.group;
        let is_new = self.reported.as_ref().is_none_or(|(reported, at)| {
            *reported != how || waiting.waited.saturating_sub(*at) >= AGAIN
        });
        if self.silent || !(self.is_terminal || is_new) {
            return;
        }
        let line = Line::new().plain("gpuws: ").plain(&how);
        // Nobody is helped by a failure to say that one has to wait.
        let mut stderr = std::io::stderr();
        if self.is_terminal {
            let turn = SPINNER[self.turns % SPINNER.len()];
            self.turns += 1;
            let clock = format!(" {turn} {}", clock(waiting.waited));
            let room = self.columns.saturating_sub(clock.chars().count() + 1);
            let _ = write!(stderr, "\r\x1b[K{}{clock}", line.cut(room).text());
            let _ = stderr.flush();
        } else {
            let _ = writeln!(stderr, "{}", line.text());
        }
        if is_new {
            self.reported = Some((how, waiting.waited));
        }
    }

    /// Takes the line that changes away.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal && self.reported.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The name of whose an entry is.
pub(crate) fn owner(entry: &LeaseEntry) -> String {
    user(entry.owner)
}

/// The name of a user of this machine.
pub(crate) fn user(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|_| format!("user {uid}"))
}

/// `0:42`, `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_time_is_shown_as_clock() {
        assert_eq!(clock(Duration::from_secs(42)), "0:42");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
