//! One question and its answer, with a deadline.

use super::assemble::Answer;
use super::process::{Process, Trouble};
use super::wire::{Greeting, Order, PROTOCOL, Question, Said, Then};
use super::{Waiting, moment};
use std::time::Duration;

/// The first second passes in silence, as do those between two reports.
const REPORT: Duration = Duration::from_secs(1);

/// How long the child may take to say what it is waiting for.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// No call of NVML has a longer name, device included.
const LONGEST_CALL: usize = 200;

/// How a conversation ends that does not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The deadline has passed; the call that has not returned, where the child says it.
    Hangs(Option<String>),
    /// The child has ended, or has to be ended since it makes no sense; how that is to be said.
    Broken(String),
}

/// The time that one question has.
pub(crate) struct Patience<'a> {
    begin: Duration,
    /// How long it may take.
    allowed: Duration,
    /// When to report next that it is still waiting.
    report: Duration,
    /// Whether the child was asked what it is waiting for, and has not said.
    wonders: bool,
    /// What it has said last.
    call: Option<String>,
    /// When it was first seen that the time is up.
    late: Option<Duration>,
    waiting: &'a (dyn Fn(&Waiting) + Send + Sync),
}

impl<'a> Patience<'a> {
    /// Returns the patience for a question that began at `begin`, and that is expected to take
    /// `wanted` by itself.
    pub(crate) fn new(
        begin: Duration,
        deadline: Duration,
        wanted: Duration,
        waiting: &'a (dyn Fn(&Waiting) + Send + Sync),
    ) -> Self {
        let report = begin.saturating_add(wanted).saturating_add(REPORT);
        let allowed = deadline.saturating_add(wanted);
        Patience { begin, allowed, report, wonders: false, call: None, late: None, waiting }
    }

    fn end(&self) -> Duration {
        self.begin.saturating_add(self.allowed)
    }

    /// Tells whether even what was said in time has had the time to be heard.
    fn is_over(&mut self) -> bool {
        let now = moment();
        if now < self.end() {
            return false;
        }
        now >= self.late.get_or_insert(now).saturating_add(LAST_WORDS)
    }

    /// Asks the child what it is waiting for, once a second; reports without its answer when it
    /// did not give one.
    fn report_is_due(&mut self, child: &mut Process) {
        if self.wonders {
            self.tell();
        }
        self.wonders = child.tell(&Order::Where).is_ok();
        self.report = moment().saturating_add(REPORT);
    }

    /// Takes what the child is waiting for, and reports it.
    fn learned(&mut self, call: Option<String>) {
        self.call = call.filter(|call| call.len() <= LONGEST_CALL);
        if std::mem::take(&mut self.wonders) {
            self.tell();
        }
    }

    fn tell(&self) {
        let elapsed = moment().saturating_sub(self.begin);
        (self.waiting)(&Waiting { call: self.call.clone(), elapsed, deadline: self.allowed });
    }
}

/// Puts a question.
pub(crate) fn put(child: &mut Process, question: Question, then: Then) -> Result<(), Failure> {
    child.tell(&Order::Ask { question, then }).map_err(|trouble| match trouble {
        Trouble::Silent => Failure::Broken("it does not read requests".to_owned()),
        trouble => broken(trouble),
    })
}

/// Hears the greeting, which comes before anything else.
pub(crate) fn greeting(
    child: &mut Process,
    patience: &mut Patience<'_>,
) -> Result<Greeting, Failure> {
    match hear(child, patience)? {
        Said::Greeting(greeting) if greeting.protocol == PROTOCOL => Ok(greeting),
        Said::Greeting(_) => Err(Failure::Broken("it has another version".to_owned())),
        _ => Err(nonsense()),
    }
}

/// Hears the answer out, part by part.
pub(crate) fn answer(
    child: &mut Process,
    patience: &mut Patience<'_>,
    answer: &mut dyn Answer,
) -> Result<(), Failure> {
    loop {
        match hear(child, patience)? {
            Said::Done if answer.is_whole() => return Ok(()),
            part => answer.take(part).map_err(|_| nonsense())?,
        }
    }
}

/// Returns the next part; until then reports each second what is waited for.
fn hear(child: &mut Process, patience: &mut Patience<'_>) -> Result<Said, Failure> {
    loop {
        // What was said in time may be heard later, by a program that was stopped in between; one
        // that never falls silent is not heard for ever.
        if patience.is_over() {
            return Err(last_words(child, patience));
        }
        match child.hear(patience.end().min(patience.report)) {
            Ok(Said::Where(call)) => patience.learned(call),
            Ok(said) => return Ok(said),
            Err(Trouble::Silent) if moment() < patience.end() => patience.report_is_due(child),
            Err(Trouble::Silent) => return Err(last_words(child, patience)),
            Err(trouble) => return Err(broken(trouble)),
        }
    }
}

/// Tells the child that the deadline has passed, and hears what it was waiting for.
fn last_words(child: &mut Process, patience: &mut Patience<'_>) -> Failure {
    let until = moment().saturating_add(LAST_WORDS);
    let mut call = patience.call.take();
    if child.tell(&Order::End).is_ok() {
        // A part that comes after all comes too late: what follows it would be lost.
        while let Ok(said) = child.hear(until) {
            if let Said::Where(Some(last)) = said
                && last.len() <= LONGEST_CALL
            {
                call = Some(last);
            }
            if moment() >= until {
                break;
            }
        }
    }
    Failure::Hangs(call)
}

fn nonsense() -> Failure {
    broken(Trouble::Nonsense)
}

fn broken(trouble: Trouble) -> Failure {
    Failure::Broken(match trouble {
        Trouble::Ended(how) => how,
        Trouble::Nonsense => "it sent an invalid message".to_owned(),
        Trouble::Silent => "it sent no answer".to_owned(),
        Trouble::Refused(errno) => errno.to_string(),
    })
}
