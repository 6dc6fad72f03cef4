//! The exit codes, as `docs/exit-codes.md` promises them.

use gpu_core::{Absent, DeviceFault, ErrorKind, MachineFault, ProcessFault};
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for is done.
    Done,
    /// Something remains: `doctor` has findings, `reap` did not bring all memory back, somebody is
    /// in the way of `reset`.
    Remains,
    /// The command line or an input is not what it should be.
    Usage,
    /// The machine, or a file, cannot be looked at.
    CannotObserve,
    /// The caller may not do that.
    NotPermitted,
    /// No answer within the time allowed.
    Deadline,
    /// What was to be said could not be written.
    NotWritten,
    /// The same command may succeed after a while.
    TryLater,
    /// The command was ended at its time limit.
    LimitHit,
    /// gpuws itself failed, where it runs another command.
    Own,
    /// The command to run cannot be run.
    CommandNotRun,
    /// The command to run does not exist.
    CommandNotFound,
    /// As the command that was run.
    Passed(u8),
}

impl Exit {
    /// Every way to end of gpuws itself, in the order of the codes.
    pub const ALL: [Exit; 12] = [
        Exit::Done,
        Exit::Remains,
        Exit::Usage,
        Exit::CannotObserve,
        Exit::NotPermitted,
        Exit::Deadline,
        Exit::NotWritten,
        Exit::TryLater,
        Exit::LimitHit,
        Exit::Own,
        Exit::CommandNotRun,
        Exit::CommandNotFound,
    ];

    /// Returns how a command ends for a failure of this kind; `is_denied` where the system said of
    /// a file that the caller may not.
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

    /// Returns the code.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Remains => 1,
            Exit::Usage => 2,
            Exit::CannotObserve => 3,
            Exit::NotPermitted => 4,
            Exit::Deadline => 5,
            Exit::NotWritten => 74,
            Exit::TryLater => 75,
            Exit::LimitHit => 124,
            Exit::Own => 125,
            Exit::CommandNotRun => 126,
            Exit::CommandNotFound => 127,
            Exit::Passed(code) => code,
        }
    }

    /// Returns what the code means, in a few words for help texts.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Remains => "doctor: findings; reap: not all memory freed; reset: blocked",
            Exit::Usage => "usage error or invalid input",
            Exit::CannotObserve => "cannot observe",
            Exit::NotPermitted => "not permitted",
            Exit::Deadline => "no answer in time",
            Exit::NotWritten => "cannot write to standard output",
            Exit::TryLater => "try later",
            Exit::LimitHit => "run: time limit reached",
            Exit::Own => "run, sim: gpuws itself failed",
            Exit::CommandNotRun => "run, sim: command not executable",
            Exit::CommandNotFound => "run, sim: command not found",
            Exit::Passed(_) => "run, sim: as the command",
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
        assert_eq!(documented, Exit::ALL.map(Exit::code));
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
        ] {
            assert_eq!(Exit::of(kind, false), exit, "{kind:?}");
        }
    }
}
