//! `gpuws place`: which device each operation of a graph or layer of a model goes to.

mod graph;
mod model;

use crate::args::{Global, PlaceArgs, PlaceCommand};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Screen;

pub(crate) fn run(args: &PlaceArgs, global: &Global, screen: &mut Screen) -> Result<Exit, Failure> {
    match &args.command {
        PlaceCommand::Graph(args) => graph::run(args, global, screen),
        PlaceCommand::Model(args) => model::run(args, global, screen),
    }
}
