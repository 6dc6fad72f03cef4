//! Numbers that identify the policies of a process.

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a number that is unique among the policies of this process, so that every other policy
/// refuses an [`Allocation`](crate::Allocation) of this one.
pub(crate) fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
