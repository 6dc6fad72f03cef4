//! Progress of a run.

use super::frontend::FrontendArgs;
use super::report::ReportFile;
use crate::args::Global;
use crate::commands::claim::{queue_status::QueueStatus, request};
use crate::exit::Exit;
use crate::terminal::Line;
use crate::wording;
use gpu_core::{Bytes, JobExit, Origin};
use gpu_host::supervise::{LinuxLauncher, end_as};
use gpu_report::wording::limit::reported as bounded;
use gpu_steward::{Event, Grant, HandOff, OnDeath};
use std::ops::ControlFlow;
use std::time::Duration;

/// Reports the progress on standard error; standard output belongs to the command.
pub(super) struct Watch<'a> {
    pub(super) global: &'a Global,
    pub(super) front: &'a FrontendArgs,
    pub(super) file: Option<ReportFile>,
    /// The exit code, once the frontend was detached.
    pub(super) reported: Option<Exit>,
    pub(super) quiet: bool,
    /// Whether another machine waits for the line that says that the GPUs are claimed.
    pub(super) announce: bool,
    pub(super) queue: QueueStatus,
    pub(super) launcher: &'a LinuxLauncher,
    pub(super) origin: Origin,
    pub(super) on_death: OnDeath,
    /// The share of memory on each device; `None` for whole devices.
    pub(super) share: Option<Bytes>,
    /// The whole job is being ended, including the command itself.
    pub(super) is_over: bool,
    /// The signal that requested the end before the command started.
    pub(super) end_signal: Option<i32>,
    pub(super) waiting_printed: bool,
}

impl Watch<'_> {
    pub(super) fn see(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Waiting(waiting) => {
                self.queue.show(waiting);
                return self.go_on();
            }
            Event::Granted(grant) => {
                self.queue.clear();
                self.granted(grant);
                return self.go_on();
            }
            Event::Bounded(advice) => {
                self.print(&bounded(advice, self.share.unwrap_or_default()));
                return self.go_on();
            }
            Event::HandedOff(HandOff::TimedOut) => {
                self.print("the job is not using its GPUs yet; safe-gpu may consider them free")
            }
            Event::HandedOff(HandOff::Seen | HandOff::Wanted | HandOff::Covered) => {}
            Event::NotCovered(error) => {
                let fault = error.fault();
                self.print(&format!("warning: no placeholder for the job: failed to {fault}"));
            }
            Event::Contended(others) => {
                let who = match others.first() {
                    Some(pid) if pid.0 > 0 => format!("process {pid}"),
                    _ => "another process".to_owned(),
                };
                self.print(&format!(
                    "the job waits for safe-gpu's lock, and so does {who}, which might take the \
                        job's GPUs; holding the lock until only the job waits"
                ));
            }
            Event::Unseen(error) => {
                let fault = error.fault();
                self.print(&format!(
                    "warning: the lease may be invisible to others: failed to {fault}"
                ));
            }
            Event::NotPassed(_, error) => {
                self.print(&format!("could not forward the signal: failed to {}", error.fault()));
            }
            Event::LimitReached => {
                self.is_over = true;
                self.print("time limit reached; ending the job");
            }
            Event::Abandoned if self.on_death == OnDeath::End => {
                self.is_over = true;
                self.print("frontend was killed; ending the job");
            }
            Event::Abandoned => {}
            Event::CleaningUp(event) => self.cleaning_up(&event),
            Event::WaitingForMemory(waited) if waited >= Duration::from_secs(1) => {
                if !std::mem::replace(&mut self.waiting_printed, true) {
                    self.print("waiting for GPU memory to be freed …");
                }
            }
            Event::WaitingForMemory(_) => {}
            Event::Keeping(ran) => return self.keep(ran),
        }
        ControlFlow::Continue(())
    }

    /// Before the command runs, a request to end only cancels the claim.
    fn go_on(&mut self) -> ControlFlow<()> {
        let abandoned =
            self.on_death == OnDeath::End && self.launcher.is_abandoned().unwrap_or(false);
        self.end_signal = self.end_signal.or_else(|| self.launcher.asked());
        if self.end_signal.is_some() || abandoned {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    pub(super) fn stopped(&mut self) -> Exit {
        self.queue.clear();
        self.print("interrupted; nothing was claimed");
        let signal = JobExit::Signal(self.end_signal.unwrap_or(signal_hook::consts::SIGTERM));
        Exit::Passed(u8::try_from(end_as(signal)).unwrap_or(u8::MAX))
    }

    fn granted(&self, grant: &Grant) {
        self.print(&request::granted(grant));
        for (device, bar) in &grant.accepted {
            let bar = request::barred(bar);
            self.print(&format!("warning: GPU {}: {bar}", device.index));
        }
        if let Some(Err(error)) = &grant.held_back {
            let fault = error.fault();
            self.print(&format!(
                "warning: safe-gpu users will not see the lease: failed to {fault}"
            ));
        }
        if self.announce {
            crate::terminal::report(gpu_fleet::STARTED);
        }
    }

    fn cleaning_up(&self, event: &gpu_reaper::Event<'_>) {
        if let gpu_reaper::Event::Signalled(target, signal) = event {
            let who = wording::process(target.key.pid, &target.process.name);
            let why = if self.is_over { "" } else { " (left behind)" };
            self.print(&format!("{signal} to {who}{why}"));
        }
    }

    /// Prints a line on standard error. An error here must not fail the run.
    pub(super) fn print(&self, text: &str) {
        if !self.quiet {
            let line = Line::new().plain("gpuws: ").plain(text);
            crate::terminal::report(line.text());
        }
    }
}
