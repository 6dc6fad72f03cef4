//! GPU utilisation per process.
//!
//! The driver keeps one sample per recently active process, with a wall clock timestamp in
//! microseconds. The query requests all samples (`lastSeenTimeStamp` 0). The result is known to
//! contain garbage: utilisations of thousands of percent, processes that are not on the device, old
//! samples. Samples older than 10 s are ignored, and a utilisation above 100 % is implausible. A
//! process without a sample was idle.

use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::value::percent;
use gpu_core::{Absent, Percent, Pid, Reading, Result};
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;

/// The driver's samples cover 1 s to 10 s, so older ones are outdated.
const WINDOW_US: u64 = 10_000_000;

/// The utilisation of active processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shares(BTreeMap<Pid, Reading<Percent>>);

impl Shares {
    /// Returns the utilisation of a process on the device.
    pub(crate) fn of(&self, pid: Pid) -> Reading<Percent> {
        let idle = Percent::new(0).ok_or(Absent::Implausible);
        self.0.get(&pid).copied().unwrap_or(idle)
    }
}

/// Returns the utilisation of the processes on a device, or the reason for its absence.
///
/// # Errors
/// `Device` or `Machine` when the query returns such a code.
pub(crate) fn shares(device: Device<'_>, simulated: bool) -> Result<Reading<Shares>> {
    let samples = match device.process_utilization() {
        Err(failure) if failure.is(Code::NOT_FOUND) => Vec::new(),
        answer => match reading(answer)? {
            Ok(samples) => samples,
            Err(reason) => return Ok(Err(reason)),
        },
    };
    // A simulated machine has its own clock.
    let now = (!simulated).then(wall_us);
    Ok(Ok(current(&samples, now)))
}

fn wall_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000) + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}

/// Returns the newest sample of each process if it is recent: relative to `now` or, if that is
/// unknown, to the newest of all samples.
fn current(samples: &[nvmlProcessUtilizationSample_t], now: Option<u64>) -> Shares {
    let newest = samples.iter().map(|sample| sample.timeStamp).max().unwrap_or(0);
    let now = now.unwrap_or(newest);
    let is_current = |stamp: u64| stamp.abs_diff(now) <= WINDOW_US;
    let mut samples: Vec<_> = samples.iter().filter(|s| is_current(s.timeStamp)).collect();
    samples.sort_by_key(|sample| sample.timeStamp);
    let share = |sample: &nvmlProcessUtilizationSample_t| (Pid(sample.pid), percent(sample.smUtil));
    Shares(samples.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_740_996_000_000_000;

    fn sample(pid: u32, share: u32, age_s: u64) -> nvmlProcessUtilizationSample_t {
        nvmlProcessUtilizationSample_t {
            pid,
            timeStamp: NOW - age_s * 1_000_000,
            smUtil: share,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        }
    }

    fn share(value: u64) -> Reading<Percent> {
        Ok(Percent::new(value).unwrap())
    }

    #[test]
    fn newest_utilization_sample_wins() {
        let shares = current(&[sample(7, 40, 1), sample(7, 90, 3), sample(8, 5, 9)], Some(NOW));
        assert_eq!(shares.of(Pid(7)), share(40));
        assert_eq!(shares.of(Pid(8)), share(5));
    }

    #[test]
    fn process_without_current_sample_has_zero_utilization() {
        let shares = current(&[sample(7, 40, 11), sample(8, 5, 2)], Some(NOW));
        assert_eq!(shares.of(Pid(7)), share(0));
        assert_eq!(shares.of(Pid(9)), share(0));
        let garbage = nvmlProcessUtilizationSample_t { timeStamp: u64::MAX, ..sample(7, 40, 0) };
        assert_eq!(current(&[garbage], Some(NOW)).of(Pid(7)), share(0));
    }

    #[test]
    fn utilization_above_100_is_implausible() {
        let shares = current(&[sample(7, 37_100, 0), sample(8, 101, 0)], Some(NOW));
        assert_eq!(shares.of(Pid(7)), Err(Absent::Implausible));
        assert_eq!(shares.of(Pid(8)), Err(Absent::Implausible));
    }

    #[test]
    fn without_clock_newest_sample_is_current() {
        let shares = current(&[sample(7, 40, 100), sample(8, 5, 111)], None);
        assert_eq!(shares.of(Pid(7)), share(40));
        assert_eq!(shares.of(Pid(8)), share(0));
        assert_eq!(current(&[], None).of(Pid(7)), share(0));
    }
}
