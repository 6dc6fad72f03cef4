//! The recent past of devices and processes.

use crate::frame::Frame;
use crate::rows::{Device, Row, RowKey};
use gpu_core::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many samples are kept for each device: half an hour at one a second.
pub const SAMPLES: usize = 2048;

/// The quantity that a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The share of time in which a kernel ran.
    Utilization,
    /// The used share of the memory.
    Memory,
    /// The used share of the power limit.
    Power,
}

/// The last [`SAMPLES`] samples of a device, in percent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// One array per snapshot, indexed by measure; [`UNKNOWN`] where there is no value.
    samples: VecDeque<[u8; 3]>,
}

const UNKNOWN: u8 = u8::MAX;

impl History {
    /// Adds the state of the device in one snapshot, and drops the oldest sample if full.
    pub fn add(&mut self, device: &Device) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let values = [device.utilization, device.memory_percent(), device.power_percent()];
        self.samples.push_back(values.map(|value| value.map_or(UNKNOWN, |value| value.min(100))));
    }

    /// Appends later samples.
    pub(crate) fn append(&mut self, mut later: History) {
        self.samples.append(&mut later.samples);
        let surplus = self.samples.len().saturating_sub(SAMPLES);
        self.samples.drain(..surplus);
    }

    /// Adds a snapshot without data about the device.
    pub fn add_unknown(&mut self) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back([UNKNOWN; 3]);
    }

    /// Returns how many samples there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the sample of `age` snapshots ago, 0 for the last one; `None` if there is none or if
    /// the value was unknown.
    pub fn back(&self, measure: Measure, age: usize) -> Option<u8> {
        let at = self.samples.len().checked_sub(age + 1)?;
        let value = self.samples.get(at)?[measure as usize];
        (value != UNKNOWN).then_some(value)
    }
}

/// How many samples are kept of each process: 5 minutes at one a second.
pub const PROCESS_SAMPLES: usize = 300;

/// The quantity that a graph of a process shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The share of time in which its kernels ran, in percent.
    Sm,
    /// Its device memory in MiB.
    Memory,
    /// Its CPU time, in percent of one CPU.
    Cpu,
}

/// The last [`PROCESS_SAMPLES`] samples of a process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessHistory {
    samples: VecDeque<[u32; 3]>,
}

const NOT_KNOWN: u32 = u32::MAX;

impl ProcessHistory {
    /// Adds the row of the process in one snapshot, and drops the oldest sample if full.
    pub fn add(&mut self, row: &Row) {
        let memory = row.memory.map(|bytes| bytes.0 >> 20);
        let memory = memory.map(|mib| u32::try_from(mib).unwrap_or(NOT_KNOWN - 1));
        self.push([row.sm.map(u32::from), memory, row.cpu]);
    }

    /// Adds a snapshot without data about the process.
    pub fn add_unknown(&mut self) {
        self.push([None; 3]);
    }

    fn push(&mut self, values: [Option<u32>; 3]) {
        if self.samples.len() == PROCESS_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(values.map(|value| value.unwrap_or(NOT_KNOWN)));
    }

    /// Returns the sample of `age` snapshots ago, 0 for the last one; `None` if there is none or if
    /// the value was unknown.
    pub fn back(&self, shown: Use, age: usize) -> Option<u32> {
        let at = self.samples.len().checked_sub(age + 1)?;
        let value = self.samples.get(at)?[shown as usize];
        (value != NOT_KNOWN).then_some(value)
    }

    /// Returns the largest known value; `None` if none is known.
    pub fn largest(&self, shown: Use) -> Option<u32> {
        let values = self.samples.iter().map(|values| values[shown as usize]);
        values.filter(|value| *value != NOT_KNOWN).max()
    }
}

/// The recent past of all devices and processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// By index and MIG index.
    pub(crate) devices: BTreeMap<(u32, Option<u32>), History>,
    /// By process and device.
    pub(crate) processes: BTreeMap<RowKey, ProcessHistory>,
    /// When the processes of each snapshot were read, as [`Frame::read_at`].
    times: VecDeque<Duration>,
}

impl Past {
    /// Adds a snapshot, and forgets the processes that are gone.
    pub(crate) fn add(&mut self, frame: &Frame) {
        if self.times.len() == SAMPLES {
            self.times.pop_front();
        }
        self.times.push_back(frame.read_at);
        let is_known = frame.as_of.is_none();
        for device in &frame.devices {
            let history = self.devices.entry((device.index, device.mig)).or_default();
            if is_known { history.add(device) } else { history.add_unknown() }
        }
        let mut before = std::mem::take(&mut self.processes);
        for row in frame.rows.iter().filter(|row| row.process().is_some()) {
            let mut history = before.remove(&row.key).unwrap_or_default();
            if is_known {
                history.add(row)
            } else {
                history.add_unknown()
            }
            self.processes.insert(row.key, history);
        }
    }

    /// Returns the index, counted back from the newest, of the snapshot nearest to `age`. Beyond the
    /// oldest one it extrapolates with `interval`, or with the mean interval if that is zero; `None`
    /// if there is none.
    pub(crate) fn snapshot_of(&self, age: Duration, interval: Duration) -> Option<usize> {
        let known = self.times.back()?.saturating_sub(*self.times.front()?);
        let steps = u32::try_from(self.times.len() - 1).ok()?;
        let interval = match interval {
            Duration::ZERO => known.checked_div(steps)?,
            interval => interval,
        };
        let now = *self.times.back()?;
        // The nearest one.
        let is_as_old = |time: &Duration| now.saturating_sub(*time) + interval / 2 >= age;
        match self.times.partition_point(is_as_old) {
            0 => {
                let before = age.saturating_sub(known).as_nanos();
                let before = before.checked_div(interval.as_nanos())?;
                usize::try_from(before).ok()?.checked_add(self.times.len())
            }
            older => Some(self.times.len() - older),
        }
    }

    /// Prepends earlier samples: the times and the devices of earlier snapshots, oldest first.
    pub(crate) fn prepend(&mut self, snapshots: &[(Timestamp, Vec<Device>)]) {
        let times = snapshots.iter().map(|(at, _)| Duration::from_millis(at.0));
        self.times = times.chain(self.times.iter().copied()).collect();
        self.times.drain(..self.times.len().saturating_sub(SAMPLES));
        let later = std::mem::take(&mut self.devices);
        for device in snapshots.iter().flat_map(|(_, devices)| devices) {
            self.devices.entry((device.index, device.mig)).or_default().add(device);
        }
        for (key, later) in later {
            self.devices.entry(key).or_default().append(later);
        }
    }
}
