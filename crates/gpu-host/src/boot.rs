//! The time of boot, which converts the start of a process into wall clock time.

use crate::fault;
use crate::proc_dir::ProcRoot;
use gpu_core::{Absent, Reading, Timestamp};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::{Mutex, PoisonError};

/// `/proc/stat` grows with CPUs and interrupts, but not beyond this.
pub(crate) const STAT_LIMIT: usize = 4 << 20;

/// Two consecutive reads of the clocks are never further apart, unless the thread waits between
/// them.
const APART_MS: i64 = 100;

/// The time of boot, cached until the clock is set: to read it, the kernel adds up the interrupts
/// of all cores, which takes a millisecond on a machine with many.
#[derive(Default)]
pub(crate) struct Booted {
    /// The clock minus the time since boot when it was read.
    known: Mutex<Option<(i64, Timestamp)>>,
}

impl Booted {
    /// Returns the time of boot in `/proc/stat`.
    pub(crate) fn at(&self, root: &ProcRoot) -> Reading<Timestamp> {
        let offset = milliseconds(clock_gettime(ClockId::Realtime))
            - milliseconds(clock_gettime(ClockId::Boottime));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, at)) = *known
            && (before - offset).abs() < APART_MS
        {
            return Ok(at);
        }
        let at = read(root)?;
        *known = Some((offset, at));
        Ok(at)
    }
}

fn milliseconds(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

/// Reads the time of boot of the machine.
pub(crate) fn read(root: &ProcRoot) -> Reading<Timestamp> {
    let text = root.read("stat", STAT_LIMIT).map_err(fault::absent)?;
    let text = String::from_utf8_lossy(&text);
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    let seconds: u64 = seconds.ok_or(Absent::NotFound)?;
    Ok(Timestamp(seconds.saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_boot_is_read_again_only_if_the_clock_was_set() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::open(dir.path()).unwrap();
        let booted = Booted::default();
        assert_eq!(booted.at(&root), Err(Absent::NotFound));
        std::fs::write(dir.path().join("stat"), "cpu  1 2\nbtime 1700000000\n").unwrap();
        assert_eq!(booted.at(&root), Ok(Timestamp(1_700_000_000_000)));
        std::fs::write(dir.path().join("stat"), "btime 1700000060\n").unwrap();
        assert_eq!(booted.at(&root), Ok(Timestamp(1_700_000_000_000)));
        // As if the clock had been a minute behind.
        if let Some((offset, _)) = booted.known.lock().unwrap().as_mut() {
            *offset -= 60_000;
        }
        assert_eq!(booted.at(&root), Ok(Timestamp(1_700_000_060_000)));
    }
}
