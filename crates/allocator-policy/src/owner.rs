//! Numbers that tell the policies of a process apart.

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a number that no other policy of this process has, so that an
/// [`Allocation`](crate::Allocation) of one is refused by every other.
pub(crate) fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
