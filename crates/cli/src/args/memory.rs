//! Arguments of `gpuws mem`.

use clap::{ArgAction, Args, Subcommand};
use gpu_core::Bytes;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct MemArgs {
    #[command(subcommand)]
    pub(crate) command: MemCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemCommand {
    /// Explain the messages about memory that ran out in a log: why, and what to set.
    #[command(after_help = "Example: python train.py 2>&1 | tee log; gpuws mem explain log\n\
                            Ends with 1 when there is no such message.")]
    Explain(ExplainArgs),
    /// Turn a recording of memory into lines of JSON: a snapshot of PyTorch, a log of RMM, a dump
    /// of TensorFlow's allocator.
    #[command(after_help = "Example: gpuws mem convert snapshot.pickle -o job.jsonl\n\
                            The format is described in docs/memory-trace.md.")]
    Convert(ConvertArgs),
    /// Run a recorded job again: under the allocator that recorded it, decision by decision, and
    /// under others.
    #[command(
        after_help = "Example: gpuws mem replay snapshot.pickle --policy expandable --limit 40GiB\n\
                            A snapshot is what torch.cuda.memory._dump_snapshot writes."
    )]
    Replay(ReplayArgs),
    /// Find the least memory that recorded jobs need, and which of them fit on one device.
    #[command(after_help = "Example: gpuws mem fit a.pickle b.pickle --device-memory 80GiB\n\
                            gpuws run --mem takes the answer.")]
    Fit(FitArgs),
    /// Print the environment that makes an unmodified program keep a limit of a device's memory,
    /// as lines for a shell; and the lines of code to add where a framework obeys none.
    #[command(after_help = "Example: eval \"$(gpuws mem env --limit 6GiB)\"\n\
                            gpuws run --mem 6GiB does the same for one command.")]
    Env(super::EnvArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The log; `-` is standard input.
    #[arg(value_name = "LOG")]
    pub(crate) file: PathBuf,
    /// Do not look at this machine for who uses its devices now.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "sim")]
    pub(crate) no_live: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The recording; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// The file to write, which must not exist; standard output when none is named.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording; `-` is standard input.
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// The most that the allocator may take of the device (40GiB, 500MiB).
    #[arg(long, value_name = "SIZE", value_parser = super::claims::size)]
    pub(crate) limit: Option<Bytes>,
    /// All memory of the device for this job alone (80GiB): what gpuws status shows as total, less
    /// what others use there; as much as it takes where nothing is said.
    #[arg(long, value_name = "SIZE", value_parser = super::claims::size)]
    pub(crate) device_memory: Option<Bytes>,
    /// Only this device, by the number that the program gave it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) device: Option<u32>,
    /// Draw memory over time and the segments at the peak into a new file, by its ending: .svg is a
    /// picture of the first allocator, .html a page with all of them.
    #[arg(long, value_name = "OUT")]
    pub(crate) timeline: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// The recordings, one job each.
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// All memory of the device on which they should fit (80GiB): what gpuws status shows as
    /// total, less what others use there.
    #[arg(long, value_name = "SIZE", value_parser = super::claims::size)]
    pub(crate) device_memory: Option<Bytes>,
    /// What each process takes beside its allocator, for CUDA and its libraries; a recording does
    /// not tell it, so 512 MiB are assumed.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = super::claims::size)]
    pub(crate) context: Bytes,
}

#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// The most memory of the host that reading a recording may take beside the file; seven times
    /// the file and 16 MiB, and at most 4 GiB, where nothing is said.
    #[arg(long, value_name = "SIZE", value_parser = super::claims::size)]
    pub(crate) read_limit: Option<Bytes>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Another allocator: caching, expandable, bfc, bfc-all-at-once, stream-ordered, direct; may
    /// be said again.
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,
    /// A setting of the allocator, by its framework's name (max_split_size_mb=128); may be said
    /// again.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}
