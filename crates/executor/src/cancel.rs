//! Cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to end a run. All clones are one request.
///
/// Executors look at it before each node. A kernel that takes long can look at it too.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests the end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether the end was requested.
    pub fn is_canceled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
