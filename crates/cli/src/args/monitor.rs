//! Arguments of `gpuws dmon` and `gpuws pmon`, with the option names of nvidia-smi.

use super::time::time;
use super::views::Only;
use clap::Args;
use gpu_report::monitor::{Dmon, Pmon};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct DmonArgs {
    /// Groups of columns: p power and temperature, u utilization, c clocks, v violations (always -),
    /// m memory, e errors, t PCIe throughput.
    #[arg(short, long, value_name = "LETTERS", default_value = "puc", value_parser = Dmon::parse)]
    pub(crate) select: Dmon,
    #[command(flatten)]
    pub(crate) stream: Stream,
}

#[derive(Debug, Args)]
pub(crate) struct PmonArgs {
    /// Groups of columns: u utilization (sm only, others -), m memory.
    #[arg(short, long, value_name = "LETTERS", default_value = "u", value_parser = Pmon::parse)]
    pub(crate) select: Pmon,
    #[command(flatten)]
    pub(crate) stream: Stream,
}

// The rows of a stream.
#[derive(Debug, Args)]
pub(crate) struct Stream {
    /// Stop after so many samples; default: at Ctrl-C.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,
    /// Time between samples.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) delay: Duration,
    #[command(flatten)]
    pub(crate) only: Only,
}
