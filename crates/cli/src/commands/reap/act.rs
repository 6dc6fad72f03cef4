//! Execution of a plan, with progress.

use crate::failure::Failure;
use crate::source::Source;
use crate::terminal::{Screen, clean};
use gpu_core::ActToken;
use gpu_host::supervise::end_signals;
use gpu_reaper::{Event, Guard, Plan, Report};
use gpu_report::wording::reap::Steps;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    for signal in end_signals() {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::io("watch for Ctrl-C", error))?;
    }
    let mut progress = Progress { screen, interrupted, steps: Steps::default(), failure: None };
    let report = gpu_reaper::execute(plan, guard, source.ports(&*journal), &token, &mut |event| {
        progress.show(&event)
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
    steps: Steps,
    failure: Option<Failure>,
}

impl Progress<'_> {
    /// Prints an event and returns whether to continue: not after Ctrl-C.
    fn show(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let Some(line) = self.steps.line(event)
            && let Some(screen) = &mut self.screen
            && let Err(failure) = screen.print(&line)
        {
            self.failure.get_or_insert(failure);
        }
        match self.interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
