//! The end of a run: the summary, and the release of the frontend.

use super::report::exit;
use super::watch::Watch;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::source::roots;
use crate::terminal::one_line;
use crate::wording;
use gpu_core::JobExit;
use gpu_host::supervise::{dismiss, end_as};
use gpu_report::json;
use gpu_report::wording::claims::gpus;
use gpu_report::wording::run::{above, still_there, summary};
use gpu_steward::RunReport;
use std::ops::ControlFlow;

impl Watch<'_> {
    /// Prints the summary and detaches from the frontend: from here on, this process only keeps the
    /// lease, and no process waits for it.
    pub(super) fn keep(&mut self, ran: Result<&RunReport, &gpu_core::Error>) -> ControlFlow<()> {
        let ending = match ran {
            Ok(report) => {
                self.print_end(report);
                ending(report)
            }
            Err(error) => {
                let failure = Failure::from(error.clone()).ending(Exit::Own);
                crate::terminal::report(failure);
                JobExit::Code(Exit::Own.code().into())
            }
        };
        self.reported = Some(Exit::Passed(u8::try_from(ending.code()).unwrap_or(u8::MAX)));
        match dismiss(&roots(), self.front.key, &self.front.detach_pipe, ending) {
            Ok(_) => {
                leave_the_terminal();
                ControlFlow::Continue(())
            }
            Err(error) => {
                let fault = error.fault();
                self.print(&format!(
                    "warning: the lease stays with processes that inherited it: failed to {fault}"
                ));
                ControlFlow::Break(())
            }
        }
    }

    /// Prints the summary and returns the exit code.
    pub(super) fn end(&mut self, report: &RunReport) -> Exit {
        self.print_end(report);
        Exit::Passed(u8::try_from(end_as(ending(report))).unwrap_or(u8::MAX))
    }

    fn print_end(&mut self, report: &RunReport) {
        let view = json::Run::of(report, exit(report).code(), self.share, &self.origin);
        if self.global.json {
            if let Ok(text) = one_line(&view) {
                crate::terminal::report(text);
            }
        } else {
            self.print(&summary(report, self.share));
            for above in above(report, self.share) {
                self.print(&format!("warning: {above}; the excess may belong to another job"));
            }
            for left in &report.still_there {
                self.print(&format!("note: {}", still_there(left, report)));
            }
            if report.lease_stays {
                let indexes: Vec<u32> =
                    report.devices.iter().map(|used| used.device.index).collect();
                let (gpus, own) = (gpus(&indexes), std::process::id());
                let verb = if indexes.len() == 1 { "stays" } else { "stay" };
                let who = match &report.remaining[..] {
                    [] => "that can be confirmed".to_owned(),
                    [one] => format!("{} exits", wording::process(one.key.pid, &one.name)),
                    _ => "they exit".to_owned(),
                };
                self.print(&format!(
                    "warning: {gpus} {verb} leased until {who}; release now with: kill {own}"
                ));
            }
            match &report.stopped {
                Some(fault) => self.print(&format!("warning: failed to {fault}")),
                None if report.memory_back == Ok(false) => {
                    self.print("warning: memory was not freed; for details: gpuws doctor");
                }
                None => {}
            }
            if let Some(fault) = &report.unwritten {
                self.print(&format!("warning: the audit log is incomplete: failed to {fault}"));
            }
        }
        // Scripts wait for the exit status of the command, so a failed report must not replace it.
        if let Some(lacks) = self.file.take().and_then(|file| file.write(&view)) {
            self.print(&format!("warning: {lacks}"));
        }
    }
}

/// Returns how gpuws itself ends after this run.
fn ending(report: &RunReport) -> JobExit {
    match exit(report) {
        Exit::Passed(_) => report.ending,
        exit => JobExit::Code(exit.code().into()),
    }
}

/// Closes standard input, output and error, so that their readers see the end, and leaves the
/// current directory. A failure only keeps a pipe or a mount busy.
fn leave_the_terminal() {
    let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null");
    if let Ok(nowhere) = nowhere {
        let _ = rustix::stdio::dup2_stdin(&nowhere);
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
    let _ = std::env::set_current_dir("/");
}
