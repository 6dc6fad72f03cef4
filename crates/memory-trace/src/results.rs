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
    /// The size of the failed request at the end of the recording, which is included.
    pub refused: Option<Bytes>,
}

/// The maximum rounding error of a fraction of a device of unknown size: 1/10,000 of the largest
/// plausible size.
const ROUNDED: Bytes = Bytes(32 << 20);

/// The PyTorch setting under which a job needs the amount that the title [`EXPANDABLE`] shows.
const EXPANDABLE_SEGMENTS: &str = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";

/// The title of PyTorch's allocator with expandable segments.
const EXPANDABLE: &str = "caching, expandable";

/// Whether a job fits on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitting {
    /// Whether it fits, if necessary with the setting.
    pub fits: bool,
    /// The setting that it requires to fit.
    pub setting: Option<&'static str>,
    /// The memory that it needs including the CUDA context, in whole MiB.
    pub mem: Bytes,
}

impl Needs {
    /// Decides whether the job fits under the first allocator, or else with expandable segments.
    /// Without a device, it fits.
    pub fn fitting(&self, context: Bytes, device_memory: Option<Bytes>) -> Fitting {
        let mem = self.with_context(context, device_memory);
        let fits = |mem: Bytes| device_memory.is_none_or(|total| mem <= total);
        let expandable = self.by_policy.iter().skip(1).find(|(title, ..)| title == EXPANDABLE);
        let expandable = expandable.map(|(_, need, _)| total(need.least, context, device_memory));
        match expandable {
            Some(less) if !fits(mem) && fits(less) => {
                Fitting { fits: true, setting: Some(EXPANDABLE_SEGMENTS), mem: less }
            }
            _ => Fitting { fits: fits(mem), setting: None, mem },
        }
    }

    /// Returns the need under the first allocator, plus the CUDA context and the rounding error of
    /// a fraction of a device with this much memory, in whole MiB.
    pub fn with_context(&self, context: Bytes, device_memory: Option<Bytes>) -> Bytes {
        let least = self.by_policy.first().map_or(self.live, |(_, need, _)| need.least);
        total(least, context, device_memory)
    }
}

fn total(least: Bytes, context: Bytes, device_memory: Option<Bytes>) -> Bytes {
    let rounded = device_memory.map_or(ROUNDED, |total| Bytes(total.0 / 10_000));
    Bytes::from_mib((least + context + rounded).0.div_ceil(Bytes::MIB))
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

    #[test]
    fn job_fits_with_expandable_segments_setting() {
        let choice = PolicyConfig::named("direct").expect("there is one");
        let found = need(&Workload::default(), &choice).expect("nothing is needed");
        let of = |(title, mib): (&str, u64)| {
            let need = crate::Need { least: Bytes::from_mib(mib), ..found.clone() };
            (title.to_owned(), need, Sparkline::default())
        };
        let needs = Needs {
            file: String::new(),
            device: 0,
            events: 0,
            live: Bytes(0),
            by_policy: [("caching (as recorded)", 900), (EXPANDABLE, 700)].map(of).into(),
            refused: None,
        };
        let fitting = |mib| {
            let found = needs.fitting(Bytes::from_mib(100), Some(Bytes::from_mib(mib)));
            (found.fits, found.setting.is_some(), found.mem.mib())
        };
        assert_eq!(fitting(1001), (true, false, 1001));
        assert_eq!(fitting(1000), (true, true, 801));
        assert_eq!(fitting(801), (true, true, 801));
        assert_eq!(fitting(800), (false, false, 1001));
        assert!(needs.fitting(Bytes(0), None).fits);
        assert_eq!(PolicyConfig::named("expandable").unwrap().title(), EXPANDABLE);
    }
}
