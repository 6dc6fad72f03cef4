//! Execution of a plan, with progress.

use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::{Line, Screen, clean};
use crate::wording;
use gpu_core::{ActToken, ProcessState};
use gpu_reaper::{Event, Guard, Outcome, Plan, Report, Role, Target};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Executes a plan and reports each step on `screen`.
pub(crate) fn carry_out(
    source: &Source,
    plan: &Plan,
    guard: &Guard,
    screen: Option<&mut Screen>,
) -> Result<Report, Failure> {
    if plan.targets.is_empty() {
        return Ok(Report::nothing());
    }
    let journal = source.journal()?;
    let token = ActToken::user_confirmed();
    // From here on, Ctrl-C stops after the current step, so that the report is complete.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::io("watch for Ctrl-C", error))?;
    }
    let mut progress = Progress { screen, interrupted, waiting_printed: false, failure: None };
    let report = gpu_reaper::execute(plan, guard, source.ports(&*journal), &token, &mut |event| {
        progress.show(event)
    });
    let Some(failure) = progress.failure else { return Ok(report) };
    // Standard output failed, so the result goes to standard error.
    for action in &report.actions {
        let _ = writeln!(
            std::io::stderr(),
            "gpuws: {} {}: {:?}",
            action.pid,
            clean(&action.name),
            action.outcome
        );
    }
    Err(failure)
}

/// Prints progress. A failed output does not stop the execution.
struct Progress<'a> {
    screen: Option<&'a mut Screen>,
    interrupted: Arc<AtomicBool>,
    waiting_printed: bool,
    failure: Option<Failure>,
}

impl Progress<'_> {
    /// Prints an event and returns whether to continue: not after Ctrl-C.
    fn show(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self.print(event);
        match self.interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn print(&mut self, event: Event<'_>) {
        let process = |target: &Target| wording::process(target.key.pid, &target.process.name);
        let line = match event {
            Event::Signalled(target, signal) => {
                self.waiting_printed = false;
                Line::new().accent(signal.to_string()).plain(format!("  {}", process(target)))
            }
            Event::Settled(target, outcome) => Line::new()
                .plain("         ")
                .plain(format!("{} ", process(target)))
                .line(became(outcome)),
            Event::StillThere(target, after) => Line::new()
                .plain(format!("         {} ", process(target)))
                .accent(format!("still running after {:.1} s", after.as_secs_f64())),
            Event::WaitingForEnd(left, waited) if self.is_late(waited) => {
                let left = wording::count(left, "process", "processes");
                Line::new().dim(format!("         … waiting for {left} to end"))
            }
            Event::WaitingForMemory(waited) if self.is_late(waited) => {
                Line::new().dim("         … waiting for memory to be freed")
            }
            Event::WaitingForEnd(..) | Event::WaitingForMemory(_) => return,
        };
        if let Some(screen) = &mut self.screen
            && let Err(failure) = screen.print(&line)
        {
            self.failure.get_or_insert(failure);
        }
    }

    /// Returns `true` once for a wait of more than a second.
    fn is_late(&mut self, waited: Duration) -> bool {
        waited >= Duration::from_secs(1) && !std::mem::replace(&mut self.waiting_printed, true)
    }
}

fn became(outcome: &Outcome) -> Line {
    let line = Line::new();
    match outcome {
        Outcome::NotReached => line.accent("was not reached"),
        Outcome::Unsettled => line.accent("did not finish exiting while watched"),
        Outcome::AlreadyGone => line.plain("had already exited"),
        Outcome::Ended { after_ms } => {
            line.plain(format!("exited after {:.1} s", *after_ms as f64 / 1000.0))
        }
        Outcome::LetGo => line.plain("released the device itself; no further signal sent"),
        Outcome::NotTheSame => {
            line.accent("is a different process now (PID reused); no signal sent")
        }
        Outcome::AnotherProgram => {
            line.accent("executes another program now; no further signal sent")
        }
        Outcome::RoleForbids { role: Role::Monitor } => {
            line.plain("no longer uses device memory; no further signal sent")
        }
        Outcome::RoleForbids { role: Role::Display } => {
            line.accent("is a display server; no further signal sent")
        }
        Outcome::RoleForbids { .. } => {
            line.accent("is a system daemon for the GPU; no further signal sent")
        }
        Outcome::LoginSession => line.accent("belongs to a login session; no further signal sent"),
        Outcome::Protected => line.accent("is protected; no signal sent"),
        Outcome::Spared => line.plain("spared because its target was spared"),
        Outcome::Survived { state: Ok(ProcessState::Uninterruptible) } => line
            .accent("survived SIGKILL: state D (uninterruptible sleep); exits when the wait ends"),
        Outcome::Survived { .. } => line.accent("survived SIGKILL"),
        Outcome::Failed { why } => line.accent(format!("could not be ended: {why}")),
    }
}
