//! Values that are differences of two readings: Intel's drivers count energy and idle time.

use crate::{Card, Gt, Sensors, Tree, gts, sensors};
use gpu_core::{Absent, DeviceSample, PciBusId, Reading, plausible};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The shortest time between two readings: i915 and xe read their counters at most every 100 ms.
const LEAST: Duration = Duration::from_millis(200);

/// The counters of the cards when they were last read.
#[derive(Default)]
pub(crate) struct Differences(Mutex<BTreeMap<PciBusId, Counters>>);

#[derive(Clone, Copy)]
struct Counters {
    at: Duration,
    /// The channel of the sensor, and its microjoules.
    energy: Reading<(u32, u64)>,
    /// Milliseconds.
    idle: Reading<u64>,
}

impl Differences {
    /// Adds power draw and utilization to a sample that lacks both, from the second sample on.
    pub(crate) fn complete(&self, tree: &dyn Tree, card: &Card, sample: DeviceSample) -> DeviceSample {
        if sample.power_draw != Err(Absent::NotSupported) && sample.utilization != Err(Absent::NotSupported) {
            return sample;
        }
        let now = Counters::read(tree, card);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.get(&card.bus).copied();
        let Some(passed) = before.map(|before| now.at.saturating_sub(before.at)) else {
            last.insert(card.bus, now);
            return sample;
        };
        sample
    }
}
