//! The port to the audit log.

use crate::error::Result;

/// Keeps lines for ever: the audit log of what was done.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Journal: Send + Sync {
    /// Appends one line, without its line end; on return it is safe against a crash of the caller.
    ///
    /// # Errors
    /// `Io` when it cannot be written. Who meets this must not act.
    fn append(&self, line: &str) -> Result<()>;
}
