//! Arguments of several commands that show devices, some with the option names of other tools.

use super::time;
use clap::Args;
use gpu_core::Selector;
use std::time::Duration;

// The devices that are shown; all without a selector.
#[derive(Debug, Default, Args)]
pub(crate) struct Only {
    /// Only these GPUs, by index (0,2-3), UUID or PCI bus ID, or all.
    #[arg(
        short = 'i',
        long = "gpu",
        visible_alias = "id",
        value_name = "GPU,…",
        value_delimiter = ','
    )]
    pub(crate) devices: Vec<Selector>,
}

// The fields of a CSV row, by their names in nvidia-smi.
#[derive(Debug, Default, Args)]
pub(crate) struct Fields {
    /// Fields per GPU; `gpuws query --help-query-gpu` lists them.
    #[arg(long, value_name = "FIELD,…", requires = "format")]
    pub(crate) query_gpu: Option<String>,
    /// Fields per compute process.
    #[arg(long, value_name = "FIELD,…", requires = "format", conflicts_with = "query_gpu")]
    pub(crate) query_compute_apps: Option<String>,
}

// Whether and how often a view is repeated.
#[derive(Debug, Default, Args)]
pub(crate) struct Repeat {
    /// Repeat after this time until Ctrl-C.
    #[arg(short = 'l', long = "loop", value_name = "TIME", num_args = 0..=1,
          default_missing_value = "5s", value_parser = time)]
    every: Option<Duration>,
    /// Repeat interval in milliseconds; also -lms.
    #[arg(long = "loop-ms", value_name = "MS", conflicts_with = "every",
          value_parser = clap::value_parser!(u32).range(1..))]
    millis: Option<u32>,
}

impl Repeat {
    /// Returns whether the view is shown only once.
    pub(crate) fn is_once(&self) -> bool {
        self.pause().is_none()
    }

    /// Returns the time between two views; `None` for a single one.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.every.or(self.millis.map(|millis| Duration::from_millis(millis.into())))
    }
}
