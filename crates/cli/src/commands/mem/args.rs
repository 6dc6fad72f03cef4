//! Arguments of `gpuws mem`.

use crate::args::KeepArgs;
use clap::{ArgAction, Args, Subcommand};
use gpu_core::{Bytes, Selector};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct MemArgs {
    #[command(subcommand)]
    pub(crate) command: MemCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemCommand {
    /// Explain out-of-memory messages in a log: the cause and what to change.
    #[command(
        after_help = "Example: python train.py 2>&1 | tee log; gpuws mem explain log\nExits \
        with 1 if there is no such message."
    )]
    Explain(ExplainArgs),
    #[cfg(feature = "memory-trace")]
    /// Convert a memory recording (PyTorch snapshot, RMM log, TensorFlow allocator dump) to JSON
    /// Lines.
    #[command(after_help = "Example: gpuws mem convert snapshot.pickle -o job.jsonl\n\
                            The format is described in docs/memory-trace.md.")]
    Convert(ConvertArgs),
    #[cfg(feature = "memory-trace")]
    /// Replay a recorded job under its own allocator, compared decision by decision, and under
    /// others.
    #[command(
        after_help = "Example: gpuws mem replay snapshot.pickle --policy expandable --limit 40GiB\n\
                            A snapshot is what torch.cuda.memory._dump_snapshot writes. Exits \
                            with 1 if the job runs out of memory."
    )]
    Replay(ReplayArgs),
    #[cfg(feature = "memory-trace")]
    /// Find the minimum memory that recorded jobs need and which of them fit on one GPU.
    #[command(after_help = "Example: gpuws mem fit a.pickle b.pickle --device-memory 80GiB\n\
                            gpuws run --mem takes the answer. Exits with 1 if a job does not \
                            fit.")]
    Fit(FitArgs),
    /// Print environment variables, as shell code, that keep an unmodified program within a memory
    /// limit, and code to add for frameworks without such variables.
    #[command(after_help = "Example: eval \"$(gpuws mem env --limit 6GiB)\"\n\
                            gpuws run --mem 6GiB does the same for one command.")]
    Env(EnvArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The log, also .gz; `-` is standard input.
    #[arg(value_name = "LOG")]
    pub(crate) file: PathBuf,
    /// Do not query this machine for current GPU users.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "sim")]
    pub(crate) no_live: bool,
}

#[cfg(feature = "memory-trace")]
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The recording; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// The file to write; must not exist. Default: standard output.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
}

#[cfg(feature = "memory-trace")]
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording; `-` is standard input.
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// Limit for the allocator (40GiB, 500MiB).
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// GPU memory available to this job (80GiB): the total in gpuws status less what others use.
    /// Default: unlimited.
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<Bytes>,
    /// Only this device, by its index in the recording.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) device: Option<u32>,
    /// Write a timeline of memory use and the segments at peak to a new file: .svg for the first
    /// allocator, .html for all.
    #[arg(long, value_name = "OUT")]
    pub(crate) timeline: Option<PathBuf>,
}

#[cfg(feature = "memory-trace")]
#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// The recordings, one job each.
    #[arg(value_name = "SNAPSHOT", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    #[command(flatten)]
    pub(crate) policies: PolicyArgs,
    /// Memory of the GPU they should fit on (80GiB): the total in gpuws status less what others
    /// use.
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<Bytes>,
    /// Memory per process for the CUDA context and libraries, which recordings do not contain.
    #[arg(long, value_name = "SIZE", default_value = "640MiB")]
    pub(crate) context: Bytes,
}

#[cfg(feature = "memory-trace")]
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// Host memory limit for reading a recording; default: 7 × file size + 16 MiB, at most 4 GiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) read_limit: Option<Bytes>,
}

#[cfg(feature = "memory-trace")]
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Also replay under this allocator: caching, expandable, bfc, bfc-all-at-once, stream-ordered
    /// or direct; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Vec<String>,
    /// Allocator setting under its framework's name (max_split_size_mb=128); repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// Memory limit per process and GPU (6GiB, 500MiB).
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Bytes,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Total memory of the GPU (80GiB), instead of querying this machine.
    #[arg(long, value_name = "SIZE", conflicts_with = "gpu")]
    pub(crate) device_memory: Option<Bytes>,
    /// GPUs visible to the program, by index (0,2-3), UUID or PCI bus ID, or all; repeatable. Default: those of
    /// CUDA_VISIBLE_DEVICES or the scheduler, or all.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Python of the program; default: that of the active environment, or the first in PATH.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) python: Option<OsString>,
}
