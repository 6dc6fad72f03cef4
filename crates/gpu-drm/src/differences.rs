//! Values that are differences of two readings: Intel's drivers count energy and idle time.

use crate::{Card, Sensors, Tree, gts, sensors};
use gpu_core::{Absent, DeviceSample, Milliwatts, PciBusId, Percent, Reading, plausible};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The shortest time between two readings that are compared. The idle time is in milliseconds.
const LEAST: Duration = Duration::from_millis(200);

/// The counters of the cards when they were last compared.
#[derive(Default)]
pub(crate) struct Differences(Mutex<BTreeMap<PciBusId, Counters>>);

#[derive(Clone, Copy)]
struct Counters {
    /// When they were read, on the monotonic clock.
    at: Duration,
    /// The channel of the sensor, and its microjoules.
    energy: Reading<(u8, u64)>,
    /// Milliseconds of the first GT, which renders and computes.
    idle: Reading<u64>,
}

impl Differences {
    /// Adds the power draw and the utilization to a sample that lacks them, from the second sample
    /// on. Two samples within 200 ms count as one.
    pub(crate) fn complete(
        &self,
        tree: &dyn Tree,
        card: &Card,
        sample: DeviceSample,
    ) -> DeviceSample {
        let lacks = |absent| absent == Some(Absent::NotSupported);
        if !lacks(sample.power_draw.err()) && !lacks(sample.utilization.err()) {
            return sample;
        }
        let now = Counters::read(tree, card);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *last.entry(card.bus).or_insert(now);
        if now.at.saturating_sub(before.at) < LEAST {
            return sample;
        }
        last.insert(card.bus, now);
        DeviceSample {
            power_draw: sample.power_draw.or_else(|_| now.power_since(before)),
            utilization: sample.utilization.or_else(|_| now.busy_since(before)),
            ..sample
        }
    }
}

impl Counters {
    fn read(tree: &dyn Tree, card: &Card) -> Self {
        let energy = sensors(tree, card).and_then(|sensors| Sensors::energy(&sensors));
        let idle = gts(tree, card).and_then(|gts| gts.first().ok_or(Absent::NotSupported)?.idle_ms);
        Counters {
            at: tree.now(),
            energy: energy.map(|energy| (energy.channel, energy.microjoules)),
            idle,
        }
    }

    fn power_since(self, before: Counters) -> Reading<Milliwatts> {
        let ((channel, now), (earlier, start)) = (self.energy?, before.energy?);
        let grown =
            now.checked_sub(start).filter(|_| channel == earlier).ok_or(Absent::NotRecorded)?;
        let passed = (self.at - before.at).as_millis() as u64;
        plausible::milliwatts(grown / passed)
    }

    /// A GT that does not sleep may still have nothing to do, so this is an upper bound.
    fn busy_since(self, before: Counters) -> Reading<Percent> {
        let idle = self.idle?.checked_sub(before.idle?).ok_or(Absent::NotRecorded)?;
        let passed = (self.at - before.at).as_millis() as u64;
        plausible::percent(100 - (idle.min(passed) * 100).div_ceil(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_and_load_are_differences_by_time() {
        let read = |ms, energy, idle| Counters {
            at: Duration::from_millis(ms),
            energy: Ok((2, energy)),
            idle: Ok(idle),
        };
        let before = read(1_000, 5_000_000, 300);
        let now = read(3_000, 45_000_000, 1_800);
        assert_eq!(now.power_since(before), Ok(Milliwatts(20_000)));
        assert_eq!(now.busy_since(before), Ok(Percent::new(25).unwrap()));
        // A counter that starts again, another sensor, and a GT that slept longer than the time.
        assert_eq!(before.power_since(read(0, 6_000_000, 0)), Err(Absent::NotRecorded));
        let other = Counters { energy: Ok((1, 0)), ..before };
        assert_eq!(now.power_since(other), Err(Absent::NotRecorded));
        assert_eq!(read(3_000, 0, 9_000).busy_since(before), Ok(Percent::new(0).unwrap()));
    }
}
