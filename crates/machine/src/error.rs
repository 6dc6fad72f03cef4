//! Why a machine cannot be opened or used.

use gpu_core::{Error, ErrorKind};
use gpu_sim::live::LiveError;
use std::fmt;

/// What a failure keeps the caller from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The kind of the failure says it all.
    Failed,
    /// Nobody can be ended: there is no audit log that can be trusted.
    NoAuditLog,
    /// No program keeps what was claimed.
    NotKept,
}

/// A failure to open or use a machine: what failed, and what can be done about it.
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

    /// Returns what it keeps the caller from.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns what to do about it; `None` where its kind says that.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns what failed.
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
