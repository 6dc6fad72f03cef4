//! How busy the processors and the memory of a machine are.

use crate::absent::{Absent, Reading};
use crate::units::Bytes;

/// The load of a machine at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLoad {
    /// The mean number of runnable and blocked threads over 1, 5 and 15 minutes, in hundredths.
    pub averages: Reading<[u32; 3]>,
    /// The time of all processors since boot.
    pub cpu: Reading<CpuTime>,
    /// The memory that programs cannot get without swapping, and all memory.
    pub memory: Reading<(Bytes, Bytes)>,
}

/// Time of processors. The unit is that of the kernel; only shares of it are meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in which they neither idled nor waited for I/O.
    pub busy: u64,
    /// All time.
    pub total: u64,
    /// The number of processors that are online.
    pub count: u32,
}

impl HostLoad {
    /// Returns an unknown load.
    pub const fn absent(reason: Absent) -> Self {
        HostLoad { averages: Err(reason), cpu: Err(reason), memory: Err(reason) }
    }
}

impl CpuTime {
    /// Returns the busy share of the time since `earlier`, in percent; `None` if no time has passed.
    pub fn busy_since(self, earlier: Self) -> Option<u8> {
        let total = self.total.checked_sub(earlier.total)?;
        let busy = self.busy.saturating_sub(earlier.busy).min(total);
        let share = (u128::from(busy) * 100).checked_div(u128::from(total))?;
        u8::try_from(share).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_share_needs_time_to_have_passed() {
        let time = |busy, total| CpuTime { busy, total, count: 4 };
        for (earlier, later, share) in [
            (time(10, 100), time(35, 200), Some(25)),
            (time(10, 100), time(10, 100), None),
            // The kernel's counters of a processor that goes offline may decrease.
            (time(10, 100), time(9, 200), Some(0)),
            (time(10, 100), time(20, 90), None),
            (time(0, 0), time(u64::MAX, u64::MAX), Some(100)),
        ] {
            assert_eq!(later.busy_since(earlier), share, "{earlier:?} {later:?}");
        }
    }
}
