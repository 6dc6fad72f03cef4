//! Reports events: on standard output, to a program, and on the terminals of users.

use super::WatchArgs;
use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::local_time;
use crate::source::{Source, sim_option};
use crate::terminal::{Screen, one_line, warn};
use gpu_core::{Clock, Error, Origin};
use gpu_machine::{EXIT_GRACE, Messengers, Next, Requests};
use gpu_report::TimeZone;
use gpu_report::json::WatchEvent;
use gpu_report::local_time::readable;
use gpu_report::watch::{lines, messages};
use gpu_watch::{Event, Policy};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct EventNotifier {
    json: bool,
    sim: String,
    origin: Origin,
    hostname: Option<String>,
    zone: TimeZone,
    clock: Arc<dyn Clock>,
    pub(super) messengers: Messengers,
    owner: bool,
    outcome: Result<(), Failure>,
}

impl EventNotifier {
    pub(super) fn new(
        args: &WatchArgs,
        global: &Global,
        source: &Source,
        policy: &Policy,
    ) -> Result<Self, Failure> {
        let origin = source.backend.origin();
        let mut notifier = EventNotifier {
            json: global.json,
            sim: sim_option(&origin, global),
            hostname: source.host.hostname().ok(),
            zone: local_time::zone(),
            clock: Arc::clone(&source.clock),
            messengers: Messengers::new(&origin),
            owner: false,
            outcome: Ok(()),
            origin,
        };
        notifier.follow(args, policy)?;
        Ok(notifier)
    }

    /// Changes the recipients to those of this policy.
    pub(super) fn follow(&mut self, args: &WatchArgs, policy: &Policy) -> Result<(), Failure> {
        let notify = &policy.notify;
        let of_policy = || notify.on_finding.iter().flatten().map(OsString::from).collect();
        let words = if args.on_finding.is_empty() {
            of_policy()
        } else {
            gpu_machine::with_absolute_program(&args.on_finding)?
        };
        start_for_events(&mut self.messengers, &words, notify.time_limit)?;
        self.owner = notify.owner;
        Ok(())
    }

    pub(super) fn notify(&mut self, event: &Event<'_>, screen: &mut Screen) {
        let now = self.clock.wall();
        let object = WatchEvent::of(event, &self.origin, self.hostname.as_deref(), now, &self.sim);
        let printed = if self.json {
            screen.json_line(&object)
        } else {
            screen.print_all(lines(event, &readable(now, &self.zone), &self.sim, screen.room(0)))
        };
        self.outcome = std::mem::replace(&mut self.outcome, Ok(())).and(printed);
        if self.messengers.has_program() {
            let name = object.finding_id.clone().unwrap_or_else(|| format!("{:?}", object.event));
            match one_line(&object) {
                Ok(line) => {
                    failed(self.messengers.pass_on(&name, format!("{line}\n").into()).err())
                }
                Err(error) => warn(&format!("failed to write an event as JSON: {error}")),
            }
        }
        let hostname = self.hostname.as_deref().unwrap_or("this machine");
        for (uid, message) in messages(event, hostname).into_iter().filter(|_| self.owner) {
            self.messengers.notify(uid, message);
        }
    }

    /// Returns the first failure to print since the last call.
    pub(super) fn outcome(&mut self) -> Result<(), Failure> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Serves the running programs, and returns the latest time for the next call.
    pub(super) fn attend(&mut self) -> Option<Duration> {
        failed(self.messengers.attend());
        self.messengers.patience()
    }

    /// Waits for the last programs to end, within their time limit and a few seconds.
    pub(super) fn finish(&mut self, requests: &Requests, clock: &dyn Clock) -> Result<(), Failure> {
        let end = clock.monotonic() + EXIT_GRACE;
        while let Some(pause) = self.attend().filter(|_| clock.monotonic() < end) {
            // The request that ended the loop is still pending.
            if requests.wait(pause)? == Next::End {
                clock.sleep(pause);
            }
        }
        failed(self.messengers.end());
        Ok(())
    }
}

/// Starts this program for events, if another user cannot change it.
pub(super) fn start_for_events(
    messengers: &mut Messengers,
    words: &[OsString],
    limit: Duration,
) -> Result<(), Failure> {
    messengers.start_for_events(words, limit).map_err(|error| {
        let hint = "pass the full path of a program that no other user can change";
        Failure::from(error).with_hint(hint).ending(Exit::Usage)
    })
}

/// Prints failures without further effect.
pub(super) fn failed(errors: impl IntoIterator<Item = Error>) {
    errors.into_iter().for_each(|error| warn(&format!("failed to {}", error.fault())));
}
