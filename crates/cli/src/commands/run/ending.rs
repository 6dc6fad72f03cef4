//! What a run came to, told, and the front let go.

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
use std::io::Write;
use std::ops::ControlFlow;

impl Watch<'_> {
    /// Tells what the run came to, and lets the front go: from here on this process is there to
    /// keep the lease, and nobody waits for it.
    pub(super) fn keep(&mut self, ran: Result<&RunReport, &gpu_core::Error>) -> ControlFlow<()> {
        let ending = match ran {
            Ok(report) => {
                self.tell_end(report);
                ending(report)
            }
            Err(error) => {
                let failure = Failure::from(error.clone()).ending(Exit::Own);
                let _ = writeln!(std::io::stderr(), "{failure}");
                JobExit::Code(Exit::Own.code().into())
            }
        };
        self.reported = Some(Exit::Passed(u8::try_from(ending.code()).unwrap_or(u8::MAX)));
        match dismiss(&roots(), self.front.key, &self.front.dismissal, ending) {
            Ok(_) => {
                leave_the_terminal();
                ControlFlow::Continue(())
            }
            Err(error) => {
                let fault = error.fault();
                self.tell(&format!(
                    "warning: the lease stays with processes that inherited it: failed to {fault}"
                ));
                ControlFlow::Break(())
            }
        }
    }

    /// Tells the last line, and returns how to end.
    pub(super) fn end(&mut self, report: &RunReport) -> Exit {
        self.tell_end(report);
        Exit::Passed(u8::try_from(end_as(ending(report))).unwrap_or(u8::MAX))
    }

    fn tell_end(&mut self, report: &RunReport) {
        let view = json::Run::of(report, exit(report).code(), self.share, &self.origin);
        if self.global.json {
            if let Ok(text) = one_line(&view) {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        } else {
            self.tell(&summary(report, self.share));
            for above in above(report, self.share) {
                self.tell(&format!("warning: {above}; the excess may belong to another job"));
            }
            for left in &report.still_there {
                self.tell(&format!("note: {}", still_there(left, report)));
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
                self.tell(&format!(
                    "warning: {gpus} {verb} leased until {who}; release now with: kill {own}"
                ));
            }
            match &report.stopped {
                Some(fault) => self.tell(&format!("warning: failed to {fault}")),
                None if report.memory_back == Ok(false) => {
                    self.tell("warning: memory was not freed; for details: gpuws doctor");
                }
                None => {}
            }
            if let Some(fault) = &report.unwritten {
                self.tell(&format!("warning: the audit log is incomplete: failed to {fault}"));
            }
        }
        // The program's code is what a script waits for; a file is not to take its place.
        if let Some(lacks) = self.file.take().and_then(|file| file.write(&view)) {
            self.tell(&format!("warning: {lacks}"));
        }
    }
}

/// Returns how gpuws ends for a run that came to this.
fn ending(report: &RunReport) -> JobExit {
    match exit(report) {
        Exit::Passed(_) => report.ending,
        exit => JobExit::Code(exit.code().into()),
    }
}

/// Closes standard input, output and error, so that whoever reads them sees their end, and leaves
/// the current directory. What fails here keeps a pipe or a mount busy, no more.
fn leave_the_terminal() {
    let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null");
    if let Ok(nowhere) = nowhere {
        let _ = rustix::stdio::dup2_stdin(&nowhere);
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
    let _ = std::env::set_current_dir("/");
}
