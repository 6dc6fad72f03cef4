//! Rates and shares from the counters of two snapshots.

use crate::frame::Frame;
use crate::more::UNKNOWN;
use gpu_core::{Absent, Bytes, CpuTime, Reading};
use std::collections::BTreeMap;
use std::time::Duration;

/// The counters of the previous snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    read_at: Duration,
    /// By the index of the device.
    traffic: BTreeMap<u32, [Reading<Bytes>; 2]>,
    cpu: Option<CpuTime>,
}

impl Counters {
    /// Fills in the rates since the previous snapshot, and keeps the counters of this one.
    pub(crate) fn fill(&mut self, frame: &mut Frame) {
        let elapsed = frame.read_at.saturating_sub(self.read_at).as_millis();
        let mut traffic = BTreeMap::new();
        for device in frame.devices.iter_mut().filter(|device| device.mig.is_none()) {
            let before = self.traffic.get(&device.index).copied().unwrap_or([Err(UNKNOWN); 2]);
            let rate = |at: usize| {
                let now = device.more.traffic[at]?;
                // A counter that starts again shows nothing.
                let passed = now.0.checked_sub(before[at]?.0).ok_or(UNKNOWN)?;
                let rate = (u128::from(passed) * 1000).checked_div(elapsed).ok_or(UNKNOWN)?;
                u64::try_from(rate).map_err(|_| Absent::Implausible)
            };
            device.more.rates = [rate(0), rate(1)];
            traffic.insert(device.index, device.more.traffic);
        }
        let cpu = frame.load.and_then(|load| load.cpu.ok());
        frame.busy = cpu.zip(self.cpu).and_then(|(now, before)| now.busy_since(before));
        *self = Counters { read_at: frame.read_at, traffic, cpu };
    }
}
