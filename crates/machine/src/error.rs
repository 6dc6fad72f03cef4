//! The error of opening or using a machine.

use gpu_core::{Error, ErrorKind};
use gpu_sim::live::LiveError;
use std::fmt;

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No consequence beyond the kind of the error.
    Failed,
    /// No process can be ended, because there is no trusted audit log.
    NoAuditLog,
    /// No process keeps the claimed devices.
    NotKept,
}

/// A failure to open or use a machine, with its consequence and a hint.
#[derive(Debug)]
pub struct MachineError {
    cause: Cause,
    error: Error,
    hint: Option<String>,
}

impl MachineError {
    pub(crate) fn new(error: Error) -> Self {
        MachineError { cause: Cause::Failed, error, hint: None }
    }

    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        MachineError::new(Error::new(ErrorKind::Io, what).with_source(source))
    }

    pub(crate) fn of(self, cause: Cause) -> Self {
        MachineError { cause, ..self }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        MachineError { hint: Some(hint.into()), ..self }
    }

    /// Returns the consequence.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns what the user can do; `None` if the kind of the error implies it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the error itself.
    pub fn into_error(self) -> Error {
        self.error
    }
}

impl From<Error> for MachineError {
    fn from(error: Error) -> Self {
        MachineError::new(error)
    }
}

impl From<LiveError> for MachineError {
    fn from(error: LiveError) -> Self {
        let hint = error.hint();
        MachineError { cause: Cause::Failed, error: error.into(), hint }
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for MachineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
