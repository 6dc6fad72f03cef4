//! What came of replays, for whoever shows it.

use crate::agreement::Agreement;
use crate::comparison::Trial;
use crate::job::OnDevice;
use crate::need::Need;
use crate::sparkline::Sparkline;
use gpu_core::Bytes;

/// What became of a job under one allocator.
#[derive(Debug)]
pub struct Run {
    /// What the allocator is called.
    pub title: String,
    /// How the job fared.
    pub trial: Trial,
    /// What was held over time.
    pub spark: Sparkline,
    /// The settings that would have saved it, and how it fares then.
    pub helpful_settings: Vec<(String, Trial)>,
}

/// What became of the job on one device.
#[derive(Debug)]
pub struct Replays<'a> {
    /// The job.
    pub job: OnDevice<'a>,
    /// How far the decisions of the allocator that recorded it were foretold.
    pub agreement: Option<Agreement>,
    /// Under each allocator.
    pub runs: Vec<Run>,
}

/// What a job needs on one device.
#[derive(Debug)]
pub struct Needs {
    /// The recording, as it was named.
    pub file: String,
    /// The device, by its number in the recording.
    pub device: u32,
    /// How many events were recorded.
    pub events: usize,
    /// What it had live at once, as it asked for it.
    pub live: Bytes,
    /// What each allocator needs, by its title.
    pub by_policy: Vec<(String, Need, Sparkline)>,
    /// What the request asked for with which the recorded job ended; it is counted.
    pub refused: Option<Bytes>,
}

/// By how much a share of a device may be rounded down, where its size is not known: 1/10,000 of
/// the largest.
const ROUNDED: Bytes = Bytes(32 << 20);

impl Needs {
    /// Returns what it needs under the first allocator, with its CUDA context and with what a share
    /// of a device with so much memory is rounded down by, in whole MiB.
    pub fn with_context(&self, context: Bytes, device_memory: Option<Bytes>) -> Bytes {
        let least = self.by_policy.first().map_or(self.live, |(_, need, _)| need.least);
        let rounded = device_memory.map_or(ROUNDED, |total| Bytes(total.0 / 10_000));
        whole_mib(least + context + rounded)
    }
}

/// Rounds up to a MiB, as a limit of memory is given.
pub fn whole_mib(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.saturating_add(Bytes::MIB - 1) / Bytes::MIB * Bytes::MIB)
}
