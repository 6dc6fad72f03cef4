//! Arguments of `gpuws export`.

use super::time::time;
use clap::Args;
use gpu_core::Bytes;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const ADDRESS: &str = "expected an IP address and a port, such as 127.0.0.1:9836";

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Address to serve on. Anybody who can reach it can read the metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9836",
          value_parser = |text: &str| text.parse::<SocketAddr>().map_err(|_| ADDRESS))]
    pub(crate) listen: SocketAddr,
    /// Write the metrics once to this file, for the textfile collector of node_exporter, and end;
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "reuse"])]
    pub(crate) textfile: Option<PathBuf>,
    /// Leave out the ordinary figures, which other exporters have too: memory, utilization,
    /// temperature, power, energy.
    #[arg(long)]
    pub(crate) no_gpu_figures: bool,
    /// Also export each process that uses at least this much GPU memory.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "256MiB",
          require_equals = true)]
    pub(crate) processes: Option<Bytes>,
    /// Write the jobs on each GPU to files in this directory, for dcgm-exporter's option of the
    /// same name.
    #[arg(long, value_name = "DIR")]
    pub(crate) hpc_job_mapping_dir: Option<PathBuf>,
    /// Answer a scrape this soon after a look without another look.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) reuse: Duration,
}
