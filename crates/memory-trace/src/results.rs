//! The results of replays, for display.

use crate::agreement::Agreement;
use crate::comparison::Trial;
use crate::job::OnDevice;
use crate::need::Need;
use crate::sparkline::Sparkline;
use gpu_core::Bytes;

/// The result of a job under one allocator.
#[derive(Debug)]
pub struct Run {
    /// The name of the allocator.
    pub title: String,
    /// The trial.
    pub trial: Trial,
    /// The held memory over time.
    pub spark: Sparkline,
    /// The settings that would have prevented a failure, with their trials.
    pub helpful_settings: Vec<(String, Trial)>,
}

/// The results of the job on one device.
#[derive(Debug)]
pub struct Replays<'a> {
    /// The job.
    pub job: OnDevice<'a>,
    /// How many decisions of the recording allocator were predicted.
    pub agreement: Option<Agreement>,
    /// The result under each allocator.
    pub runs: Vec<Run>,
}

/// The memory that a job needs on one device.
#[derive(Debug)]
pub struct Needs {
    /// The name of the recording, as given.
    pub file: String,
    /// The index of the device in the recording.
    pub device: u32,
    /// The number of recorded events.
    pub events: usize,
    /// Its peak of live memory, as requested.
    pub live: Bytes,
    /// The need under each allocator, by its title.
    pub by_policy: Vec<(String, Need, Sparkline)>,
    /// The size of the failed request with which the recording ended; it is included.
    pub refused: Option<Bytes>,
}

/// The maximum rounding error of a fraction of a device of unknown size: 1/10,000 of the largest
/// plausible one.
const ROUNDED: Bytes = Bytes(32 << 20);

impl Needs {
    /// Returns the need under the first allocator, plus the CUDA context and the rounding error of
    /// a fraction of a device with this much memory, in whole MiB.
    pub fn with_context(&self, context: Bytes, device_memory: Option<Bytes>) -> Bytes {
        let least = self.by_policy.first().map_or(self.live, |(_, need, _)| need.least);
        let rounded = device_memory.map_or(ROUNDED, |total| Bytes(total.0 / 10_000));
        Bytes::from_mib((least + context + rounded).0.div_ceil(Bytes::MIB))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Workload, need};
    use gpu_allocator_policy::PolicyConfig;

    #[test]
    fn need_is_rounded_up_with_context_and_rounding_error() {
        let choice = PolicyConfig::named("direct").expect("there is one");
        let found = need(&Workload::default(), &choice).expect("nothing is needed");
        let with = |by_policy| Needs {
            file: String::new(),
            device: 0,
            events: 0,
            live: Bytes::from_mib(5),
            by_policy,
            refused: None,
        };
        let needs = with(vec![("direct".to_owned(), found, Sparkline::default())]);
        let context = Bytes(Bytes::from_mib(100).0 + 1);
        assert_eq!(needs.with_context(context, None), Bytes::from_mib(133));
        assert_eq!(
            needs.with_context(context, Some(Bytes::from_mib(20_000))),
            Bytes::from_mib(103)
        );
        assert_eq!(with(Vec::new()).with_context(Bytes(0), Some(Bytes(0))), Bytes::from_mib(5));
    }
}
