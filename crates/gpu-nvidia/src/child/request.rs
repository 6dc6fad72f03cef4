//! One request and its reply, with a deadline.

use super::assemble::Answer;
use super::process::{ChildError, Process};
use super::wire::{Greeting, Order, PROTOCOL, Query, Reply, Request, Then};
use super::{Waiting, moment};
use std::time::Duration;

/// The time before the first report and between reports.
const REPORT: Duration = Duration::from_secs(1);

/// The time for the child to report its current call after the deadline.
const CALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The maximum length of the name of an NVML call with its device.
const LONGEST_CALL: usize = 200;

/// A failed request.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The deadline has passed; with the running call, if the child reported it.
    Hangs(Option<String>),
    /// The child has exited or sent an invalid message; with a description.
    Broken(String),
}

/// The time limit of a request.
pub(crate) struct TimeLimit<'a> {
    begin: Duration,
    /// The time allowed from `begin`.
    allowed: Duration,
    /// The time of the next report.
    next_report: Duration,
    /// Whether the child was asked for its current call and has not replied yet.
    is_call_requested: bool,
    /// The last reported call.
    call: Option<String>,
    /// When the program first noticed that the deadline had passed.
    late: Option<Duration>,
    waiting: &'a (dyn Fn(&Waiting) + Send + Sync),
}

impl<'a> TimeLimit<'a> {
    /// Returns the limit for a request that started at `begin` and itself takes `own_duration`.
    pub(crate) fn new(
        begin: Duration,
        deadline: Duration,
        own_duration: Duration,
        waiting: &'a (dyn Fn(&Waiting) + Send + Sync),
    ) -> Self {
        let next_report = begin.saturating_add(own_duration).saturating_add(REPORT);
        let allowed = deadline.saturating_add(own_duration);
        TimeLimit {
            begin,
            allowed,
            next_report,
            is_call_requested: false,
            call: None,
            late: None,
            waiting,
        }
    }

    fn end(&self) -> Duration {
        self.begin.saturating_add(self.allowed)
    }

    /// Returns whether the time is over, including the time to receive messages that were sent
    /// before the deadline.
    fn is_over(&mut self) -> bool {
        let now = moment();
        if now < self.end() {
            return false;
        }
        now >= self.late.get_or_insert(now).saturating_add(CALL_TIMEOUT)
    }

    /// Asks the child for its current call, once a second. If the child did not reply to the
    /// previous request, reports without it.
    fn request_call(&mut self, child: &mut Process) {
        if self.is_call_requested {
            self.report();
        }
        self.is_call_requested = child.order(Order::Where).is_ok();
        self.next_report = moment().saturating_add(REPORT);
    }

    /// Stores and reports the current call of the child.
    fn received_call(&mut self, call: Option<String>) {
        self.call = call.filter(|call| call.len() <= LONGEST_CALL);
        if std::mem::take(&mut self.is_call_requested) {
            self.report();
        }
    }

    fn report(&self) {
        let elapsed = moment().saturating_sub(self.begin);
        (self.waiting)(&Waiting { call: self.call.clone(), elapsed, deadline: self.allowed });
    }
}

/// Sends a request.
pub(crate) fn send(child: &mut Process, query: Query, then: Then) -> Result<(), Failure> {
    child.request(&Request { query, then }).map_err(|error| match error {
        ChildError::TimedOut => Failure::Broken("it stopped reading requests".to_owned()),
        error => broken(error),
    })
}

/// Receives the greeting, which must be the first message.
pub(crate) fn greeting(
    child: &mut Process,
    limit: &mut TimeLimit<'_>,
) -> Result<Greeting, Failure> {
    match receive(child, limit, None)? {
        Reply::Greeting(greeting) if greeting.protocol == PROTOCOL => Ok(greeting),
        Reply::Greeting(_) => Err(Failure::Broken("its version differs".to_owned())),
        _ => Err(invalid()),
    }
}

/// Receives the reply, part by part.
pub(crate) fn answer(
    child: &mut Process,
    limit: &mut TimeLimit<'_>,
    answer: &mut dyn Answer,
) -> Result<(), Failure> {
    loop {
        match receive(child, limit, Some(answer))? {
            Reply::Done if answer.is_whole() => return Ok(()),
            part => answer.take(part).map_err(|_| invalid())?,
        }
    }
}

/// Receives the next part; while waiting, reports once a second. After the deadline, `answer`
/// receives the parts that the child still had.
fn receive(
    child: &mut Process,
    limit: &mut TimeLimit<'_>,
    answer: Option<&mut dyn Answer>,
) -> Result<Reply, Failure> {
    loop {
        // After SIGSTOP, the program may read messages late that were sent in time. But an endless
        // stream of messages must not extend the deadline.
        if limit.is_over() {
            return Err(time_out(child, limit, answer));
        }
        match child.receive(limit.end().min(limit.next_report)) {
            Ok(Reply::Where(call)) => limit.received_call(call),
            Ok(reply) => return Ok(reply),
            Err(ChildError::TimedOut) if moment() < limit.end() => limit.request_call(child),
            Err(ChildError::TimedOut) => return Err(time_out(child, limit, answer)),
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Notifies the child that the deadline has passed, and receives its unsent parts and its current
/// call.
fn time_out(
    child: &mut Process,
    limit: &mut TimeLimit<'_>,
    mut answer: Option<&mut dyn Answer>,
) -> Failure {
    let until = moment().saturating_add(CALL_TIMEOUT);
    let mut call = limit.call.take();
    if child.order(Order::End).is_ok() {
        while let Ok(reply) = child.receive(until) {
            match reply {
                Reply::Where(Some(last)) if last.len() <= LONGEST_CALL => call = Some(last),
                // A complete reply comes too late.
                part if part.is_part() => {
                    let taken = answer.as_mut().map(|answer| answer.take(part));
                    if matches!(taken, Some(Err(_))) {
                        break;
                    }
                }
                _ => {}
            }
            if moment() >= until {
                break;
            }
        }
    }
    Failure::Hangs(call)
}

fn invalid() -> Failure {
    broken(ChildError::Invalid)
}

fn broken(error: ChildError) -> Failure {
    Failure::Broken(match error {
        ChildError::Ended(how) => how,
        ChildError::Invalid => "it sent an invalid message".to_owned(),
        ChildError::TimedOut => "it sent no answer".to_owned(),
        ChildError::System(errno) => errno.to_string(),
    })
}
