//! The exit codes, as documented in `docs/exit-codes.md`.

use gpu_core::{Absent, DeviceFault, ErrorKind, MachineFault, ProcessFault};
use std::io;
use std::process::ExitCode;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// A partial result: `doctor` has findings, `reap` did not free all memory, or processes block
    /// `reset`.
    Remains,
    /// A usage error or invalid input.
    Usage,
    /// The machine or a file cannot be read.
    CannotObserve,
    /// The caller lacks the permission.
    NotPermitted,
    /// No answer within the time limit.
    Deadline,
    /// The answer is an estimate: part of the input is not understood.
    Estimate,
    /// The output cannot be written.
    NotWritten,
    /// A temporary failure: the same command may succeed later.
    TryLater,
    /// The command was ended at its time limit.
    LimitHit,
    /// gpuws itself failed while it ran another command.
    Own,
    /// The command to run is not executable.
    CommandNotRun,
    /// The command to run does not exist.
    CommandNotFound,
    /// The exit code of the command that was run.
    Passed(u8),
}

impl Exit {
    /// All exit codes of gpuws itself in ascending order, with their meanings for help texts.
    pub const ALL: [(Exit, &str); 13] = [
        (Exit::Done, "done"),
        (Exit::Remains, "doctor: findings; reap: not all memory freed; reset: blocked"),
        (Exit::Usage, "usage error or invalid input"),
        (Exit::CannotObserve, "cannot observe"),
        (Exit::NotPermitted, "not permitted"),
        (Exit::Deadline, "no answer in time"),
        (Exit::Estimate, "place model: the verdict is an estimate"),
        (Exit::NotWritten, "cannot write to standard output"),
        (Exit::TryLater, "try later"),
        (Exit::LimitHit, "run: time limit reached"),
        (Exit::Own, "run, sim: gpuws itself failed"),
        (Exit::CommandNotRun, "run, sim: command not executable"),
        (Exit::CommandNotFound, "run, sim: command not found"),
    ];

    /// Returns the outcome for a failure of this kind. `is_denied` is true if the operating system
    /// denied access to a file.
    pub fn of(kind: ErrorKind, is_denied: bool) -> Self {
        match kind {
            ErrorKind::Machine(MachineFault::NotPermitted | MachineFault::Blocked)
            | ErrorKind::Process(ProcessFault::NotPermitted)
            | ErrorKind::Field(Absent::NotPermitted) => Exit::NotPermitted,
            ErrorKind::Io if is_denied => Exit::NotPermitted,
            ErrorKind::Invalid => Exit::Usage,
            ErrorKind::TimedOut => Exit::Deadline,
            ErrorKind::Again | ErrorKind::Device(DeviceFault::InUse) => Exit::TryLater,
            _ => Exit::CannotObserve,
        }
    }

    /// Returns how the parser of the command line ends: after a usage error, even if its text could
    /// not be written, or after printing help or the version. A closed pipe is not a failure.
    pub fn of_parser(is_usage_error: bool, printed: io::Result<()>) -> Self {
        match printed {
            _ if is_usage_error => Exit::Usage,
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::NotWritten,
            _ => Exit::Done,
        }
    }

    /// Returns the exit code.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Remains => 1,
            Exit::Usage => 2,
            Exit::CannotObserve => 3,
            Exit::NotPermitted => 4,
            Exit::Deadline => 5,
            Exit::Estimate => 6,
            Exit::NotWritten => 74,
            Exit::TryLater => 75,
            Exit::LimitHit => 124,
            Exit::Own => 125,
            Exit::CommandNotRun => 126,
            Exit::CommandNotFound => 127,
            Exit::Passed(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_exit_codes_match_enum() {
        let document = include_str!("../../../docs/exit-codes.md");
        let documented: Vec<u8> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(documented, Exit::ALL.map(|(exit, _)| exit.code()));
    }

    #[test]
    fn closed_pipe_changes_no_exit_code_of_the_parser() {
        let end = |is_usage_error, kind: Option<io::ErrorKind>| {
            Exit::of_parser(is_usage_error, kind.map_or(Ok(()), |kind| Err(kind.into())))
        };
        let (closed, full) = (Some(io::ErrorKind::BrokenPipe), Some(io::ErrorKind::StorageFull));
        assert_eq!([None, closed].map(|kind| end(false, kind)), [Exit::Done; 2]);
        assert_eq!(end(false, full), Exit::NotWritten);
        assert_eq!([None, closed, full].map(|kind| end(true, kind)), [Exit::Usage; 3]);
    }

    #[test]
    fn error_kinds_map_to_exit_codes() {
        for (kind, exit) in [
            (MachineFault::NoLibrary.into(), Exit::CannotObserve),
            (MachineFault::Blocked.into(), Exit::NotPermitted),
            (ProcessFault::NotPermitted.into(), Exit::NotPermitted),
            (DeviceFault::InUse.into(), Exit::TryLater),
            (ErrorKind::TimedOut, Exit::Deadline),
            (ErrorKind::Invalid, Exit::Usage),
            (ErrorKind::Io, Exit::CannotObserve),
            (ErrorKind::Again, Exit::TryLater),
            (MachineFault::NotPermitted.into(), Exit::NotPermitted),
            (Absent::NotPermitted.into(), Exit::NotPermitted),
            (DeviceFault::Lost.into(), Exit::CannotObserve),
        ] {
            assert_eq!(Exit::of(kind, false), exit, "{kind:?}");
            let denied = if kind == ErrorKind::Io { Exit::NotPermitted } else { exit };
            assert_eq!(Exit::of(kind, true), denied, "{kind:?}");
        }
        assert_eq!(ExitCode::from(Exit::Passed(7)), ExitCode::from(7));
    }

    #[test]
    fn every_exit_code_has_a_meaning_of_its_own() {
        let mut meanings = Exit::ALL.map(|(_, meaning)| meaning).to_vec();
        meanings.sort_unstable();
        meanings.dedup();
        assert_eq!(meanings.len(), Exit::ALL.len());
        assert!(meanings.iter().all(|meaning| meaning.contains(' ') || *meaning == "done"));
    }
}
