//! Arguments of `gpuws doctor`.

use crate::args::{HistoryArgs, HostArgs, time};
use clap::Args;
use gpu_core::Selector;
use gpu_reaper::{Confidence, Ignored};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Only these GPUs, by index (0,2-3), UUID or PCI bus ID, or all; repeatable.
    #[arg(short = 'i', long, visible_alias = "id", value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Diagnose another machine from nvidia-smi and fuser output on standard input.
    #[arg(long, conflicts_with_all = ["sim", "replay"])]
    pub(crate) paste: bool,
    /// Report only findings of this confidence or higher: possible, likely or high.
    #[arg(long, value_name = "LEVEL", default_value = "possible")]
    pub(crate) min_confidence: Confidence,
    /// Do not report findings of this kind, such as hoarder (idle holder), or nvlink-down:3 for GPU 3 only.
    #[arg(long, value_name = "KIND[:GPU],…", value_delimiter = ',')]
    pub(crate) ignore: Vec<Ignored>,
    #[command(flatten)]
    pub(crate) sampling: Sampling,
    #[command(flatten)]
    pub(crate) replay: HistoryArgs,
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

// The number of samples and the time between them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Sampling {
    /// Number of samples; several distinguish an idle process from a pausing one (default: 1; with
    /// --replay, 13 and always the day before).
    #[arg(long = "samples", alias = "looks", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: Option<u16>,
    /// Time between samples.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) every: Duration,
}
