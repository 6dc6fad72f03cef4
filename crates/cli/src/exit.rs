//! The exit codes, as `docs/exit-codes.md` promises them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Done,
    /// Something remains: `doctor` has findings, `reap` did not bring all memory back.
    Remains,
    /// The command line or an input is not what it should be.
    Usage,
    /// The machine, or a file, cannot be looked at.
    CannotObserve,
    /// The caller may not do that.
    NotPermitted,
    /// No answer within the time allowed.
    Deadline,
    /// The same command may succeed after a while.
    TryLater,
}

impl Exit {
    /// Every way to end, in the order of the codes.
    pub(crate) const ALL: [Exit; 7] = [
        Exit::Done,
        Exit::Remains,
        Exit::Usage,
        Exit::CannotObserve,
        Exit::NotPermitted,
        Exit::Deadline,
        Exit::TryLater,
    ];

    /// Returns the code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Remains => 1,
            Exit::Usage => 2,
            Exit::CannotObserve => 3,
            Exit::NotPermitted => 4,
            Exit::Deadline => 5,
            Exit::TryLater => 75,
        }
    }

    /// Returns what the code means, in a few words for help texts.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Remains => "doctor: there are findings; reap: not all came back",
            Exit::Usage => "usage, or an input that is not what it should be",
            Exit::CannotObserve => "cannot observe",
            Exit::NotPermitted => "not permitted",
            Exit::Deadline => "no answer in time",
            Exit::TryLater => "try later",
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
    use super::Exit;

    #[test]
    fn the_document_has_a_row_for_each_code_and_no_other() {
        let document = include_str!("../../../docs/exit-codes.md");
        let documented: Vec<u8> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(documented, Exit::ALL.map(Exit::code));
    }
}
