//! The reasons why a run ends early.

use crate::graph::NodeIx;

/// Why a run ended before every node had run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError<E> {
    /// The kernel of a node returned an error; this is the first one.
    #[error("run {name}")]
    Kernel {
        /// The node.
        node: NodeIx,
        /// Its name.
        name: String,
        /// The error from the kernel.
        #[source]
        error: E,
    },
    /// The kernel of a node panicked.
    #[error("run {name}: its kernel panicked: {message}")]
    Panicked {
        /// The node.
        node: NodeIx,
        /// Its name.
        name: String,
        /// The message of the panic; empty if it was not text.
        message: String,
    },
    /// The run was canceled.
    #[error("finish a canceled run")]
    Canceled,
    /// The pool is in use, by another thread or by the calling kernel.
    #[error("run a graph on a pool that is running another")]
    Busy,
}

/// Returns the message of a panic.
pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("").to_owned()
}
