//! What a claim that waits tells the one who waits for it.

use crate::terminal::Line;
use crate::wording;
use gpu_claim::{Ahead, Waiting};
use gpu_core::{Claim, Entry, Pid, Share};
use gpu_host::user_name;
use gpu_report::wording::claims::{asked, holding_up, ordinal};
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
    told: Option<(String, Duration)>,
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
            told: None,
            silent: quiet,
        }
    }

    /// Tells how it stands.
    pub(crate) fn tell(&mut self, waiting: &Waiting<'_>) {
        let how = how(&self.claim, waiting);
        // In the background it would write over what is typed.
        let front = tcgetpgrp(std::io::stderr());
        let front = front.ok().map(|front| Pid(front.as_raw_nonzero().get().unsigned_abs()));
        self.is_terminal = front.is_some() && front == self.group;
        let is_new = self
            .told
            .as_ref()
            .is_none_or(|(told, at)| *told != how || waiting.waited.saturating_sub(*at) >= AGAIN);
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
            self.told = Some((how, waiting.waited));
        }
    }

    /// Takes the line that changes away.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal && self.told.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `waiting for 2 GPUs; 2nd in the queue behind bob (1 GPU); leased by alice (4 GPUs)`.
fn how(claim: &str, waiting: &Waiting<'_>) -> String {
    let mut text = format!("waiting for {claim}");
    let Ahead { count, nearest, stalled } = waiting.ahead;
    if *count > 0 {
        text.push_str(&format!("; {} in the queue", ordinal(count + 1)));
    }
    if let Some(nearest) = nearest {
        text.push_str(&format!(" behind {} ({})", owner(nearest), asked(&nearest.claim)));
    }
    if let Some(first) = stalled.first() {
        let more = match stalled.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let pid = first.root.pid;
        text.push_str(&format!("; skipping stalled PID {pid} of {}{more}", owner(first)));
    }
    let mut leases = waiting.leases.iter().map(held);
    let first: Vec<String> = leases.by_ref().take(2).collect();
    if !first.is_empty() {
        let more = match leases.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!("; leased by {}{more}", first.join(", ")));
    }
    if *count == 0 && waiting.leases.is_empty() && waiting.held_up.is_none() {
        text.push_str("; too few are eligible although none is leased; for reasons: gpuws claim");
    }
    if let Some(held_up) = waiting.held_up {
        text.push_str(&format!("; {}", holding_up(held_up)));
    }
    text
}

/// `alice (4 GPUs)`.
fn held(lease: &Entry) -> String {
    let count = wording::count(lease.devices.len(), "GPU", "GPUs");
    match lease.claim.share {
        Share::Whole => format!("{} ({count})", owner(lease)),
        Share::Memory(bytes) => format!("{} ({bytes} of {count})", owner(lease)),
    }
}

/// The name of whose an entry is.
pub(crate) fn owner(entry: &Entry) -> String {
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
    use gpu_core::{Bytes, DeviceUuid, LeaseId, Pid, ProcessKey, Timestamp};

    fn entry(owner: u32, devices: usize, claim: Claim) -> Entry {
        let uuid = |n| DeviceUuid(format!("GPU-{n}"));
        Entry {
            id: LeaseId::parse("1-a").unwrap(),
            ticket: 1,
            owner,
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim,
            devices: (0..devices).map(uuid).collect(),
            parts_of: Vec::new(),
            command: String::new(),
            since: Timestamp(0),
        }
    }

    #[test]
    fn waiting_line_shows_position_and_holders() {
        let nearest = Some(entry(0, 0, Claim::whole(1)));
        let ahead = Ahead { count: 1, nearest, stalled: Vec::new() };
        let share = Claim { share: Share::Memory(Bytes::from_mib(6144)), ..Claim::whole(2) };
        let leases = [entry(0, 4, Claim::whole(4)), entry(4_000_000_007, 2, share)];
        let waited = Duration::from_secs(42);
        let waiting = Waiting { ahead: &ahead, leases: &leases, waited, held_up: None };
        assert_eq!(
            how("2 GPUs", &waiting),
            "waiting for 2 GPUs; 2nd in the queue behind root (1 GPU); leased by root (4 GPUs), \
             user 4000000007 (6,144 MiB of 2 GPUs)"
        );
    }

    #[test]
    fn waiting_line_names_stalled_claim() {
        let stalled = vec![entry(0, 0, Claim::whole(1)), entry(0, 0, Claim::whole(1))];
        let ahead = Ahead { count: 0, nearest: None, stalled };
        let leases = [entry(0, 1, Claim::whole(1))];
        let waited = Duration::from_secs(42);
        let waiting = Waiting { ahead: &ahead, leases: &leases, waited, held_up: None };
        assert_eq!(
            how("1 GPU", &waiting),
            "waiting for 1 GPU; skipping stalled PID 1 of root and 1 more; leased by root (1 GPU)"
        );
    }

    #[test]
    fn ordinals_and_durations_are_formatted() {
        let places = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(ordinal);
        let written =
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"];
        assert_eq!(places, written);
        assert_eq!(clock(Duration::from_secs(42)), "0:42");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
