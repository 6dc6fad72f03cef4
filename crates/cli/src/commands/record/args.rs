//! Arguments of `gpuws record`.

use crate::args::{HAS_NO_HISTORY, time};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The file to write, which must not exist; with --for the directory of the history.
    pub(crate) path: PathBuf,
    /// Include process names, command lines and users. A history with them can be continued; one
    /// without them is written to a new directory, because each recorder numbers users anew.
    #[arg(long)]
    pub(crate) names: bool,
    /// Number of samples; several distinguish an idle process from a pausing one.
    #[arg(long = "samples", alias = "looks", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) count: u16,
    /// Write a history for --replay instead: a sample each second for this long, or until
    /// Ctrl-C.
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "count",
          hide = HAS_NO_HISTORY)]
    pub(crate) duration: Option<Duration>,
    /// Time between samples; default: 5s, with --for 1s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    every: Option<Duration>,
}

impl RecordArgs {
    pub(crate) fn every(&self) -> Duration {
        let usual = if self.duration.is_some() { 1 } else { 5 };
        self.every.unwrap_or(Duration::from_secs(usual))
    }
}
