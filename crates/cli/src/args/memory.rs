//! Arguments of `gpuws mem`.

use clap::{ArgAction, Args, Subcommand};
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
    /// The file to write, which must not exist; standard output when none is named.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
}
