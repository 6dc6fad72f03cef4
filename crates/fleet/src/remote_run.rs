//! Runs a job on the first host with free devices.

use crate::job::{EndSignals, Step, Tried, attempt};
use crate::{Answer, HostMessage, HostName, NoAnswer, Question, Reply, Ssh, ask};
use gpu_core::{Clock, Error, ErrorKind, Result};
use std::ffi::OsString;
use std::time::Duration;

/// The first and the longest pause between two rounds of queries.
const PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The exit code of gpuws for a claim that can never be granted.
const NEVER: i32 = 2;

/// How long to wait for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Without a time limit.
    Forever,
    /// At most this long; zero for a single round.
    AtMost(Duration),
}

/// A job for one of several hosts.
///
/// All hosts are asked which devices a claim would get. Hosts with free devices are then tried one
/// after another, in the order of the list: `gpuws run --no-wait` on the host takes the claim and
/// starts the job in one step, or takes no devices. So there is never a claim on two hosts, and no
/// claim must be released. Unless a host clearly refuses, no other host is tried, because the job
/// might have started.
#[derive(Clone, Debug)]
pub struct RemoteRun {
    /// The hosts in order of preference.
    pub hosts: Vec<HostName>,
    /// The options of the claim, for `gpuws claim` and `gpuws run`.
    pub claim: Vec<String>,
    /// The other options of `gpuws run`.
    pub options: Vec<String>,
    /// The command.
    pub command: Vec<OsString>,
    /// How long to wait.
    pub wait: Wait,
    /// The time that each host has to answer, and half of the time for starting the job.
    pub deadline: Duration,
}

/// An event before the job ends.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A host does not answer. Reported again only if the reason changes.
    NoAnswer(&'a HostName, &'a NoAnswer),
    /// No host has free devices.
    Waiting,
    /// The job starts on this host. The messages of gpuws on the host, as lines, not escaped.
    Started(&'a HostName, &'a str),
    /// A signal arrived, and the job on this host is being ended.
    Ending(&'a HostName),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job ran, with this exit code; 255 also if the connection broke.
    Ended(i32),
    /// The job did not start on this host; the exit code of gpuws and its message.
    NotStarted(HostName, i32, HostMessage),
    /// This signal ended it.
    Interrupted(i32),
    /// No host had free devices in time.
    NotNow,
    /// No host can ever grant the claim.
    Never,
    /// No host answered.
    NoHost,
}

/// Whether a host can grant a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Now,
    Later,
    Never,
}

impl RemoteRun {
    /// Runs the job.
    ///
    /// # Errors
    /// `Invalid` when the command is not UTF-8, which a shell could change; `Io` when ssh cannot be
    /// started or watched.
    pub fn run(
        &self,
        ssh: &Ssh,
        clock: &dyn Clock,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Outcome> {
        let failed = |error| Error::new(ErrorKind::Io, "run ssh").with_source(error);
        let words = self.words()?;
        let asked = ["claim".to_owned(), "--json".to_owned()].into_iter().chain(self.claim.clone());
        let question = Question { words: asked.collect(), deadline: self.deadline };
        let signals = EndSignals::new().map_err(failed)?;
        let begin = clock.monotonic();
        let (mut pause, mut reported, mut is_waiting) = (PAUSE, Vec::new(), false);
        loop {
            let answers = ask(&self.hosts, &question, ssh, clock);
            if let Some(signal) = signals.pause(Duration::ZERO).map_err(failed)? {
                return Ok(Outcome::Interrupted(signal));
            }
            for (host, why) in answers.iter().filter_map(unanswered) {
                let news = (host.clone(), why.clone());
                if !reported.contains(&news) {
                    report(Progress::NoAnswer(host, why));
                    reported.retain(|(other, _)| other != host);
                    reported.push(news);
                }
            }
            let rooms: Vec<(&HostName, Room)> = answers.iter().filter_map(room).collect();
            for (host, _) in rooms.iter().filter(|(_, room)| *room == Room::Now) {
                let mut step = |step: Step<'_>| match step {
                    Step::Started(messages) => report(Progress::Started(host, messages)),
                    Step::Ending => report(Progress::Ending(host)),
                };
                let (limit, ports) = (self.deadline * 2, (&signals, clock));
                match attempt(host, &words, limit, ssh, ports, &mut step).map_err(failed)? {
                    Tried::NotNow => {}
                    Tried::Ended(code) => return Ok(Outcome::Ended(code)),
                    Tried::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
                    Tried::NotStarted(code, why) => {
                        return Ok(Outcome::NotStarted((*host).clone(), code, why));
                    }
                }
            }
            if !is_waiting && rooms.iter().all(|(_, room)| *room == Room::Never) {
                return Ok(if rooms.is_empty() { Outcome::NoHost } else { Outcome::Never });
            }
            let left = match self.wait {
                Wait::Forever => Duration::MAX,
                Wait::AtMost(time) => begin.saturating_add(time).saturating_sub(clock.monotonic()),
            };
            if left.is_zero() {
                return Ok(Outcome::NotNow);
            }
            if !std::mem::replace(&mut is_waiting, true) {
                report(Progress::Waiting);
            }
            if let Some(signal) = signals.pause(pause.min(left)).map_err(failed)? {
                return Ok(Outcome::Interrupted(signal));
            }
            pause = (pause * 3 / 2).min(MAX_PAUSE);
        }
    }
}

impl RemoteRun {
    /// Returns the command line that runs the job on a host.
    fn words(&self) -> Result<Vec<String>> {
        let fixed = ["gpuws", "run", "--no-wait", "--end-with-input", "--announce"];
        let mut words: Vec<String> = fixed.map(str::to_owned).into();
        words.extend(self.claim.iter().chain(&self.options).cloned());
        words.push("--".to_owned());
        for word in &self.command {
            let invalid = || Error::new(ErrorKind::Invalid, "pass a command that is not UTF-8");
            words.push(word.to_str().ok_or_else(invalid)?.to_owned());
        }
        Ok(words)
    }
}

fn unanswered(answer: &Answer) -> Option<(&HostName, &NoAnswer)> {
    answer.answer.as_ref().err().map(|why| (&answer.host, why))
}

/// The fields that are read from the output of `claim --json`.
#[derive(serde::Deserialize)]
struct Claimable {
    possible: bool,
    ahead_count: u64,
}

fn room(answer: &Answer) -> Option<(&HostName, Room)> {
    let Reply { object, exit_code } = answer.answer.as_ref().ok()?;
    let room = match (serde_json::from_str(object.get()), *exit_code) {
        (Ok(Claimable { possible: true, ahead_count: 0 }), _) => Room::Now,
        (_, NEVER) => Room::Never,
        _ => Room::Later,
    };
    Some((&answer.host, room))
}
