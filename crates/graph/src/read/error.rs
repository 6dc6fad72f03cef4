//! Why a file cannot be read, and where.

use super::Form;
use std::fmt;
use thiserror::Error;

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("read {}{location}: {reason}", .form.map_or("the graph", Form::name))]
pub struct ReadError {
    /// The form as which the file was read; `None` if the form is unknown.
    pub form: Option<Form>,
    /// The position at which the reader stopped.
    pub location: Location,
    /// The reason.
    pub reason: Reason,
}

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The file as a whole.
    Whole,
    /// The byte at this offset.
    Offset(u64),
    /// A position in text; both numbers count from 1, columns in bytes.
    Line {
        /// The line.
        line: u64,
        /// The column.
        column: u64,
    },
}

/// The reason for an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// A limit is exceeded.
    #[error("more than {limit} {what}")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The content violates the form.
    #[error("{0}")]
    Malformed(String),
}

/// The maximum length of text from a file in a message.
const QUOTED_CHARS: usize = 200;

impl Reason {
    /// Returns a reason; control characters are escaped, and long text is truncated.
    pub(super) fn malformed(text: impl AsRef<str>) -> Reason {
        let mut kept = String::new();
        for char in text.as_ref().chars() {
            if kept.len() >= QUOTED_CHARS {
                kept.push('…');
                break;
            }
            match char {
                _ if char.is_control() => kept.extend(char.escape_default()),
                _ => kept.push(char),
            }
        }
        Reason::Malformed(kept)
    }
}

impl Location {
    /// Returns the line and the column of an offset.
    pub(super) fn in_text(text: &[u8], offset: usize) -> Location {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
        Location::Line { line: line as u64 + 1, column: column as u64 + 1 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Whole => Ok(()),
            Location::Offset(offset) => write!(f, " at offset {offset}"),
            Location::Line { line, column } => write!(f, " at line {line}, column {column}"),
        }
    }
}
