//! The port to the audit log.

use crate::error::{Error, Result};

/// Keeps lines permanently: the audit log of actions.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Journal: Send + Sync {
    /// Appends one line, without its line end; on return it survives a crash of the caller.
    ///
    /// # Errors
    /// `Io` when it cannot be written. The caller must then not act.
    fn append(&self, line: &str) -> Result<()>;
}

/// An audit log that accepts no line: it cannot be opened, or must not be written to.
#[derive(Clone, Debug)]
pub struct NoJournal(Error);

impl NoJournal {
    /// Returns one that fails with this error.
    pub fn new(why: Error) -> Self {
        NoJournal(why)
    }
}

impl Journal for NoJournal {
    fn append(&self, _: &str) -> Result<()> {
        Err(self.0.clone())
    }
}
