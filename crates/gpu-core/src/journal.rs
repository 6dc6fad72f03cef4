//! The port to the audit log.

use crate::error::Result;

/// Keeps lines permanently: the audit log of actions.
#[cfg_attr(feature = "mock", mockall::automock)]
pub trait Journal: Send + Sync {
    /// Appends one line, without its line end; on return it survives a crash of the caller.
    ///
    /// # Errors
    /// `Io` when it cannot be written. The caller must then not act.
    fn append(&self, line: &str) -> Result<()>;
}
