//! The answers of several hosts, as one table or one list of findings.
//!
//! An answer is an object of JSON from another machine, perhaps from another version of gpuws. Only
//! the values that are shown are read from it; an answer without them is no answer. All text in it
//! is hostile, and lines of styled text escape it.

mod doctor;
pub mod run;
mod status;

pub use doctor::Diagnosed;
pub use status::Seen;

use crate::text::{Line, Tone, wrapped};
use crate::{Exit, json};
use gpu_fleet::{Answer, HostName, NoAnswer, Reply};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The hosts and what they answered, with the values that are shown as `T`.
pub struct Hosts<T> {
    hosts: Vec<(HostName, Result<Said<T>, NoAnswer>)>,
}

/// What a host answered.
struct Said<T> {
    reply: Reply,
    shown: T,
}

/// A failure in an answer.
#[derive(Debug, Deserialize)]
struct What {
    what: String,
}

/// What every answer begins with.
#[derive(Debug, Deserialize)]
struct Head {
    origin: String,
    machine: Option<String>,
    driver_error: Option<What>,
}

impl Head {
    /// Returns a line that names a simulated machine; `None` for a real one.
    fn label(&self, host: &HostName) -> Option<Line> {
        let machine = self.machine.as_deref().unwrap_or_default();
        let label = || Line::new().plain(host).plain(": ").accent(&self.origin).plain(" machine ");
        (self.origin != "live").then(|| label().accent(machine))
    }
}

impl<T: DeserializeOwned> Hosts<T> {
    /// Reads the answers.
    pub fn of(answers: Vec<Answer>) -> Self {
        let read = |reply: Reply| match T::deserialize(&reply.object) {
            Ok(shown) => Ok(Said { reply, shown }),
            Err(error) => Err(NoAnswer::Unreadable(error.to_string().chars().take(200).collect())),
        };
        let hosts =
            answers.into_iter().map(|Answer { host, answer }| (host, answer.and_then(read)));
        Hosts { hosts: hosts.collect() }
    }
}

impl<T> Hosts<T> {
    /// Returns the exit code of the hosts that did not answer, and of those where gpuws could not
    /// observe: a deadline only if nothing else failed. `None` if all is known.
    fn failure(&self) -> Option<Exit> {
        let failed = self.hosts.iter().filter_map(|(_, said)| match said {
            Ok(said) if said.reply.exit_code <= i32::from(Exit::Remains.code()) => None,
            Err(NoAnswer::TimedOut(_)) => Some(Exit::Deadline),
            Ok(said) if said.reply.exit_code == i32::from(Exit::Deadline.code()) => {
                Some(Exit::Deadline)
            }
            _ => Some(Exit::CannotObserve),
        });
        failed.reduce(|one, other| if one == Exit::Deadline { other } else { one })
    }

    /// Returns the object of `--json`.
    pub fn json(&self) -> json::Hosts<'_> {
        let hosts = self.hosts.iter().map(|(host, said)| {
            let said = said.as_ref().map(|said| (&said.reply.object, said.reply.exit_code));
            json::hosts::Host::of(host, said)
        });
        json::Hosts {
            schema: json::Version,
            answered_count: self.answered().count(),
            hosts: hosts.collect(),
        }
    }

    fn answered(&self) -> impl Iterator<Item = (&HostName, &Said<T>)> {
        self.hosts.iter().filter_map(|(host, said)| Some((host, said.as_ref().ok()?)))
    }

    /// Returns lines for the hosts that did not answer.
    fn unanswered(&self, room: usize) -> Vec<Line> {
        let lines = self.hosts.iter().filter_map(|(host, said)| {
            let why = said.as_ref().err()?;
            let head = Line::new().accent(host).plain("  no answer: ");
            let mut lines = wrapped(head, Tone::Plain, &why.to_string(), room);
            let hint = |hint| wrapped(Line::new().dim("  hint: "), Tone::Dim, hint, room);
            lines.extend(why.remedy().into_iter().flat_map(hint));
            Some(lines)
        });
        lines.flatten().collect()
    }

    /// Formats `3 of 4 hosts answered`.
    fn summary(&self) -> Line {
        let (answered, all) = (self.answered().count(), self.hosts.len());
        let hosts = if all == 1 { "host" } else { "hosts" };
        let text = format!("{answered} of {all} {hosts} answered");
        if answered < all { Line::new().accent(text) } else { Line::new().plain(text) }
    }
}
