//! Arguments of `gpuws place graph`.

use clap::Args;
use gpu_core::Bytes;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("copies").multiple(true))]
pub(crate) struct PlaceGraphArgs {
    /// The graph; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Operations and kernels, in JSON or TensorFlow's text format (OpList, KernelList);
    /// repeatable. Default: those of TensorFlow 2.21.
    #[arg(long, value_name = "FILE")]
    pub(crate) kernels: Vec<PathBuf>,
    /// The devices, as /cpu:0,/gpu:0 or full names. Default: a CPU and the GPUs of this machine.
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    pub(crate) devices: Vec<String>,
    /// Keep operations on their devices in an earlier placement: TensorFlow's log, or the output of
    /// --json.
    #[arg(long, value_name = "FILE")]
    pub(crate) placed: Option<PathBuf>,
    /// Refuse requests that cannot be satisfied, instead of placing the operation elsewhere with a
    /// warning.
    #[arg(long)]
    pub(crate) hard: bool,
    /// Place by costs and transfer times instead, and show when each operation runs.
    #[arg(long, group = "timed", conflicts_with_all = ["hard", "log"])]
    pub(crate) schedule: bool,
    /// Run the operations on CPU threads, wherever they are placed, and print values. If an
    /// operation has no kernel here, run in virtual time and print when the graph ends.
    #[arg(long, group = "timed", conflicts_with = "explain")]
    pub(crate) run: bool,
    /// The value to print: an operation, or one of its outputs (c:0); repeatable. Default: the
    /// values that no operation uses.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(crate) fetch: Vec<String>,
    /// How many operations run at the same time; default: the cores of this machine.
    #[arg(long, value_name = "N", requires = "run",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) inter_op_threads: Option<u16>,
    /// How many threads share the work of one operation; default: the cores of this machine.
    #[arg(long, value_name = "N", requires = "run",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) intra_op_threads: Option<u16>,
    /// Memory limit for all values together.
    #[arg(long, value_name = "SIZE", requires = "run", default_value = "2GiB")]
    pub(crate) memory: Bytes,
    /// Copy the graph to N devices (the first GPUs, or --contexts) as replica_0/NAME, …, which
    /// apply the mean of their gradients.
    #[arg(long, value_name = "N", group = "copies",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) replicas: Option<u16>,
    /// The devices of the replicas, in the form of MXNet ([gpu(0),gpu(1)]) or TensorFlow
    /// (/gpu:0,/gpu:1).
    #[arg(long, value_name = "LIST", group = "copies")]
    pub(crate) contexts: Option<String>,
    /// Split a batch of this many rows over the replicas, and print the rows of each.
    #[arg(long, value_name = "ROWS", requires = "copies")]
    pub(crate) batch: Option<u64>,
    /// Relative share of the batch for each replica (3,1); default: equal.
    #[arg(long, value_name = "LOAD,…", value_delimiter = ',', requires = "batch")]
    pub(crate) loads: Vec<f64>,
    /// Print only the placement log, one line for each operation, as TensorFlow does.
    #[arg(long, conflicts_with = "json")]
    pub(crate) log: bool,
    /// Show the reason for each operation.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Draw the schedule or the run to a new SVG file.
    #[arg(long, value_name = "OUT", requires = "timed")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the schedule or the run to a new file for Perfetto or chrome://tracing.
    #[arg(long, value_name = "OUT", requires = "timed")]
    pub(crate) trace: Option<PathBuf>,
}
