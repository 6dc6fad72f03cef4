//! Errors when reading a recording: the place, the problem and the remedy.

use gpu_core::{Bytes, amount};
use std::fmt;

/// Why a recording could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the recording{location}: {problem}")]
pub struct TraceError {
    location: Location,
    problem: Problem,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The file as a whole.
    Whole,
    /// A byte, counted from 0.
    Byte(u64),
    /// A line, counted from 1.
    Line(u64),
    /// An entry of the data, as Python would write it: `device_traces[0][17]`.
    Entry(String),
}

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It has no known format.
    UnknownFormat,
    /// It is truncated.
    Truncated {
        /// The truncated item, and how much of it is missing.
        what: String,
    },
    /// A pickle requires code execution: an import, a construction or a call.
    Code {
        /// The opcode that requires it.
        opcode: &'static str,
        /// The code, escaped and shortened; empty if the opcode does not name it.
        wanted: String,
    },
    /// It contains something that no recording contains.
    Malformed {
        /// The content.
        what: String,
    },
    /// It exceeds the limit, or expands beyond it.
    TooMuch {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Reading it would exceed the memory limit.
    Memory {
        /// The opcode or entry that exceeds it.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
}

impl TraceError {
    pub(crate) fn new(location: Location, problem: Problem) -> Self {
        TraceError { location, problem }
    }

    pub(crate) fn malformed(location: Location, what: impl Into<String>) -> Self {
        TraceError::new(location, Problem::Malformed { what: what.into() })
    }

    /// Returns the place of the problem.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match &self.problem {
            Problem::UnknownFormat => {
                "use a torch.cuda.memory._dump_snapshot file, an RMM log, or gpuws mem convert \
                    output"
            }
            Problem::Truncated { .. } => "copy the file again or re-record the job",
            Problem::Code { .. } => {
                "a memory snapshot is plain data; do not unpickle this file with Python, it \
                    would execute code"
            }
            Problem::Malformed { .. } => "re-record the job",
            Problem::TooMuch { .. } => {
                "record fewer events (max_entries of torch.cuda.memory._record_memory_history)"
            }
            Problem::Memory { .. } => {
                "recordings do not normally need this much; if you trust the file, raise \
                    --read-limit"
            }
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Whole => Ok(()),
            Location::Byte(offset) => write!(f, " at byte {offset}"),
            Location::Line(line) => write!(f, " at line {line}"),
            Location::Entry(entry) => write!(f, " at {entry}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownFormat => f.write_str("unrecognised format"),
            Problem::Truncated { what } => write!(f, "the file is truncated: {what}"),
            Problem::Code { opcode, wanted } if wanted.is_empty() => {
                write!(f, "{opcode} would execute code, which a recording never needs")
            }
            Problem::Code { opcode, wanted } => {
                write!(f, "{opcode} imports '{wanted}', which a recording never needs")
            }
            Problem::Malformed { what } => f.write_str(what),
            Problem::TooMuch { what, limit } => write!(f, "more than {limit} {what}"),
            Problem::Memory { what, limit } => {
                let limit = amount(Bytes(*limit));
                write!(f, "{what} exceeds the memory limit of {limit} for reading")
            }
        }
    }
}

/// Returns text from a file for an error message: escaped, and at most one line long.
pub(crate) fn shown(text: &[u8]) -> String {
    const MAX_SHOWN: usize = 80;
    let cut = &text[..text.len().min(MAX_SHOWN)];
    let mut shown: String = String::from_utf8_lossy(cut).escape_debug().collect();
    if text.len() > MAX_SHOWN {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_text_and_remedy() {
        let text = |text: &str| text.to_owned();
        for (location, problem, expected, remedy) in [
            (
                Location::Whole,
                Problem::UnknownFormat,
                "read the recording: unrecognised format",
                "use a torch",
            ),
            (
                Location::Byte(7),
                Problem::Truncated { what: text("x") },
                "read the recording at byte 7: the file is truncated: x",
                "copy",
            ),
            (
                Location::Line(7),
                Problem::Code { opcode: "REDUCE", wanted: text("") },
                "at line 7: REDUCE would execute code",
                "a memory snapshot",
            ),
            (
                Location::Whole,
                Problem::Code { opcode: "GLOBAL", wanted: text("os") },
                "GLOBAL imports 'os', which",
                "a memory snapshot",
            ),
            (
                Location::Entry(text("a[0]")),
                Problem::Malformed { what: text("x") },
                "recording at a[0]: x",
                "re-record",
            ),
            (
                Location::Whole,
                Problem::TooMuch { what: "bytes", limit: 5 },
                "more than 5 bytes",
                "record fewer",
            ),
            (
                Location::Whole,
                Problem::Memory { what: text("x"), limit: 1 << 20 },
                "x exceeds the memory limit of 1 MiB",
                "recordings do not",
            ),
        ] {
            let error = TraceError::new(location, problem);
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.remedy().starts_with(remedy), "{error}: {}", error.remedy());
        }
    }

    #[test]
    fn escapes_and_truncates_file_text() {
        assert_eq!(shown(b"a\x1b"), "a\\u{1b}");
        assert_eq!(shown(&[b'a'; 80]), "a".repeat(80));
        assert_eq!(shown(&[b'a'; 81]), format!("{}…", "a".repeat(80)));
    }
}
