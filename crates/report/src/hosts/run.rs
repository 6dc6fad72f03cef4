//! The messages of `gpuws run --host`.

use crate::Exit;
use gpu_core::clean;
use gpu_fleet::{HostName, Outcome, Progress};

/// Returns the progress lines for this many hosts.
pub fn progress(progress: &Progress<'_>, hosts: usize) -> Vec<String> {
    let from = |host: &HostName, line: &str| {
        let line = clean(line.strip_prefix("gpuws: ").unwrap_or(line));
        format!("{host}: {line}")
    };
    match progress {
        Progress::NoAnswer(host, why) => {
            let remedy = why.remedy().map(|remedy| from(host, &format!("hint: {remedy}")));
            std::iter::once(from(host, &format!("no answer: {why}"))).chain(remedy).collect()
        }
        Progress::Waiting if hosts == 1 => vec!["waiting for free GPUs on the host …".to_owned()],
        Progress::Waiting => vec![format!("waiting for free GPUs on one of {hosts} hosts …")],
        Progress::Started(host, messages) => {
            let lines = messages.lines().map(|line| from(host, line));
            lines.chain([format!("running on {host}")]).collect()
        }
        Progress::Ending(host) => {
            vec![format!("ending the job on {host}; interrupt again to leave the rest to {host}")]
        }
    }
}

/// A job that did not run: the failed action, as a fragment that completes 'failed to', the reason,
/// and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// The failed action.
    pub what: String,
    /// The reason, if a host gave one.
    pub why: Option<String>,
    /// The hint of the host.
    pub hint: Option<String>,
    /// The exit code.
    pub exit: Exit,
}

/// Returns why no job ran; `None` if one did, or if a signal came first.
pub fn not_run(outcome: &Outcome) -> Option<NotRun> {
    let mut hint = None;
    let (exit, what, why) = match outcome {
        Outcome::Ended(_) | Outcome::Interrupted(_) => return None,
        Outcome::NotStarted(host, code, message) => {
            let exits = [Exit::Usage, Exit::CommandNotRun, Exit::CommandNotFound];
            let same = exits.into_iter().find(|exit| i32::from(exit.code()) == *code);
            let why = match message.error.strip_prefix("gpuws: ").unwrap_or(&message.error) {
                "" => format!("ssh exited with {code}"),
                why => why.to_owned(),
            };
            hint.clone_from(&message.hint);
            (same.unwrap_or(Exit::Own), format!("run the command on {host}"), Some(why))
        }
        Outcome::NotNow => (Exit::TryLater, "find a host that has the GPUs free".to_owned(), None),
        Outcome::Never => {
            (Exit::Usage, "find a host that can ever grant this claim".to_owned(), None)
        }
        Outcome::NoHost => (Exit::Own, "get an answer from a host".to_owned(), None),
    };
    Some(NotRun { what, why, hint, exit })
}
