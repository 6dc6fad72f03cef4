//! `gpuws mem`: analyses the memory use and out-of-memory errors of jobs.

mod args;
#[cfg(feature = "memory-trace")]
mod convert;
mod env;
mod explain;
#[cfg(feature = "memory-trace")]
mod fit;
#[cfg(feature = "memory-trace")]
mod jobs;
#[cfg(feature = "memory-trace")]
mod recording;
#[cfg(feature = "memory-trace")]
mod replay;

#[cfg(feature = "memory-trace")]
pub(crate) use args::{ConvertArgs, FitArgs, PolicyArgs, ReadingArgs, ReplayArgs};
pub(crate) use args::{EnvArgs, ExplainArgs, MemArgs, MemCommand};
pub(crate) use env::bounding;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Screen, warn};
use gpu_core::Bytes;

pub(crate) fn run(args: &MemArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    match &args.command {
        MemCommand::Explain(args) => explain::run(args, global, screen),
        #[cfg(feature = "memory-trace")]
        MemCommand::Convert(args) => convert::run(args, global, screen),
        #[cfg(feature = "memory-trace")]
        MemCommand::Replay(args) => replay::run(args, global, screen),
        #[cfg(feature = "memory-trace")]
        MemCommand::Fit(args) => fit::run(args, global, screen),
        MemCommand::Env(args) => env::run(args, global, screen),
    }
}

/// Notes a size of a device in decimal GB, which is less than a card of that name has.
fn note_decimal(size: Option<Bytes>) {
    if let Some(note) = size.and_then(gpu_report::wording::limit::decimal_note) {
        warn(&note);
    }
}
