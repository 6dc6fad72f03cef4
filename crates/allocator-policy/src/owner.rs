//! Numbers that identify the policies of this process.

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a number that is unique among the policies of this process, so that every other policy
/// rejects an [`Allocation`](crate::Allocation) of this one.
pub(crate) fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
