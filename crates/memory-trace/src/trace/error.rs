//! Why a recording could not be read: where, what was wrong, and what to do about it.

use gpu_core::{Bytes, amount};
use std::fmt;

/// Why a recording could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the recording{place}: {problem}")]
pub struct TraceError {
    place: Place,
    problem: Problem,
}

/// Where in a file something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A byte, counted from 0.
    Byte(u64),
    /// A line, counted from 1.
    Line(u64),
    /// An entry of the data, as Python would name it: `device_traces[0][17]`.
    Entry(String),
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Its content is of none of the formats.
    UnknownFormat,
    /// It ends in the middle.
    Truncated {
        /// What the end of the file cuts, and how much of it is missing.
        what: String,
    },
    /// A pickle asks for code: something to import, to build or to call.
    Code {
        /// The opcode that asks.
        opcode: &'static str,
        /// What it wants, escaped and shortened; empty where the opcode does not name it.
        wanted: String,
    },
    /// It says something that no recording says.
    Malformed {
        /// What it says.
        what: String,
    },
    /// It is larger, or expands to more, than it may.
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: u64,
    },
    /// Reading it takes more memory than it may.
    Memory {
        /// What needs more: an opcode, or an entry of the data.
        what: String,
        /// How many bytes reading may take.
        limit: u64,
    },
}

impl TraceError {
    pub(crate) fn new(place: Place, problem: Problem) -> Self {
        TraceError { place, problem }
    }

    pub(crate) fn malformed(place: Place, what: impl Into<String>) -> Self {
        TraceError::new(place, Problem::Malformed { what: what.into() })
    }

    /// Returns where something is wrong.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns what is wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns what to do about it.
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Byte(offset) => write!(f, " at byte {offset}"),
            Place::Line(line) => write!(f, " at line {line}"),
            Place::Entry(entry) => write!(f, " at {entry}"),
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

/// Returns text of a file as an error shows it: escaped, and not longer than a line.
pub(crate) fn shown(text: &[u8]) -> String {
    const LONGEST: usize = 80;
    let cut = &text[..text.len().min(LONGEST)];
    let mut shown: String = String::from_utf8_lossy(cut).escape_debug().collect();
    if text.len() > LONGEST {
        shown.push('…');
    }
    shown
}
