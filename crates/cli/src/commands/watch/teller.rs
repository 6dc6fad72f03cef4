//! Tells events: on standard output, to a program, and on the terminals of users.

use super::signals::{Next, Signals};
use crate::args::{Global, WatchArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::local_time;
use crate::source::{Source, sim_option};
use crate::terminal::{Screen, one_line, warn};
use gpu_core::{Clock, Origin};
use gpu_host::{Hook, SystemClock, Terminals};
use gpu_report::TimeZone;
use gpu_report::json::WatchEvent;
use gpu_report::local_time::readable;
use gpu_report::watch::{lines, message, warning};
use gpu_watch::{ChangeKind, Policy, Told};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often programs that run are attended to.
const ATTENTION: Duration = Duration::from_millis(200);

/// How long the last programs may still run at the end.
const FAREWELL: Duration = Duration::from_secs(10);

pub(super) struct Teller {
    json: bool,
    sim: String,
    origin: Origin,
    hostname: Option<String>,
    zone: TimeZone,
    machine: Arc<dyn Clock>,
    real: SystemClock,
    hook: Option<Hook>,
    /// Of this machine only: simulated users have no terminals here.
    terminals: Option<Terminals>,
    owner: bool,
    outcome: Result<(), Failure>,
}

impl Teller {
    pub(super) fn new(
        args: &WatchArgs,
        global: &Global,
        source: &Source,
        policy: &Policy,
    ) -> Result<Self, Failure> {
        let origin = source.backend.origin();
        let mut teller = Teller {
            json: global.json,
            sim: sim_option(&origin, global),
            hostname: source.host.hostname().ok(),
            zone: local_time::zone(),
            machine: Arc::clone(&source.clock),
            real: SystemClock::new(),
            hook: None,
            terminals: (origin == Origin::Live).then(|| Terminals::new("/dev")),
            owner: false,
            outcome: Ok(()),
            origin,
        };
        teller.follow(args, policy)?;
        Ok(teller)
    }

    /// Tells whom this policy names from now on.
    pub(super) fn follow(&mut self, args: &WatchArgs, policy: &Policy) -> Result<(), Failure> {
        let tell = &policy.tell;
        let of_policy = tell.on_finding.iter().flatten().map(OsString::from).collect();
        let words = if args.on_finding.is_empty() { of_policy } else { args.on_finding.clone() };
        let hook = match words.split_first() {
            None => None,
            Some((program, arguments)) => {
                let path = program_at(program, args)?;
                let hook = Hook::new(&path, arguments.to_vec(), tell.time_limit);
                Some(hook.map_err(|error| {
                    let hint = "root starts only programs that no other user can change";
                    Failure::from(error).with_hint(hint).ending(Exit::Usage)
                })?)
            }
        };
        (self.hook, self.owner) = (hook, tell.owner);
        Ok(())
    }

    pub(super) fn tell(&mut self, told: &Told<'_>, screen: &mut Screen) {
        let now = self.machine.wall();
        let event = WatchEvent::of(told, &self.origin, self.hostname.as_deref(), now, &self.sim);
        let printed = match self.json {
            true => screen.json_line(&event),
            false => screen.print_all(lines(told, &readable(now, &self.zone), &self.sim)),
        };
        self.outcome = std::mem::replace(&mut self.outcome, Ok(())).and(printed);
        if let Some(hook) = &mut self.hook {
            let name = event.finding_id.clone().unwrap_or_else(|| format!("{:?}", event.event));
            let started = match one_line(&event) {
                Ok(line) => hook.start(&name, format!("{line}\n").into(), self.real.monotonic()),
                Err(error) => return warn(&format!("failed to write an event as JSON: {error}")),
            };
            if let Err(error) = started {
                warn(&format!("failed to {}", error.fault()));
            }
        }
        if self.owner {
            self.tell_owners(told);
        }
    }

    fn tell_owners(&self, told: &Told<'_>) {
        let Some(terminals) = &self.terminals else { return };
        let hostname = self.hostname.as_deref().unwrap_or("this machine");
        match told {
            Told::Change(change) if change.kind == ChangeKind::Raised => {
                for process in change.concerned() {
                    let Ok(uid) = process.uid else { continue };
                    terminals.tell(uid, &message(change, process, hostname));
                }
            }
            Told::Warning(condemned) => {
                if let Ok(uid) = condemned.process.uid {
                    terminals.tell(uid, &warning(condemned, hostname));
                }
            }
            _ => {}
        }
    }

    /// Returns the first failure to print since the last call.
    pub(super) fn outcome(&mut self) -> Result<(), Failure> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Attends to the programs that run.
    pub(super) fn attend(&mut self) {
        let Some(hook) = &mut self.hook else { return };
        for error in hook.attend(self.real.monotonic()) {
            warn(&format!("failed to {}", error.fault()));
        }
    }

    /// Returns when programs have to be attended to again; `None` if none runs.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.hook.as_ref().filter(|hook| !hook.is_idle()).map(|_| ATTENTION)
    }

    /// Lets the last programs end, within their time and a few seconds.
    pub(super) fn finish(&mut self, signals: &Signals) -> Result<(), Failure> {
        let end = self.real.monotonic() + FAREWELL;
        while let Some(pause) = self.patience().filter(|_| self.real.monotonic() < end) {
            self.attend();
            match signals.wait(pause)? {
                // A second request ends the wait, but the first one may still be pending.
                Next::End => self.real.sleep(pause),
                Next::Look | Next::Reload => {}
            }
        }
        Ok(())
    }
}

/// Returns the path of the program: relative ones only from the command line.
fn program_at(program: &OsString, args: &WatchArgs) -> Result<PathBuf, Failure> {
    let what = || format!("find the program '{}'", Path::new(program).display());
    let path = Path::new(program);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    if args.on_finding.is_empty() || !path.to_string_lossy().contains('/') {
        return Err(Failure::new(Exit::Usage, what())
            .with_source("it is not an absolute path")
            .with_hint("give the whole path; PATH is not searched"));
    }
    std::path::absolute(path).map_err(|error| Failure::io(what(), error))
}
