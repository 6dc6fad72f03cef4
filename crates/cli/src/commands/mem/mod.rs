//! `gpuws mem`: analyses the memory use and out-of-memory errors of jobs.

mod args;
mod convert;
mod env;
mod explain;
mod fit;
mod jobs;
mod recording;
mod replay;

pub(crate) use args::{
    ConvertArgs, EnvArgs, ExplainArgs, FitArgs, MemArgs, MemCommand, PolicyArgs, ReadingArgs,
    ReplayArgs,
};
pub(crate) use env::bounding;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;

pub(crate) fn run(args: &MemArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    match &args.command {
        MemCommand::Explain(args) => explain::run(args, global, screen),
        MemCommand::Convert(args) => convert::run(args, global, screen),
        MemCommand::Replay(args) => replay::run(args, global, screen),
        MemCommand::Fit(args) => fit::run(args, global, screen),
        MemCommand::Env(args) => env::run(args, global, screen),
    }
}
