//! `gpuws place`: assigns the operations of a graph or the layers of a model to devices.

mod args;
mod graph;
mod model;

pub(crate) use args::{Goal, PlaceArgs, PlaceCommand, PlaceModelArgs, SplitForm};

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;

pub(crate) fn run(args: &PlaceArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    match &args.command {
        PlaceCommand::Graph(args) => graph::run(args, global, screen),
        PlaceCommand::Model(args) => model::run(args, global, screen),
    }
}
